"""Draw a trajectory as a tree of its spans: kind, duration, position in time, input and output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import StatusCode
from rich.cells import cell_len
from rich.text import Text

from otel_rollout import semconv
from otel_rollout.analysis.plain_text import counted, duration, printable, shorten, size, step_name
from otel_rollout.analysis.trace_tree import KIND_STYLES, STATUS_STYLES, error_of, place_of, time_bar, walk_tree

if TYPE_CHECKING:
    from otel_rollout.trace_folder.reader import RecordedTrajectory

__all__ = ["draw_heading", "draw_spans"]

KIND_WIDTH: Final = max(map(len, KIND_STYLES))
DURATION_WIDTH: Final = 9
GAP: Final = "  "
WIDE: Final = 110
"""The columns from which on bars are long."""
MAX_PAYLOAD_CHARACTERS: Final = 80
MAX_PREVIEWED_CHARACTERS: Final = 200_000
MAX_JSON_LINE: Final = 70
ARROW: Final = " → "
MIN_ROOM_FOR_BOTH: Final = 50
"""The columns below which an input is drawn only if input and output are short."""
_LIST: Final = r"\[(?:-?\d[-+.\deE]*,\s*){7,}-?\d[-+.\deE]*\]"
NUMBERS: Final = re.compile(rf'"[^"\\]{{0,64}}":\s*{_LIST},?\s*|{_LIST}')
"""A long list of numbers, with its name if it has one."""
RESPONSE: Final = "response_text"
"""The field of a generation's decoded tokens (`token2text`), shown in place of ids and options."""

PAYLOADS: Final = ((semconv.INPUT_VALUE, "input"), (semconv.OUTPUT_VALUE, "output"))
NOT_SAID_AGAIN: Final = {
    *semconv.TAGS,
    *(key for key, _ in PAYLOADS),
    semconv.INPUT_MIME_TYPE,
    semconv.OUTPUT_MIME_TYPE,
    semconv.METADATA,
    semconv.SPAN_KIND,
}
"""Attributes that the heading or the span's line has, or that nobody needs."""


def draw_heading(trajectory: RecordedTrajectory) -> Iterator[Text]:
    """Yield the lines with a trajectory's tags, outcome and totals."""
    attributes = trajectory.attributes
    tags = [f"step {step_name(trajectory.step, validate=trajectory.validate)}"] if trajectory.step is not None else []
    tags += [
        f"{label} {value}"
        for label, value in (("sample", trajectory.sample_index), ("rollout", trajectory.rollout_n))
        if value is not None
    ]
    status = str(trajectory.status or ("" if trajectory.has_root else "no root: it is running, or its process died"))
    first = [
        Text(printable(GAP.join(tags) or trajectory.name), style="bold"),
        Text(printable(status), style=STATUS_STYLES.get(status, "yellow")),
        Text("" if trajectory.reward is None else f"reward {trajectory.reward:.4g}", style="bold"),
    ]
    yield Text(GAP).join(part for part in first if part)
    began = datetime.fromtimestamp(trajectory.start_time / 1e9, timezone.utc)
    yield Text(f"trace {trajectory.trace_id}{GAP}{began:%Y-%m-%d %H:%M:%S} UTC", style="dim")
    tokens = _arrow(attributes.get(semconv.INPUT_TOKENS), attributes.get(semconv.OUTPUT_TOKENS))
    facts = [
        duration(trajectory.end_time - trajectory.start_time),
        counted(attributes[semconv.TURNS], "turn") if isinstance(attributes.get(semconv.TURNS), int) else "",
        f"{tokens} tokens" if tokens else "",
        counted(trajectory.span_count, "span"),
        size(trajectory.size_bytes),
    ]
    yield Text(printable(GAP.join(filter(None, facts))), style="dim")
    names = [trajectory.project_name, trajectory.experiment_name, trajectory.run_id]
    yield Text(printable(" / ".join(str(name) for name in names if name)), style="dim")


