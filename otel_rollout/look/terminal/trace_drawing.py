"""Draw a trajectory as a tree of its spans: kind, duration, position in time, input and output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import StatusCode
from rich.cells import cell_len
from rich.text import Text

from otel_rollout import semconv
from otel_rollout.facts.span_messages import input_messages, output_messages, previews_of
from otel_rollout.facts.trace_tree import KIND_STYLES, STATUS_STYLES, error_of, place_of, time_bar, walk_tree
from otel_rollout.look.terminal.chat_drawing import ROLE_STYLES, draw_message
from otel_rollout.look.terminal.screen import wrapped
from otel_rollout.messages import Message, json_of, messages_in, parse_json
from otel_rollout.text.plain_text import counted, duration, printable, shorten, size, step_name

if TYPE_CHECKING:
    from otel_rollout.folder.reader import RecordedTrajectory


KIND_WIDTH: Final = max(map(len, KIND_STYLES))
DURATION_WIDTH: Final = 9
GAP: Final = "  "
WIDE: Final = 110
"""The columns from which on bars are long."""
MAX_PAYLOAD_CHARACTERS: Final = 80
ARROW: Final = " → "
MIN_ROOM: Final = 20
"""The cells for words below which columns are left out."""
MIN_ROOM_FOR_BOTH: Final = 50
"""The columns below which an input is drawn only if input and output are short."""
NOT_SAID_AGAIN: Final = {
    *semconv.TAGS,
    semconv.INPUT_VALUE,
    semconv.OUTPUT_VALUE,
    semconv.INPUT_MESSAGES,
    semconv.OUTPUT_MESSAGES,
    semconv.INPUT_MIME_TYPE,
    semconv.OUTPUT_MIME_TYPE,
    semconv.METADATA,
    semconv.SPAN_KIND,
}
"""Attributes that the heading or the span's line has, or that nobody needs."""
MAX_JSON_LINE: Final = 60
FOLDED_FROM: Final = 16
"""Lists with so many numbers are drawn as their length: they are token ids, log probabilities, pixels."""
MAX_DEPTH: Final = 64


def draw_heading(trajectory: RecordedTrajectory) -> Iterator[Text]:
    """Yield the lines with a trajectory's tags, outcome and totals.

    Raises:
        UnreadableTraceError: The index doesn't have its summary, and the file is damaged or gone.
    """
    summary = trajectory.summary
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
        Text("" if summary.reward is None else f"reward {summary.reward:.4g}", style="bold"),
    ]
    yield Text(GAP).join(part for part in first if part)
    began = datetime.fromtimestamp(trajectory.start_time / 1e9, timezone.utc)
    yield Text(f"trace {trajectory.trace_id}{GAP}{began:%Y-%m-%d %H:%M:%S} UTC", style="dim")
    tokens = _arrow(summary.input_tokens, summary.output_tokens)
    facts = [
        duration(summary.end_time - summary.start_time),
        "" if summary.turns is None else counted(summary.turns, "turn"),
        f"{tokens} tokens" if tokens else "",
        counted(summary.spans, "span"),
        size(trajectory.size_bytes),
    ]
    yield Text(printable(GAP.join(filter(None, facts))), style="dim")
    project = trajectory.project_name or trajectory.summary.service_name
    names = [project, trajectory.experiment_name, trajectory.run_id]
    yield Text(printable(" / ".join(str(name) for name in names if name)), style="dim")


