"""Draw whole payloads and attributes: texts as they were written, long lists of numbers as their length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.text import Text

from otel_rollout.look.terminal.chat_drawing import ROLE_STYLES, draw_message
from otel_rollout.look.terminal.wrapping import wrapped
from otel_rollout.messages.chat_templates import json_of
from otel_rollout.messages.messages import Message, messages_of, parse_json
from otel_rollout.text.plain_text import printable

__all__ = ["draw_messages", "draw_named", "draw_payload"]

GAP: Final = "  "
MAX_JSON_LINE: Final = 60
FOLDED_FROM: Final = 16
"""Lists with so many numbers are drawn as their length: they are token ids, log probabilities, pixels."""
MAX_DEPTH: Final = 64


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
    """Yield the lines of a value behind or below its name; see `draw_payload` for the arguments."""
    label = Text.assemble((margin, "dim"), (printable(name), "cyan"))
    short = _on_one_line(value, depth)
    if short is not None and (width is None or len(margin) + len(name) + len(GAP) + len(short) <= width):
        yield label.append(GAP + short) if short else label
        return
    yield label
    deeper = margin + GAP
    if messages := messages_of(value):
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
