"""The `console` exporter: each trajectory as a tree, when its root has ended."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TextIO

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.delivery.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.exporter import OutcomeSpanExporter
from otel_rollout_console.tree import draw_trace

__all__ = ["ConsoleSpanExporter"]

MAX_OPEN_SPANS: Final = 50_000
"""How many spans wait for their root; beyond that the oldest trace is drawn without it."""


class ConsoleSpanExporter(OutcomeSpanExporter):
    """Draws each trajectory as a tree once its root has ended.

    Args:
        stream: Where to; standard output where None.
    """

    def __init__(self, *, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._open: OrderedDict[int, list[ReadableSpan]] = OrderedDict()
        self._open_spans = 0

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Draw the traces whose root is among `spans`, keep the others for their root."""
        finished: list[int] = []
        for span in spans:
            if span.context is None:
                continue
            trace_id = span.context.trace_id
            self._open.setdefault(trace_id, []).append(span)
            self._open_spans += 1
            if span.parent is None or span.parent.is_remote:
                finished.append(trace_id)
        while self._open_spans > MAX_OPEN_SPANS and len(self._open) > len(finished):
            oldest = next(iter(self._open))
            if oldest in finished:
                self._open.move_to_end(oldest)
                continue
            finished.append(oldest)
            self._open.move_to_end(oldest)
        return self._draw(finished)

    def shutdown(self) -> None:
        """Draw what never got its root."""
        self._draw(list(self._open))

    def _draw(self, trace_ids: Sequence[int]) -> Outcome:
        lines: list[str] = []
        for trace_id in dict.fromkeys(trace_ids):
            spans = self._open.pop(trace_id, [])
            self._open_spans -= len(spans)
            lines += draw_trace(spans)
        if not lines:
            return DELIVERED
        stream = self._stream or sys.stdout
        try:
            stream.write("\n".join(lines) + "\n")
            stream.flush()
        except UnicodeEncodeError:
            # A terminal or pipe that can't show the tree's lines still shows the words.
            encoding = stream.encoding or "ascii"
            stream.write("\n".join(lines).encode(encoding, "replace").decode(encoding) + "\n")
        except (OSError, ValueError) as error:
            return Outcome(Verdict.DELIVERED, f"standard output can't be written: {error}", rejected=0)
        return DELIVERED
