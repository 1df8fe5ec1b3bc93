"""The delivery thread's work on a span: JSON, messages, redaction, limits, conversion."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.finish.payload_finisher import PayloadFinisher
    from otel_rollout.finish.redaction import Redactor, make_redactor
    from otel_rollout.finish.span_conversion import SpanReader
    from otel_rollout.finish.span_copies import copy_span, copy_without_payload, shrunk_copy
    from otel_rollout.finish.span_size import encoded_size, readable_size
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "payload_finisher": ("PayloadFinisher",),
            "redaction": ("Redactor", "make_redactor"),
            "span_conversion": ("SpanReader",),
            "span_copies": ("copy_span", "copy_without_payload", "shrunk_copy"),
            "span_size": ("encoded_size", "readable_size"),
        },
    )

__all__ = [
    "PayloadFinisher",
    "Redactor",
    "SpanReader",
    "copy_span",
    "copy_without_payload",
    "encoded_size",
    "make_redactor",
    "readable_size",
    "shrunk_copy",
]
