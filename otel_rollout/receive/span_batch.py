"""The spans of a request's body, encoded for the folder, and those that are refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from otel_rollout.otlp import EncodedSpan, split_json, split_request
from otel_rollout.otlp.reading import LARGE_ORIGIN, MAX_ORIGIN_BYTES
from otel_rollout.receive.foreign_names import as_trajectory

MAX_SPAN_BYTES: Final = 64 * 2**20
"""A larger span is refused: a request in the folder has at most 256 MiB."""
GROUP_BYTES: Final = 16 * 2**20
SPAN_BYTES: Final = 2048
"""The memory that a span takes without its text."""
MAX_REASONS: Final = 3
NO_LIMIT: Final = 2**32


class SpanBatch:
    """The spans of one request; those that can't be stored are counted while the others are taken.

    Args:
        body: The decompressed body.
        is_json: True for JSON, False for protobuf.
        max_spans: The limit on its spans; in protobuf its scopes and resources count too.

    Raises:
        TooManySpansError: It has more.
        ValueError: It is no OTLP request.
    """

    def __init__(self, body: bytes, *, is_json: bool, max_spans: int = NO_LIMIT) -> None:
        self._reasons: Counter[str] = Counter()
        split = split_json if is_json else split_request
        self._encoded = split(body, self._refuse, max_spans)

    @property
    def refused(self) -> int:
        """The number of spans that are refused."""
        return self._reasons.total()

    @property
    def reason(self) -> str:
        """The most frequent reasons for which spans are refused."""
        return "; ".join(f"{count} refused: {reason}" for reason, count in self._reasons.most_common(MAX_REASONS))

    def groups(self) -> Iterator[list[EncodedSpan]]:
        """Yield the spans in groups of at most as many as `GROUP_BYTES` of memory hold."""
        group: list[EncodedSpan] = []
        size = 0
        for span in map(as_trajectory, self._encoded):
            origin = len(span.resource) + len(span.scope)
            # In the journal the resource may precede each span.
            weight = SPAN_BYTES + origin + len(span.data)
            if len(span.data) > MAX_SPAN_BYTES:
                self._refuse(f"a span of more than {MAX_SPAN_BYTES:,} bytes, which is the limit")
                continue
            if origin > MAX_ORIGIN_BYTES:
                self._refuse(LARGE_ORIGIN)
                continue
            if group and size + weight > GROUP_BYTES:
                yield group
                group, size = [], 0
            group.append(span)
            size += weight
        if group:
            yield group

    def _refuse(self, reason: str) -> None:
        self._reasons[reason if len(self._reasons) < 100 else "other reasons"] += 1
