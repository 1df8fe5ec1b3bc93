"""Sends spans to an OTLP receiver over HTTP in protobuf, and reads headers from environment variables.

Source: https://opentelemetry.io/docs/specs/otlp/#otlphttp

Headers: https://opentelemetry.io/docs/specs/otel/protocol/exporter/#specifying-headers-via-environment-variables
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final
from urllib.parse import unquote

from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.exporter import refused_here
from otel_rollout.export.http import HttpAnswer, HttpClient, json_object, outcome_of_answer, unexpected_answer
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.safe_logger import SafeLogger
from otel_rollout.otlp.encoding import Additions, encode_spans
from otel_rollout.settings import Setting
from otel_rollout.version import __version__

TRACES_PATH: Final = "/v1/traces"
# https://opentelemetry.io/docs/specs/otel/protocol/exporter/#user-agent
USER_AGENT: Final = f"otel-rollout/{__version__} OTel-OTLP-Exporter-Python/{__version__}"
OTLP_HEADERS: Final = {"content-type": "application/x-protobuf", "user-agent": USER_AGENT}
"""The headers of each request, unless the user's have the same name."""


# No repr: the endpoint may have a password.
@dataclass(frozen=True, repr=False)
class OtlpHttpSender:
    """Makes single attempts to send spans.

    Args:
        client: The HTTP client, with `OTLP_HEADERS`.
        endpoint: The full URL.
        configuration_hint: The settings to check after an auth or configuration error.
        compression: `none`, `gzip` or `deflate`.
        additions: Returns attributes and events for a span besides its own.
    """

    client: HttpClient
    endpoint: str
    _: KW_ONLY
    configuration_hint: str
    compression: str = "none"
    additions: Callable[[ReadableSpan], Additions] | None = None

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Make one attempt to send `spans`."""
        try:
            body = encode_spans(spans, self.additions)
        except Exception as error:
            return refused_here(error)
        headers = {}
        if self.compression != "none":
            # The fastest level: traces are text, and a worker has better uses for its cores.
            body = gzip.compress(body, 1) if self.compression == "gzip" else zlib.compress(body, 1)
            headers["content-encoding"] = self.compression
        answer = self.client.request("POST", self.endpoint, body, headers)
        hint = self.configuration_hint
        if answer.status == 415 and headers:
            hint = f"it may not take {self.compression}: see OTEL_EXPORTER_OTLP_COMPRESSION"
        return outcome_of_sent(answer, self.endpoint, len(spans), hint)


def outcome_of_sent(answer: HttpAnswer, url: str, sent: int, hint: str) -> Outcome:
    """Return the outcome of a batch of `sent` spans by its answer; a `hint` names the settings to check."""
    outcome = outcome_of_answer(_in_words(answer), url, configuration_hint=hint)
    if outcome.verdict is not Verdict.DELIVERED:
        return outcome
    partial = _partial_success(answer)
    if partial is None:
        return unexpected_answer(answer, url, "OTLP's answer", configuration_hint=hint)
    return partial_outcome(*partial, sent)


def _partial_success(answer: HttpAnswer) -> tuple[int, str] | None:
    """Return the number of rejected spans and the reason; None if the body is no `ExportTraceServiceResponse`.

    A receiver that gives no type, or a text's, may have either form; without a field, protobuf has no bytes.
    """
    if not answer.body:
        return 0, ""
    if "html" in answer.media_type:
        return None
    if "protobuf" not in answer.media_type and (found := json_object(answer.body)) is not None:
        partial = found.get("partialSuccess", found.get("partial_success")) or {}
        try:
            return int(partial.get("rejectedSpans") or 0), str(partial.get("errorMessage") or "")
        except (AttributeError, TypeError, ValueError):
            return None
    if "json" in answer.media_type:
        return None
    try:
        success = ExportTraceServiceResponse.FromString(answer.body).partial_success
    except DecodeError:
        return None
    return success.rejected_spans, success.error_message


def _in_words(answer: HttpAnswer) -> HttpAnswer:
    """Return an answer with the message of its body: a failure's body in protobuf is a `google.rpc.Status`."""
    # Its first field is its code, or its message.
    if answer.status < 400 or not answer.body.startswith((b"\x08", b"\x12")):
        return answer
    try:
        message = Status.FromString(answer.body).message
    except DecodeError:
        return answer
    return replace(answer, body=message.encode("utf-8", "replace")) if message else answer


def partial_outcome(rejected: int, message: str, sent: int) -> Outcome:
    """Return the outcome of a batch of `sent` spans that the receiver took, except for `rejected` ones."""
    if rejected <= 0:
        return Outcome(Verdict.DELIVERED)
    return Outcome(Verdict.DELIVERED, f"{rejected} of {sent} spans rejected: {message}", rejected=min(rejected, sent))


_logger = SafeLogger()


def read_headers(setting: Setting) -> dict[str, str]:
    """Return the headers of a variable with a text such as `name=value,other=value`; warn of a part that is no pair."""
    found = setting.find()
    headers: dict[str, str] = {}
    text = (found.value or "").strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        # Files of variables (docker's, systemd's) keep the quotes that a shell removes.
        text = text[1:-1]
    for position, pair in enumerate(text.split(","), 1):
        name, separator, value = pair.partition("=")
        if separator and name.strip():
            headers[name.strip().lower()] = unquote(value.strip())
        elif pair.strip():
            # Without the pair: it may be a secret without its name, or the rest of one with a comma.
            _logger.warning(
                "%s: pair %d is ignored: this should be name=value; pairs are separated by commas, and a comma in a "
                "value is written %%2C",
                found.variable,
                position,
            )
    return headers
