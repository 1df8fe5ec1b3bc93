"""OTLP: spans written and read as protobuf, and the JSON of other programs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.otlp.attributes import varint
    from otel_rollout.otlp.cutting import ScopePart, TooManySpansError, cut_request, spans_of
    from otel_rollout.otlp.encoding import EncodedSpan, encode_each, encode_spans, join_spans
    from otel_rollout.otlp.json_text import has_too_many_values, json_of_request, request_of_json, split_json
    from otel_rollout.otlp.reading import StoredSpan, decode_spans, lazy_spans, traces_of
    from otel_rollout.otlp.received import split_request
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "encoding": ("EncodedSpan", "encode_each", "encode_spans", "join_spans"),
            "json_text": ("has_too_many_values", "json_of_request", "request_of_json", "split_json"),
            "cutting": ("TooManySpansError", "ScopePart", "cut_request", "spans_of"),
            "reading": ("StoredSpan", "decode_spans", "lazy_spans", "traces_of"),
            "received": ("split_request",),
            "attributes": ("varint",),
        },
    )
