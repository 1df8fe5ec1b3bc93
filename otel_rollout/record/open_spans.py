"""Counts the spans that have started and not ended."""

from __future__ import annotations

import sys
from typing import Final

from otel_rollout.record.recording_span import RolloutSpan

MAX_SPANS: Final = 100_000


class OpenSpans:
    """The spans that have started and not ended, and their inputs; starts and ends may be interrupted and repeated."""

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self._max_bytes = max_bytes
        self._ids: dict[int, int] = {}
        """The bytes of each span's input, by its id."""
        self._bytes = 0
        """The bytes of all, up to additions that two threads make simultaneously."""

    @property
    def count(self) -> int:
        """The number of open spans, up to `MAX_SPANS`."""
        return len(self._ids)

    def started(self, span: RolloutSpan) -> None:
        """Note a start, from any thread."""
        if len(self._ids) < MAX_SPANS:
            ids = span.ids
            self._ids[ids if type(ids) is int else ids.span_id] = 0  # type: ignore[union-attr]  # just checked

    def hold(self, span: RolloutSpan, size: int) -> bool:
        """Count the bytes of an open span's input; return False if there is no room for them."""
        if self._bytes + size > self._max_bytes:
            self._bytes = sum([*self._ids.values()])
            if self._bytes + size > self._max_bytes:
                return False
        ids = span.ids
        self._bytes += size
        self._ids[ids if type(ids) is int else ids.span_id] = size  # type: ignore[union-attr]  # just checked
        return True

    def ended(self, span: RolloutSpan) -> None:
        """Note an end, from any thread."""
        ids = span.ids
        self._bytes -= self._ids.pop(ids if type(ids) is int else ids.span_id, 0)  # type: ignore[union-attr]  # likewise

    def after_fork(self) -> None:
        """Leave the parent's open spans to the parent's count."""
        self._ids.clear()
        self._bytes = 0
