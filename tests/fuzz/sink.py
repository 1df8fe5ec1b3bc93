"""An exporter that looks at every span which reaches a backend, and forgets it."""

from __future__ import annotations

import json
from collections.abc import Sequence

import orjson
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout import semconv
from tests.fuzz.libraries import HIDDEN
from tests.fuzz.watch import WATCH

__all__ = ["Sink"]

JSON_KEYS = (
    semconv.INPUT_VALUE,
    semconv.OUTPUT_VALUE,
    semconv.METADATA,
    semconv.INPUT_MESSAGES,
    semconv.OUTPUT_MESSAGES,
)
MAX_PAYLOAD_BYTES = 4 * 2**20
"""More than any setting of the fuzz allows: what is larger was not bounded."""


class Sink(SpanExporter):
    """Checks that payloads are valid JSON, bounded, and free of what was hidden; counts spans."""

    def __init__(self) -> None:
        self.received = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Look at the spans."""
        for span in spans:
            self.received += 1
            try:
                self._check(span)
            except Exception as error:  # whatever comes is looked at
                WATCH.found(f"a span can't be read: {type(error).__name__}", str(error))
        return SpanExportResult.SUCCESS

    def _check(self, span: ReadableSpan) -> None:
        attributes = dict(span.attributes or {})
        for key in JSON_KEYS:
            text = attributes.get(key)
            if text is None:
                continue
            if type(text) is not str:
                WATCH.found(f"{key} is a {type(text).__name__}")
                continue
            data = text.encode()
            if len(data) > MAX_PAYLOAD_BYTES:
                WATCH.found(f"{key} is larger than its limit", f"{len(data):,} bytes")
            if attributes.get(key.replace(".value", ".mime_type")) == semconv.TEXT_MIME_TYPE:
                data = orjson.dumps(text)
            try:
                orjson.loads(data)
            except orjson.JSONDecodeError as error:
                # orjson goes 1,024 levels deep, other readers further.
                if not self._is_json(text):
                    WATCH.found(f"{key} is no JSON: {error.msg}", text)
            if HIDDEN in text or HIDDEN.encode().hex()[:16] in text:
                position = max(text.find(HIDDEN), 0)
                WATCH.found(f"{key} has what its class hides", text[max(0, position - 200) :])
        if HIDDEN in str([value for key, value in attributes.items() if key not in JSON_KEYS]):
            WATCH.found("an attribute has what its class hides", str(attributes))
        # Any backend can take it.
        encode_spans([span]).SerializeToString()

    def _is_json(self, text: str) -> bool:
        try:
            json.loads(text, parse_constant=self._refuse)
        except (ValueError, RecursionError):
            return False
        return True

    def _refuse(self, name: str) -> None:
        raise ValueError(name)
