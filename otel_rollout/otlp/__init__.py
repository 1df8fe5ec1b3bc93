"""OTLP: spans written and read as protobuf, and the JSON of other programs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.otlp.cutting import TooManySpansError, cut_request
    from otel_rollout.otlp.encoding import EncodedSpan, encode_each, encode_spans, join_spans, varint
    from otel_rollout.otlp.json_text import has_too_many_values, json_of_request, request_of_json, split_json
    from otel_rollout.otlp.reading import StoredSpan, decode_spans, lazy_spans, split_request, traces_of
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "encoding": ("EncodedSpan", "encode_each", "encode_spans", "join_spans", "varint"),
            "json_text": ("has_too_many_values", "json_of_request", "request_of_json", "split_json"),
            "cutting": ("TooManySpansError", "cut_request"),
            "reading": ("StoredSpan", "decode_spans", "lazy_spans", "split_request", "traces_of"),
        },
    )