def draw_spans(spans: Sequence[ReadableSpan], *, width: int, is_whole: bool = False) -> Iterator[Text]:
    """Yield the lines of the tree.

    Args:
        spans: The spans of one trace.
        width: The screen's columns; previews of payloads are cut to fit.
        is_whole: Draw whole payloads, attributes and events below each span.
    """
    rows = list(walk_tree(spans, place_of))
    names = {id(span): shorten(printable(span.name), max(8, width // 3)) for span, _, _ in rows}
    name_width = max((cell_len(guide) + cell_len(names[id(span)]) for span, guide, _ in rows), default=0)
    start = min((span.start_time or 0 for span in spans), default=0)
    end = max((span.end_time or 0 for span in spans), default=0)
    bar_width = 20 if width >= WIDE else 8
    room = width - name_width - KIND_WIDTH - DURATION_WIDTH - bar_width - 4 * len(GAP)
    for span, guide, below in rows:
        attributes = span.attributes or {}
        kind = printable(str(attributes.get(semconv.SPAN_KIND, "")))
        has_failed = span.status.status_code is StatusCode.ERROR
        style = "red" if has_failed else KIND_STYLES.get(kind, "")
        name = names[id(span)]
        yield Text.assemble(
            (guide, "dim"),
            (name, "bold red" if has_failed else "bold"),
            " " * (name_width - cell_len(guide) - cell_len(name)),
            (GAP + kind.ljust(KIND_WIDTH), style),
            GAP + duration((span.end_time or 0) - (span.start_time or 0)).rjust(DURATION_WIDTH),
            (GAP + time_bar(span, start, end, bar_width), style),
            GAP,
            _about(span, room),
        )
        events = [event for event in span.events if is_whole or event.name != semconv.EXCEPTION_EVENT]
        if is_whole:
            yield from _details(span, attributes, below)
        for event in events:
            yield from _event(event, span, below, is_whole=is_whole)


def _about(span: ReadableSpan, room: int) -> Text:
    """Return a span's error, or its tokens, input and output, in one line."""
    attributes = span.attributes or {}
    if span.status.status_code is StatusCode.ERROR:
        return Text(printable(shorten(error_of(span), max(room, MAX_PAYLOAD_CHARACTERS))), style="red")
    tokens = _arrow(attributes.get(semconv.USAGE_INPUT_TOKENS), attributes.get(semconv.USAGE_OUTPUT_TOKENS))
    tokens = f"{tokens} tok{GAP}" if tokens else ""
    room = max(12, room - len(tokens))
    texts = [str(attributes[key]) for key, _ in PAYLOADS if key in attributes]
    if attributes.get(semconv.SPAN_KIND) == "LLM":
        texts = list(map(_response, texts))
    previews = [_preview(text, min(room, MAX_PAYLOAD_CHARACTERS)) for text in texts]
    if sum(map(len, previews)) + len(ARROW) > room and len(texts) > 1:
        # Most inputs begin with the same prompt; the output says more.
        previews = (
            previews[-1:]
            if room < MIN_ROOM_FOR_BOTH
            else [_preview(text, min(MAX_PAYLOAD_CHARACTERS, (room - len(ARROW)) // 2)) for text in texts]
        )
    return Text.assemble((tokens, "dim"), Text(ARROW, style="dim").join(map(Text, previews)))


def _arrow(before: Any, after: Any) -> str:
    """Return two counts with an arrow between them; empty if neither is known."""
    if before is None and after is None:
        return ""
    return "→".join("?" if each is None else str(each) for each in (before, after))


def _preview(payload: str, limit: int) -> str:
    if "[" in payload:
        payload = NUMBERS.sub(_without_numbers, payload[:MAX_PREVIEWED_CHARACTERS])
    return printable(shorten(payload, limit))


def _response(payload: str) -> str:
    """Return the decoded tokens of a generation if its payload has them, else the payload."""
    if f'"{RESPONSE}"' not in payload:
        return payload
    try:
        response = json.loads(payload)[RESPONSE]
        return response if isinstance(response, str) else payload
    except (ValueError, TypeError, KeyError, RecursionError):
        return payload


def _without_numbers(found: re.Match[str]) -> str:
    return "" if found.group().startswith('"') else f"[{found.group().count(',') + 1} numbers]"


def _event(event: Event, span: ReadableSpan, below: str, *, is_whole: bool) -> Iterator[Text]:
    after = duration(event.timestamp - (span.start_time or 0))
    line = Text.assemble((below, "dim"), ("• ", "dim"), (printable(event.name), "italic"), (f"{GAP}+{after}", "dim"))
    attributes = event.attributes or {}
    if is_whole:
        yield line
        yield from _values(attributes, f"{below}  ")
    else:
        line.append(GAP + printable(shorten(" ".join(f"{key}={value!s}" for key, value in attributes.items()), 200)))
        yield line


def _details(span: ReadableSpan, attributes: Mapping[str, Any], below: str) -> Iterator[Text]:
    """Yield a span's attributes, payloads, status and links."""
    yield from _values({key: value for key, value in attributes.items() if key not in NOT_SAID_AGAIN}, below)
    yield from _values({label: _indented(attributes[key]) for key, label in PAYLOADS if key in attributes}, below)
    if span.status.description:
        yield from _values({"status": span.status.description}, below)
    for link in span.links:
        yield from _values({"link": f"{link.context.trace_id:032x} {link.context.span_id:016x}"}, below)


def _values(values: Mapping[str, Any], below: str) -> Iterator[Text]:
    for key, value in values.items():
        lines = str(value).splitlines() or [""]
        label = Text.assemble((below, "dim"), (printable(key), "cyan"))
        if len(lines) == 1:
            yield label.append(GAP + printable(lines[0]))
            continue
        yield label
        for line in lines:
            yield Text.assemble((below, "dim"), GAP, printable(line))


def _indented(payload: Any) -> str:
    """Indent a payload if it is JSON."""
    try:
        return _json_lines(json.loads(payload), "")
    except (TypeError, ValueError, RecursionError):
        return str(payload)


def _json_lines(value: Any, indent: str) -> str:
    """Write a value as JSON with a line for each item; numbers and short values stay on one line."""
    compact = json.dumps(value, ensure_ascii=False)
    are_numbers = isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
    if not isinstance(value, (dict, list)) or are_numbers or len(compact) <= MAX_JSON_LINE:
        return compact
    deeper = indent + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key, ensure_ascii=False)}: {_json_lines(item, deeper)}" for key, item in value.items()]
    else:
        items = [_json_lines(item, deeper) for item in value]
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n{deeper}" + f",\n{deeper}".join(items) + f"\n{indent}{end}"
