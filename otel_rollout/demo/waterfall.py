"""One trajectory as a tree of its spans, with durations, when each ran, and what it was about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from rich.text import Text

from otel_rollout import semconv
from otel_rollout.analysis.trace_tree import KIND_STYLES, error_of, place_of, time_bar, walk_tree

__all__ = ["waterfall"]

KIND_WIDTH = max(map(len, KIND_STYLES))


def waterfall(spans: Sequence[ReadableSpan], *, bar_width: int = 20) -> list[Text]:
    """Return one line a span, with what it was about at the end.

    Args:
        spans: The spans of one trajectory in the order in which they began; the root is among them.
        bar_width: Columns for the bars that show when each span ran.
    """
    root = next(span for span in spans if span.parent is None)
    rows = [(span, guide) for span, guide, _ in walk_tree(spans, place_of)]
    name_width = max(len(guide) + len(span.name) for span, guide in rows)
    return [
        _line(span, guide, name_width, time_bar(span, root.start_time or 0, root.end_time or 0, bar_width))
        for span, guide in rows
    ]


def _line(span: ReadableSpan, guide: str, name_width: int, bar: str) -> Text:
    kind = str((span.attributes or {}).get(semconv.SPAN_KIND, ""))
    failed = span.status.status_code is StatusCode.ERROR
    style = "red" if failed else KIND_STYLES.get(kind, "")
    return Text.assemble(
        (guide, "dim"),
        (span.name.ljust(name_width - len(guide)), "bold red" if failed else "bold"),
        ("  " + kind.ljust(KIND_WIDTH), style),
        _milliseconds(span).rjust(10) + "  ",
        (bar + "  ", style),
        _about(span, kind, failed=failed),
    )


def _milliseconds(span: ReadableSpan) -> str:
    return f"{((span.end_time or 0) - (span.start_time or 0)) / 1e6:.1f} ms"


def _about(span: ReadableSpan, kind: str, *, failed: bool) -> Text:
    if failed:
        return Text(error_of(span), style="red")
    attributes = span.attributes or {}
    inputs, output = _read(attributes, semconv.INPUT_VALUE), _read(attributes, semconv.OUTPUT_VALUE)
    if kind == "AGENT":
        return Text(f"{attributes.get(semconv.STATUS)}, reward {attributes.get(semconv.REWARD)}", style="bold")
    if kind == "LLM":
        said = str(output.get("response_text", "")).partition("\n")[0] if isinstance(output, dict) else ""
        counts = (attributes.get(key, 0) for key in (semconv.USAGE_INPUT_TOKENS, semconv.USAGE_OUTPUT_TOKENS))
        return Text.assemble(("{}→{} tok".format(*counts), "dim"), "  ", said)
    if kind == "TOOL":
        argument = inputs.get("argument") if isinstance(inputs, dict) else inputs
        return Text(f"{argument} = {output}")
    if kind == "EVALUATOR":
        return Text(f"{output}")
    return Text()


def _read(attributes: Mapping[str, Any], key: str) -> Any:
    try:
        return json.loads(attributes[key])
    except (KeyError, TypeError, ValueError):
        return None
