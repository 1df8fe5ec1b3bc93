"""The spans of a request's body, encoded for the folder, and those that are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.receive.media_types import JSON
from otel_rollout.trace_folder.otlp_json import EncodedSpan, encode_spans
from otel_rollout.trace_folder.otlp_json_reading import MAX_VALUES as MAX_LINE_VALUES
from otel_rollout.trace_folder.otlp_json_reading import decode_request, has_too_many_values
from otel_rollout.trace_folder.otlp_protobuf import encode_request

__all__ = ["SpanBatch"]

MAX_SPAN_BYTES: Final = 64 * 2**20
"""A larger span, as JSON, is refused: a line of the folder has at most 256 MiB."""
MAX_ORIGIN_BYTES: Final = 2**20
"""A resource and scope stand in each line of the journal that has spans of theirs."""
MAX_VALUES: Final = MAX_LINE_VALUES // 2
"""Of a span; a line with more than twice as many is taken for damaged."""
MAX_REASONS: Final = 3


class SpanBatch:
    """The spans of one request.

    Args:
        body: The decompressed body.
        media_type: JSON's or protobuf's.

    Raises:
        ValueError: It is no OTLP request.
    """

    def __init__(self, body: bytes, media_type: str) -> None:
        self._reasons: Counter[str] = Counter()
        encoded = self._from_json(body) if media_type == JSON else self._from_protobuf(body)
        self.spans = [span for span in encoded if self._is_small(span)]

    @property
    def refused(self) -> int:
        """The number of spans that are refused."""
        return self._reasons.total()

    @property
    def reason(self) -> str:
        """The most frequent reasons for which spans are refused."""
        return "; ".join(f"{count} refused: {reason}" for reason, count in self._reasons.most_common(MAX_REASONS))

    def _from_protobuf(self, body: bytes) -> Iterator[EncodedSpan]:
        try:
            request = ExportTraceServiceRequest.FromString(body)
        except DecodeError as error:
            raise ValueError(f"the body is no OTLP request in protobuf: {error}") from error
        return encode_request(request, self._refuse)

    def _from_json(self, body: bytes) -> Iterator[EncodedSpan]:
        for span in decode_request(body, self._refuse):
            yield from self._encode(span)

    def _encode(self, span: ReadableSpan) -> list[EncodedSpan]:
        try:
            return list(encode_spans((span,)))
        except (ArithmeticError, RecursionError, TypeError, ValueError) as error:
            self._refuse(str(error))
            return []

    def _is_small(self, span: EncodedSpan) -> bool:
        if len(span.json) > MAX_SPAN_BYTES:
            reason = f"a span of more than {MAX_SPAN_BYTES:,} bytes as JSON, which is the limit"
        elif len(span.resource) + len(span.scope) > MAX_ORIGIN_BYTES:
            reason = f"a resource and scope of more than {MAX_ORIGIN_BYTES:,} bytes as JSON, which is the limit"
        elif has_too_many_values(span.json, MAX_VALUES):
            reason = f"a span of more than {MAX_VALUES:,} values, which is the limit"
        else:
            return True
        self._refuse(reason)
        return False

    def _refuse(self, reason: str) -> None:
        self._reasons[reason if len(self._reasons) < 100 else "other reasons"] += 1
