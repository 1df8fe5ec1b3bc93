"""OTLP over HTTP in protobuf."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.exporter import OutcomeSpanExporter, ReadBack
from otel_rollout.export.genai_additions import additions_of
from otel_rollout.export.http import HttpClient, destination_of, import_requests
from otel_rollout.export.otlp_http import OTLP_HEADERS, OtlpHttpSender, read_headers
from otel_rollout.export.outcome import Outcome
from otel_rollout_otlp.environment import HEADERS, NO_WAY, SETTINGS, OtlpEnvironment, read_environment, where_to_look


class OtlpHttpSpanExporter(OutcomeSpanExporter):
    """Sends spans to any OTLP receiver over HTTP.

    Source: https://opentelemetry.io/docs/specs/otlp/#otlphttp

    Args:
        endpoint: The base URL, or the whole one with `/v1/traces`; else `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, else
            `OTEL_EXPORTER_OTLP_ENDPOINT` with `/v1/traces` added.
        headers: Sent with each request, besides the headers of `OTEL_EXPORTER_OTLP_HEADERS`.
        timeout: Seconds for a request; else `OTEL_EXPORTER_OTLP_TIMEOUT`.

    Raises:
        ConfigurationError: The endpoint is no URL, or a variable has an invalid value.
    """

    variables = SETTINGS

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        environment = read_environment(is_grpc=False, endpoint=endpoint, timeout=timeout)
        self.endpoint = environment.endpoint
        given = dict(headers or {})
        self._headers = {**environment.headers, **given}
        self._client = HttpClient(
            # Read again after an auth error: a token may have been renewed.
            headers=lambda: {**OTLP_HEADERS, **read_headers(HEADERS), **given},
            timeout=environment.timeout,
            verify=environment.certificate or True,
            cert=_client_certificate(environment),
        )
        self._sender = OtlpHttpSender(
            self._client,
            self.endpoint,
            configuration_hint=environment.what_to_check,
            compression=environment.compression,
            additions=additions_of,
        )

    @property
    def destination(self) -> str:
        """The endpoint, with a hash of the headers."""
        return destination_of(self.endpoint, self._headers)

    def check(self) -> None:
        """Import what `send` needs."""
        import_requests()

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to send `spans`."""
        return self._sender.send(spans)

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Return why nothing is read back: OTLP only writes."""
        return ReadBack(None, NO_WAY)

    def where_to_look(self, project_name: str, experiment_name: str) -> list[str]:
        """Return lines of text on how to find trajectories in an OTLP backend."""
        return where_to_look(self.endpoint, project_name)

    def shutdown(self) -> None:
        """Close the connections."""
        self._client.close()


def _client_certificate(environment: OtlpEnvironment) -> str | tuple[str, str] | None:
    certificate, key = environment.client_certificate, environment.client_key
    return certificate if certificate is None or key is None else (certificate, key)