def draw_spans(
    spans: Sequence[ReadableSpan], *, width: int, is_whole: bool = False, wrap_at: int | None = None
) -> Iterator[Text]:
    """Yield the lines of the tree.

    Args:
        spans: The spans of one trace.
        width: The screen's columns; previews of payloads are cut to fit.
        is_whole: Draw whole payloads, attributes and events below each span.
        wrap_at: The columns that whole payloads are wrapped to; None for programs.
    """
    rows = list(walk_tree(spans, place_of))
    names = {id(span): shorten(printable(span.name), max(8, width // 3)) for span, _, _ in rows}
    name_width = max((cell_len(guide) + cell_len(names[id(span)]) for span, guide, _ in rows), default=0)
    start = min((span.start_time or 0 for span in spans), default=0)
    # A late span has no room of its own.
    roots = [span for span in spans if span.parent is None]
    end = max((span.end_time or 0 for span in roots or spans), default=0)
    layout = _layout(width, name_width)
    for span, guide, below in rows:
        attributes = span.attributes or {}
        kind = printable(str(attributes.get(semconv.SPAN_KIND, "")))
        has_failed = span.status.status_code is StatusCode.ERROR
        style = "red" if has_failed else KIND_STYLES.get(kind, "")
        name = names[id(span)]
        bar = GAP + time_bar(span, start, end, layout.bar_width) if layout.bar_width else ""
        yield Text.assemble(
            (guide, "dim"),
            (name, "bold red" if has_failed else "bold"),
            " " * (name_width - cell_len(guide) - cell_len(name)),
            (GAP + kind.ljust(KIND_WIDTH) if layout.has_kind else "", style),
            GAP + duration((span.end_time or 0) - (span.start_time or 0)).rjust(DURATION_WIDTH),
            (bar, style),
            GAP,
            _about(span, layout),
        )
        events = [event for event in span.events if is_whole or event.name != semconv.EXCEPTION_EVENT]
        if is_whole:
            yield from _details(span, attributes, below, wrap_at)
        for event in events:
            yield from _event(event, span, below, is_whole=is_whole, width=wrap_at)


class _Layout(NamedTuple):
    """The columns of a span's line that the screen has room for.

    Args:
        has_kind: The span's kind is drawn.
        bar_width: The cells of the bar; 0 if there is none.
        has_tokens: A generation's tokens are drawn.
        room: The cells left for words.
    """

    has_kind: bool
    bar_width: int
    has_tokens: bool
    room: int


def _layout(width: int, name_width: int) -> _Layout:
    """Return the fullest layout that leaves room for some words: numbers are left out, never cut."""
    is_wide = width >= WIDE
    room = width - name_width - DURATION_WIDTH - 2 * len(GAP)
    kind, bar = KIND_WIDTH + len(GAP), 20 if is_wide else 8
    if room - kind - bar - len(GAP) >= MIN_ROOM:
        return _Layout(True, bar, is_wide, room - kind - bar - len(GAP))
    if room - kind >= MIN_ROOM:
        return _Layout(True, 0, is_wide, room - kind)
    return _Layout(False, 0, False, room)


def _about(span: ReadableSpan, layout: _Layout) -> Text:
    """Return a span's error, or its tokens, input and output, in one line."""
    attributes = span.attributes or {}
    room = layout.room
    if span.status.status_code is StatusCode.ERROR:
        return Text(printable(shorten(error_of(span), max(room, MAX_PAYLOAD_CHARACTERS))), style="red")
    tokens = _arrow(attributes.get(semconv.USAGE_INPUT_TOKENS), attributes.get(semconv.USAGE_OUTPUT_TOKENS))
    tokens = f"{tokens} tok{GAP}" if tokens and layout.has_tokens else ""
    room = max(12, room - len(tokens))
    given, said = previews_of(span, MAX_PAYLOAD_CHARACTERS)
    if not given or not said:
        return Text.assemble((tokens, "dim"), shorten(given or said, room))
    if cell_len(given) + cell_len(said) + len(ARROW) > room:
        if room < MIN_ROOM_FOR_BOTH:
            # Most inputs begin with the same prompt; the output differs.
            return Text.assemble((tokens, "dim"), shorten(said, room))
        # The output gets what it needs, up to three fifths.
        share = min(cell_len(said), (room - len(ARROW)) * 3 // 5)
        given, said = shorten(given, room - len(ARROW) - share), shorten(said, share)
    return Text.assemble((tokens, "dim"), (given, "dim"), (ARROW, "dim"), said)


def _arrow(before: Any, after: Any) -> str:
    """Return two counts with an arrow between them; empty if neither is known."""
    if before is None and after is None:
        return ""
    return "→".join("?" if each is None else str(each) for each in (before, after))


def _event(event: Event, span: ReadableSpan, below: str, *, is_whole: bool, width: int | None) -> Iterator[Text]:
    after = duration(event.timestamp - (span.start_time or 0))
    line = Text.assemble((below, "dim"), ("• ", "dim"), (printable(event.name), "italic"), (f"{GAP}+{after}", "dim"))
    attributes = event.attributes or {}
    if is_whole:
        yield line
        for key, value in attributes.items():
            yield from draw_named(key, value, width=width, margin=f"{below}  ")
    else:
        line.append(GAP + printable(shorten(" ".join(f"{key}={value!s}" for key, value in attributes.items()), 200)))
        yield line


def _details(span: ReadableSpan, attributes: Mapping[str, Any], below: str, width: int | None) -> Iterator[Text]:
    """Yield a span's payloads, attributes, status and links."""
    sides = (
        ("input", semconv.INPUT_VALUE, semconv.INPUT_MESSAGES, input_messages),
        ("output", semconv.OUTPUT_VALUE, semconv.OUTPUT_MESSAGES, output_messages),
    )
    for label, key, messages_key, read_messages in sides:
        if messages_key in attributes and (messages := read_messages(span)):
            yield Text.assemble((below, "dim"), (f"{label} messages", "cyan"))
            yield from draw_messages(messages, width=width, margin=below + GAP)
        if key in attributes:
            yield from draw_payload(label, attributes[key], width=width, margin=below)
    for key, value in attributes.items():
        if key not in NOT_SAID_AGAIN:
            yield from draw_named(key, value, width=width, margin=below)
    if span.status.description:
        yield from draw_named("status", span.status.description, width=width, margin=below)
    for link in span.links:
        target = f"{link.context.trace_id:032x} {link.context.span_id:016x}"
        yield from draw_named("link", target, width=width, margin=below)


def draw_payload(name: str, payload: Any, *, width: int | None, margin: str) -> Iterator[Text]:
    """Yield the lines of a payload: JSON in the order text, other values, numbers; else its text.

    Args:
        name: Its label.
        payload: The attribute's value.
        width: The screen's columns; None for programs.
        margin: The guide lines before each line.
    """
    parsed = parse_json(payload)
    yield from draw_named(name, str(payload) if parsed is None else parsed, width=width, margin=margin)


def draw_named(name: str, value: Any, *, width: int | None, margin: str, depth: int = 0) -> Iterator[Text]:
    """Yield the lines of a value after or below its name; see `draw_payload` for the arguments."""
    label = Text.assemble((margin, "dim"), (printable(name), "cyan"))
    short = _on_one_line(value, depth)
    if short is not None and (width is None or len(margin) + len(name) + len(GAP) + len(short) <= width):
        yield label.append(GAP + short) if short else label
        return
    yield label
    deeper = margin + GAP
    if messages := messages_in(value):
        yield from draw_messages(messages, width=width, margin=deeper)
    elif isinstance(value, Mapping):
        for key, item in sorted(value.items(), key=lambda pair: _rank(pair[1])):
            yield from draw_named(str(key), item, width=width, margin=deeper, depth=depth + 1)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from draw_named(str(position), item, width=width, margin=deeper, depth=depth + 1)
    else:
        text = value if isinstance(value, str) else short or ""
        yield from (Text.assemble((deeper, "dim"), line) for line in wrapped(text, width, deeper))


def draw_messages(messages: list[Message], *, width: int | None, margin: str) -> Iterator[Text]:
    """Yield the lines of messages, each below its role."""
    for message in messages:
        name = f" {printable(message.name)}" if message.name else ""
        style = ROLE_STYLES.get(message.role, "")
        yield Text.assemble((margin, "dim"), (f"{printable(message.role)}{name}", style))
        yield from draw_message(message, width=width, margin=margin + GAP)


def _on_one_line(value: Any, depth: int) -> str | None:
    """Return a value that needs no lines of its own; None if it does."""
    if isinstance(value, str):
        return None if len(value.splitlines()) > 1 else printable(value.strip("\n"))
    if _are_numbers(value):
        return f"[{len(value):,} numbers]"
    if not isinstance(value, (Mapping, list, tuple)):
        return printable(json_of(value))
    compact = json_of(value) if depth < MAX_DEPTH else "…"
    return printable(compact) if len(compact) <= MAX_JSON_LINE or depth >= MAX_DEPTH else None


def _are_numbers(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) >= FOLDED_FROM
        and all(isinstance(item, (int, float)) for item in value)
    )


def _rank(value: Any) -> int:
    """Return the place of a field: texts first, numbers last."""
    if isinstance(value, str):
        return 0
    return 2 if _are_numbers(value) else 1
