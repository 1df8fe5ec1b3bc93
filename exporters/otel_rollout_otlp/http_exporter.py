"""OTLP over HTTP in protobuf."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping, Sequence
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack, refused_here
from otel_rollout.export.http import HttpClient, destination_of, outcome_of_answer, require_requests
from otel_rollout.export.otlp_encoding import encode_spans
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_otlp.environment import USER_AGENT, OtlpEnvironment, read_environment
from otel_rollout_otlp.phoenix import read_back_from_phoenix, where_to_look

__all__ = ["OtlpHttpSpanExporter"]

# The fastest level: traces are text, and a worker has better uses for its cores.
GZIP_LEVEL: Final = 1
_HEADERS_HINT: Final = "check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS"


class OtlpHttpSpanExporter(OutcomeSpanExporter):
    """Sends spans to any OTLP receiver over HTTP.

    Source: https://opentelemetry.io/docs/specs/otlp/#otlphttp

    Args:
        endpoint: The base URL, or the whole one with `/v1/traces`; else `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, else
            `OTEL_EXPORTER_OTLP_ENDPOINT` with `/v1/traces` added.
        headers: Sent with each request, beside those of `OTEL_EXPORTER_OTLP_HEADERS`.
        timeout: Seconds for a request; else `OTEL_EXPORTER_OTLP_TIMEOUT`.

    Raises:
        ConfigurationError: The endpoint is no URL, or a variable has an invalid value.
    """

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        environment = read_environment(is_grpc=False, endpoint=endpoint)
        self.endpoint = environment.endpoint
        self._compression = environment.compression
        self._headers = {**environment.headers, **(headers or {})}
        self._client = HttpClient(
            headers={"content-type": "application/x-protobuf", "user-agent": USER_AGENT, **self._headers},
            timeout=timeout or environment.timeout,
            verify=environment.certificate or True,
            cert=_client_certificate(environment),
        )

    @property
    def destination(self) -> str:
        """The endpoint, with a hash of the headers."""
        return destination_of(self.endpoint, self._headers)

    def check(self) -> None:
        """Raise MissingExtraError if requests isn't installed."""
        require_requests()

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to send `spans`."""
        try:
            body = encode_spans(spans)
        except Exception as error:
            return refused_here(error)
        headers = {}
        if self._compression != "none":
            body = gzip.compress(body, GZIP_LEVEL) if self._compression == "gzip" else zlib.compress(body, GZIP_LEVEL)
            headers["content-encoding"] = self._compression
        answer = self._client.request("POST", self.endpoint, body, headers)
        outcome = outcome_of_answer(answer, self.endpoint, configuration_hint=_HEADERS_HINT)
        if outcome.verdict is not Verdict.DELIVERED or not answer.body:
            return outcome
        try:
            partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
        except DecodeError:
            # Phoenix and others answer in JSON or text.
            return outcome
        return partial_outcome(partial.rejected_spans, partial.error_message, len(spans))

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Count the stored ones of `spans`, if the receiver is a Phoenix."""
        return read_back_from_phoenix(self._client, self.endpoint, spans)

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return lines of text on how to find trajectories in an OTLP backend."""
        return where_to_look(self.endpoint, project_name)

    def shutdown(self) -> None:
        """Close the connections."""
        self._client.close()


def partial_outcome(rejected: int, message: str, sent: int) -> Outcome:
    """Return the outcome of a batch of `sent` spans that the receiver took, except for `rejected` ones."""
    if rejected <= 0:
        return Outcome(Verdict.DELIVERED)
    return Outcome(Verdict.DELIVERED, f"{rejected} of {sent} spans rejected: {message}", rejected=min(rejected, sent))


def _client_certificate(environment: OtlpEnvironment) -> str | tuple[str, str] | None:
    certificate, key = environment.client_certificate, environment.client_key
    return certificate if certificate is None or key is None else (certificate, key)
