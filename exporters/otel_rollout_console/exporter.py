"""The `console` exporter: each trajectory as a tree, when its root has ended."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, TextIO

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout_console.tree import Branch, draw_trace, make_branch

__all__ = ["ConsoleSpanExporter"]

MAX_OPEN_SPANS: Final = 50_000
"""How many spans wait for their root, a line each; beyond that the oldest trace is drawn without it."""


class ConsoleSpanExporter(OutcomeSpanExporter):
    """Draws each trajectory as a tree once its root has ended.

    Args:
        stream: Where to; standard output where None.
    """

    def __init__(self, *, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._open: OrderedDict[int, list[Branch]] = OrderedDict()
        self._open_spans = 0

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Draw the traces whose root is among `spans`, keep the others for their root."""
        lines: list[str] = []
        finished: list[int] = []
        for span in spans:
            context = span.get_span_context()
            if context is None:
                continue
            self._open.setdefault(context.trace_id, []).append(make_branch(span))
            self._open_spans += 1
            if span.parent is None or span.parent.is_remote:
                finished.append(context.trace_id)
        for trace_id in dict.fromkeys(finished):
            lines += self._take(trace_id)
        while self._open_spans > MAX_OPEN_SPANS:
            lines += self._take(next(iter(self._open)))
        fault = self._write(lines)
        return DELIVERED if fault is None else Outcome(Verdict.DELIVERED, fault, rejected=len(spans))

    def shutdown(self) -> None:
        """Draw what never got its root."""
        self._write([line for trace_id in list(self._open) for line in self._take(trace_id)])

    def after_fork(self) -> None:
        """Forget the parent's spans: it draws them itself."""
        self._open.clear()
        self._open_spans = 0

    def _take(self, trace_id: int) -> list[str]:
        branches = self._open.pop(trace_id)
        self._open_spans -= len(branches)
        return draw_trace(branches)

    def _write(self, lines: Sequence[str]) -> str | None:
        """Write lines; return why they can't be, if so."""
        if not lines:
            return None
        stream = self._stream or sys.stdout
        text = "\n".join(lines) + "\n"
        try:
            try:
                stream.write(text)
            except UnicodeEncodeError:
                # A terminal or pipe that can't show the tree's lines still shows the words.
                encoding = stream.encoding or "ascii"
                stream.write(text.encode(encoding, "replace").decode(encoding))
            stream.flush()
        except (AttributeError, OSError, ValueError) as error:
            # No stream, a closed one, or a pipe that nobody reads.
            return f"the console can't be written to: {error}"
        return None
