"""OTLP over gRPC."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.errors import MissingExtraError
from otel_rollout.export.connection_errors import describe_grpc_error, is_wrong_protocol
from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack, refused_here
from otel_rollout.export.genai_additions import additions_of
from otel_rollout.export.http import destination_of, shown_url, without_secrets
from otel_rollout.export.otlp_http import USER_AGENT, partial_outcome, read_headers
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.export.proxies import proxy_for
from otel_rollout.installing import install_line
from otel_rollout.otlp.encoding import encode_spans
from otel_rollout_otlp.environment import HEADERS, NO_WAY, SETTINGS, read_environment, where_to_look

if TYPE_CHECKING:
    import grpc

# Receivers refuse messages over 4 MiB by default, and count the message after decompression.
MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024 - 64 * 1024

# Without the pool of its own, channels share one connection, and a forked child would use its parent's.
_OPTIONS: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.primary_user_agent", USER_AGENT))

METHOD: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

_PASSING: Final = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "OUT_OF_RANGE", "UNAVAILABLE", "DATA_LOSS"})
_CONFIGURATION_ERRORS: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "UNIMPLEMENTED", "NOT_FOUND"})


class OtlpGrpcSpanExporter(OutcomeSpanExporter):
    """Sends spans to any OTLP receiver over gRPC, in messages under 4 MiB.

    Source: https://opentelemetry.io/docs/specs/otlp/#otlpgrpc

    Args:
        endpoint: A URL (`http://` is without TLS) or `host:port`; else `OTEL_EXPORTER_OTLP_ENDPOINT`.
        headers: Sent with each request, besides the headers of `OTEL_EXPORTER_OTLP_HEADERS`.
        timeout: Seconds for a request; else `OTEL_EXPORTER_OTLP_TIMEOUT`.

    Raises:
        ConfigurationError: The endpoint is no address, or a variable has an invalid value.
    """

    max_batch_bytes = MAX_MESSAGE_BYTES
    variables = SETTINGS

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._environment = read_environment(is_grpc=True, endpoint=endpoint, timeout=timeout)
        self.endpoint = self._environment.endpoint
        self._hint = self._environment.what_to_check
        self._given = {name.lower(): value for name, value in (headers or {}).items()}
        self._headers = tuple({**self._environment.headers, **self._given}.items())
        self._is_refused = False
        self._timeout = self._environment.timeout
        self._channel: grpc.Channel | None = None
        self._export: Any = None
        self._pid = 0
        self._parents_channels: list[grpc.Channel] = []

    @property
    def destination(self) -> str:
        """The endpoint, with a hash of the headers."""
        return destination_of(self.endpoint, dict(self._headers))

    def check(self) -> None:
        """Raise MissingExtraError if gRPC isn't installed."""
        try:
            import grpc  # noqa: F401
        except ImportError as error:
            raise MissingExtraError(f"OTLP over gRPC needs grpcio ({error}): {install_line('grpc')}") from error

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to send `spans`."""
        try:
            request = encode_spans(spans, additions_of)
        except Exception as error:
            return refused_here(error)
        size = len(request)
        if size > MAX_MESSAGE_BYTES:
            return Outcome(Verdict.TOO_LARGE, f"{size:,} bytes, over gRPC's limit of 4 MiB for a message")
        try:
            import grpc
        except ImportError as error:
            return Outcome(Verdict.CONFIGURATION_ERROR, f"{error}: {install_line('grpc')}")
        if self._is_refused:
            # A token may have been renewed since.
            self._headers = tuple({**read_headers(HEADERS), **self._given}.items())
        try:
            answer = self._method()(request, timeout=self._timeout, metadata=self._headers)
        except grpc.RpcError as error:
            outcome = self._outcome(error)
            if outcome.verdict is Verdict.RETRY:
                # A failed channel waits up to two minutes before it connects again; a new one doesn't.
                self.shutdown()
            self._is_refused = outcome.verdict is Verdict.CONFIGURATION_ERROR
            return outcome
        except (OSError, TypeError, ValueError) as error:
            # A certificate that can't be read, a header that can't be sent.
            return Outcome(
                Verdict.CONFIGURATION_ERROR,
                f"{shown_url(self.endpoint)}: {type(error).__name__}: {error}; {self._hint}",
            )
        partial = answer.partial_success
        return partial_outcome(partial.rejected_spans, partial.error_message, len(spans))

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Return why nothing is read back: OTLP only writes."""
        return ReadBack(None, NO_WAY)

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return lines of text on how to find trajectories in an OTLP backend."""
        return where_to_look(self.endpoint, project_name)

    def shutdown(self) -> None:
        """Close the channel."""
        channel, self._channel, self._export = self._channel, None, None
        if channel is not None:
            channel.close()

    def after_fork(self) -> None:
        """Drop the parent's channel without closing it, which would need gRPC's threads."""
        if self._channel is not None:
            self._parents_channels.append(self._channel)
        self._channel = self._export = None

    def _method(self) -> Any:
        if self._pid != os.getpid():
            self.after_fork()
            self._pid = os.getpid()
        if self._export is None:
            self._channel = self._open()
            self._export = self._channel.unary_unary(
                METHOD,
                request_serializer=None,
                response_deserializer=ExportTraceServiceResponse.FromString,
            )
        return self._export

    def _open(self) -> grpc.Channel:
        import grpc

        parts = urlsplit(self.endpoint)
        target = parts.netloc if parts.scheme in ("http", "https") else self.endpoint
        compression = {"gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}.get(
            self._environment.compression, grpc.Compression.NoCompression
        )
        if self._environment.is_insecure:
            return grpc.insecure_channel(target, options=_OPTIONS, compression=compression)
        environment = self._environment
        credentials = grpc.ssl_channel_credentials(
            *(
                Path(path).read_bytes() if path else None
                for path in (environment.certificate, environment.client_key, environment.client_certificate)
            )
        )
        return grpc.secure_channel(target, credentials, options=_OPTIONS, compression=compression)

    def _outcome(self, error: grpc.RpcError) -> Outcome:
        import grpc

        code = error.code().name if isinstance(error, grpc.Call) else "UNKNOWN"
        details = error.details() if isinstance(error, grpc.Call) else str(error)
        described = details or ""
        if code == "UNAVAILABLE":
            described = describe_grpc_error(described, self.endpoint, proxy=proxy_for(self.endpoint, is_grpc=True))
        reason = f"gRPC {code} from {shown_url(self.endpoint)}: {without_secrets(described, self.endpoint)}"
        if code == "RESOURCE_EXHAUSTED" and "larger than max" in (details or ""):
            return Outcome(Verdict.TOO_LARGE, reason)
        if is_wrong_protocol(described):
            return Outcome(Verdict.CONFIGURATION_ERROR, reason)
        retry_after = _retry_delay(error)
        if code in _PASSING or (code == "RESOURCE_EXHAUSTED" and retry_after is not None):
            return Outcome(Verdict.RETRY, reason, retry_after, is_unanswered=code == "DEADLINE_EXCEEDED")
        if code in ("INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"):
            # An exhausted receiver that can recover reports when; else the batch must not be retried.
            return Outcome(Verdict.REFUSED, reason)
        if code in _CONFIGURATION_ERRORS or details == "Invalid metadata":
            return Outcome(Verdict.CONFIGURATION_ERROR, f"{reason}; {self._hint}")
        return Outcome(Verdict.UNEXPLAINED, reason)


def _retry_delay(error: grpc.RpcError) -> float | None:
    """Return the delay of the status's `RetryInfo` in seconds; None without one.

    Source: https://opentelemetry.io/docs/specs/otlp/#otlpgrpc-throttling
    """
    metadata = dict(getattr(error, "trailing_metadata", tuple)() or ())
    details = metadata.get("grpc-status-details-bin")
    if not isinstance(details, bytes):
        return None
    info = RetryInfo()
    try:
        has_info = any(detail.Unpack(info) for detail in Status.FromString(details).details)
    except DecodeError:
        return None
    return max(0.0, info.retry_delay.ToNanoseconds() / 1e9) if has_info else None
