"""The receiver's output on a terminal: a status line that is rewritten each second, and its totals at the end."""

from __future__ import annotations

import sys

from otel_rollout.guard.clock import monotonic
from otel_rollout.receive.receiver import Receiver
from otel_rollout.text.plain_text import counted, printable

_CLEAR = "\r\x1b[K"


class StatusLine:
    """One line on standard error; nothing if that is no terminal.

    Args:
        receiver: The receiver.
    """

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._is_terminal = sys.stderr.isatty()
        self._then = monotonic()
        self._spans = 0

    def show(self) -> None:
        """Write the line anew."""
        if not self._is_terminal:
            return
        now, totals = monotonic(), self._receiver.totals
        rate = (totals.spans - self._spans) / max(now - self._then, 0.001)
        self._then, self._spans = now, totals.spans
        text = f"{rate:,.0f} spans/s  {totals.spans:,} spans  {len(self._receiver.folder.traces):,} trajectories open"
        self._write(f"{_CLEAR}{text}  {printable(totals.trouble)}")

    def clear(self) -> None:
        """Remove the line."""
        if self._is_terminal:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def describe_totals(receiver: Receiver) -> str:
    """Return the totals as one line."""
    totals, folder = receiver.totals, receiver.folder
    parts = [f"{counted(totals.spans, 'span')} in {counted(totals.requests, 'request')}"]
    for count, what in (
        (totals.doubles, "had come before"),
        (totals.refused, "refused"),
        (totals.refused_requests, "whole requests refused"),
        (totals.turned_away, "requests turned away"),
        (totals.adopted, "taken over from another receiver"),
        (folder.joined, "without a step joined with their trajectory"),
        (folder.orphaned, "without a trajectory"),
    ):
        if count:
            parts.append(f"{count:,} {what}")
    return f"{', '.join(parts)}; {counted(folder.written, 'trajectory')} written, {len(folder.traces):,} open"
