"""The `console` exporter: each trajectory as a tree, when its root has ended."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, Final, TextIO

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.facts.reward_parts import reward_parts_of
from otel_rollout.facts.span_messages import previews_of
from otel_rollout.facts.trace_tree import Place, place_of, walk_tree
from otel_rollout.text.plain_text import duration, printable, shorten

MAX_PAYLOAD_CHARACTERS: Final = 60


class ConsoleSpanExporter(OutcomeSpanExporter):
    """Draws each trajectory as a tree once its root has ended.

    Args:
        stream: The stream; standard output if None.
    """

    max_open_spans = 50_000
    """The most spans that wait for their root, a line each; beyond that the oldest trace is drawn without it."""

    def __init__(self, *, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._open: OrderedDict[int, list[tuple[Place, str]]] = OrderedDict()
        self._open_spans = 0

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Draw the traces whose root is among `spans`, keep the others for their root."""
        lines: list[str] = []
        finished: list[int] = []
        for span in spans:
            context = span.get_span_context()
            if context is None:
                continue
            self._open.setdefault(context.trace_id, []).append((place_of(span), describe_span(span)))
            self._open_spans += 1
            if span.parent is None or span.parent.is_remote:
                finished.append(context.trace_id)
        for trace_id in dict.fromkeys(finished):
            lines += self._take(trace_id)
        while self._open_spans > self.max_open_spans:
            lines += self._take(next(iter(self._open)))
        fault = self._write(lines)
        return DELIVERED if fault is None else Outcome(Verdict.DELIVERED, fault, rejected=len(spans))

    def shutdown(self) -> None:
        """Draw the traces that never got their root."""
        self._write([line for trace_id in list(self._open) for line in self._take(trace_id)])

    def after_fork(self) -> None:
        """Forget the parent's spans: it draws them itself."""
        self._open.clear()
        self._open_spans = 0

    def _take(self, trace_id: int) -> list[str]:
        rows = self._open.pop(trace_id)
        self._open_spans -= len(rows)
        return [f"{guide}{line}" for (_, line), guide, _ in walk_tree(rows, itemgetter(0))]

    def _write(self, lines: Sequence[str]) -> str | None:
        """Write lines; return the fault if that fails."""
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


def describe_span(span: ReadableSpan) -> str:
    """Return one line on a span: kind, name, duration, tags and totals of a root, payload of an op, error."""
    attributes = span.attributes or {}
    parts = [
        f"{attributes.get(semconv.SPAN_KIND, 'SPAN')} {span.name}",
        duration((span.end_time or 0) - (span.start_time or 0)),
    ]
    if span.parent is None and semconv.STATUS in attributes:
        parts.append(" ".join(_summary(attributes)))
    else:
        parts.append(" → ".join(filter(None, previews_of(span, MAX_PAYLOAD_CHARACTERS))))
        parts.append(" ".join(f"{part.name}={_number(part.value)}" for part in reward_parts_of(span)))
    if span.status.status_code is StatusCode.ERROR:
        parts.append(f"ERROR {_clip(span.status.description or '')}".rstrip())
    return printable("  ".join(part for part in parts if part))


def _summary(attributes: Any) -> list[str]:
    names = (
        (semconv.STEP, "step"),
        (semconv.SAMPLE_INDEX, "sample"),
        (semconv.ROLLOUT_N, "rollout"),
        (semconv.REWARD, "reward"),
        (semconv.TURNS, "turns"),
        (semconv.DROPPED_SPANS, "dropped spans"),
    )
    words = [f"{label}={_number(attributes[key])}" for key, label in names if key in attributes]
    if attributes.get(semconv.VALIDATE):
        words.append("validation")
    words.append(str(attributes[semconv.STATUS]))
    return words


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _clip(value: Any) -> str:
    return shorten(str(value), MAX_PAYLOAD_CHARACTERS)
