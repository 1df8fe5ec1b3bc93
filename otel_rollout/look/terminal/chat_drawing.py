"""Draw a trajectory's conversation: who said what, the tools that were called, their results, the reward."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode
from rich.cells import cell_len
from rich.text import Text

from otel_rollout import semconv
from otel_rollout.facts.conversations import Conversation, Conversations, conversations_of
from otel_rollout.facts.reward_parts import REWARD, reward_parts_of
from otel_rollout.facts.trace_tree import STATUS_STYLES, error_of
from otel_rollout.facts.utterances import Utterance, utterances_of
from otel_rollout.look.terminal.screen import wrapped
from otel_rollout.messages import Message
from otel_rollout.text.plain_text import duration, printable

if TYPE_CHECKING:
    from otel_rollout.folder.reader import RecordedTrajectory


ROLE_STYLES: Final = {"system": "blue", "user": "magenta", "assistant": "cyan", "tool": "yellow"}
MARGIN: Final = "  "
CALL: Final = "→ "


def draw_chat(trajectory: RecordedTrajectory, *, width: int | None) -> Iterator[Text]:
    """Yield the lines of a trajectory's conversation and of its outcome.

    Args:
        trajectory: The trajectory.
        width: The screen's columns, to which words are wrapped; None for programs.
    """
    spans = trajectory.spans
    conversations = conversations_of(spans)
    utterances = utterances_of(spans, conversations)
    first = utterances[0].conversation if utterances else 1
    current, begun = first, {first}
    if conversations.all and conversations.all[first - 1].kind == "user":
        yield _change(first, conversations, is_begun=False)
        yield Text()
    for utterance in utterances:
        number = utterance.conversation
        margin = _indent(number, conversations)
        if number != current:
            yield _change(number, conversations, is_begun=number in begun)
            yield Text()
            current = number
            begun.add(number)
        yield _heading(utterance, margin)
        style = "red" if utterance.is_error else ""
        yield from draw_message(utterance.message, width=width, style=style, margin=margin + MARGIN)
        yield Text()
    if not utterances:
        yield Text("nothing was said: no span has messages, a prompt or an answer", style="dim")
        yield Text()
    yield from _outcome(trajectory, spans, width)


def _indent(number: int, found: Conversations) -> str:
    """Return the margin of a conversation: its parent's; a sub-agent has one more."""
    depth, at = 0, found.all[number - 1] if found.all else None
    while at is not None and at.parent is not None:
        depth += at.kind in ("subagent", "user")
        at = found.all[at.parent - 1]
    return MARGIN * depth


def _change(number: int, found: Conversations, *, is_begun: bool) -> Text:
    """Return the line between the messages of two conversations."""
    it = found.all[number - 1]
    words = f"back to {_named(it)}" if is_begun else _begin(it, found)
    facts = "" if is_begun or it.trained is None else ", trained" if it.trained else ", not trained"
    guess = ", inferred" if it.inferred and not is_begun else ""
    return Text.assemble((_indent(number, found), ""), (f"── {words}{guess}{facts}", "bold dim"))


def _begin(it: Conversation, found: Conversations) -> str:
    parent = _named(found.all[(it.parent or 1) - 1])
    turn = "" if it.parent_turn is None else f" after turn {it.parent_turn}"
    if it.kind == "compacted":
        messages = "a message" if it.replaced == 1 else f"{it.replaced or 0} messages"
        return f"{it.id} compacted: replaces {messages} of {parent}"
    if it.kind == "fork":
        shared = "a message" if it.shared == 1 else f"{it.shared} messages"
        return f"{it.id} fork of {parent}{turn}: shares {shared}"
    if it.kind == "main":
        return _named(it)
    name = f" {printable(it.name)}" if it.name else ""
    kind = "simulated user" if it.kind == "user" else "sub-agent"
    return f"{it.id} {kind}{name}, of {parent}{turn}"


def _named(it: Conversation) -> str:
    """Return the number of a conversation with its name."""
    name = it.name if it.kind in ("subagent", "user") else "main" if it.kind == "main" else ""
    return f"{it.id} {printable(name)}".rstrip()


def draw_message(message: Message, *, width: int | None, style: str = "", margin: str = MARGIN) -> Iterator[Text]:
    """Yield the lines of a message's reasoning, text and tool calls.

    Args:
        message: The message.
        width: The screen's columns; None for programs.
        style: The style of the text.
        margin: Text before each line.
    """
    if message.reasoning:
        yield Text(f"{margin}reasoning:", style="dim")
    for line in wrapped(message.reasoning, width, margin + MARGIN):
        yield Text(f"{margin}{MARGIN}{line}", style="dim")
    if message.role == "tool":
        yield from _calls(message, width, margin)
    for line in wrapped(message.text, width, margin):
        yield Text.assemble((margin, "dim"), (line, style))
    if message.role != "tool":
        yield from _calls(message, width, margin)


def _calls(message: Message, width: int | None, margin: str) -> Iterator[Text]:
    for call in message.calls:
        for position, line in enumerate(wrapped(str(call), width, margin + MARGIN)):
            yield Text.assemble((margin, "dim"), (MARGIN if position else CALL, "yellow"), (line, "yellow"))


def _heading(utterance: Utterance, margin: str) -> Text:
    message, span = utterance.message, utterance.span
    role = printable(message.role)
    name = f" {printable(message.name)}" if message.name else ""
    style = "red" if utterance.is_error else ROLE_STYLES.get(message.role, "")
    return Text.assemble(
        margin, (f"{role}{name}", f"bold {style}".strip()), (f"  {_facts(span)}" if span else "", "dim")
    )


def _facts(span: ReadableSpan) -> str:
    tokens = (span.attributes or {}).get(semconv.USAGE_OUTPUT_TOKENS)
    took = duration((span.end_time or 0) - (span.start_time or 0))
    return took if tokens is None else f"{tokens} tokens  {took}"


def _outcome(trajectory: RecordedTrajectory, spans: Sequence[ReadableSpan], width: int | None) -> Iterator[Text]:
    """Yield the reward with its parts, and the status if it is not `completed`."""
    status = str(trajectory.status or "")
    root = next((span for span in spans if span.parent is None), None)
    if root is None:
        yield Text("no root: it is running, or its process died", style="yellow")
    elif status not in ("", "completed"):
        is_failed = root.status.status_code is StatusCode.ERROR
        lines = list(wrapped(f"{status}: {error_of(root)}" if is_failed else status, width, ""))
        yield from (Text(line, style=STATUS_STYLES.get(status, "yellow")) for line in lines)
    reward = "no reward" if trajectory.reward is None else f"reward {trajectory.reward:.4g}"
    yield Text(reward, style="bold")
    yield from _parts(spans, width)


def _parts(spans: Iterable[ReadableSpan], width: int | None) -> Iterator[Text]:
    """Yield the parts of the reward."""
    parts = {part.name: part for span in spans for part in reward_parts_of(span) if part.name != REWARD}
    longest = max((cell_len(printable(name)) for name in parts), default=0)
    for name, part in parts.items():
        value = f"{part.value:.4g}" if type(part.value) is float else str(part.value)
        label = printable(name)
        label = MARGIN + label + " " * (longest - cell_len(label)) + MARGIN
        lines = wrapped(MARGIN.join(filter(None, [value, part.explanation])), width, " " * cell_len(label))
        for position, line in enumerate(lines):
            yield Text.assemble((label if not position else " " * cell_len(label), "dim"), line)
