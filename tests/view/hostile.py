"""A folder whose every field holds what would harm a page that takes text for markup; and one that is very large."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from opentelemetry.sdk.trace import Event, ReadableSpan

from otel_rollout import semconv
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.recordings import SECOND, START, make_span, trace_id_of, write_folder

__all__ = ["HARM", "LONG", "write_broken", "write_hostile", "write_large"]

HARM = (
    "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
    "<a href='javascript:window.harmed = 1'>link</a>"
    "\u202eesrever\u202c \u0000\u001b[31m\u2066 ${window.harmed = 1} {{window.harmed}} </textarea></style> "
)
"""Harms a page that takes it for markup, a template, a direction or a terminal's codes."""
LONG = 10_000_000


def write_hostile(folder: Path) -> None:
    """Write a group of two rollouts in step 1; each field that a page shows holds `HARM`."""
    write_folder(folder, *(_hostile(rollout) for rollout in range(2)))


def write_large(folder: Path, turns: int) -> None:
    """Write a rollout with a text of 10 MB, and one with so many turns, to step 1.

    Args:
        folder: The trace folder.
        turns: The number of turns of the second.
    """
    writer = FolderWriter(folder)
    writer.write(_trajectory(0, [_generation(2, 0, 1, "x" * LONG)]))
    # After the first turn only what is new is recorded, as of a conversation that goes on.
    new = {semconv.INPUT_MESSAGES: _messages("tool", {"type": "text", "content": "Go on."})}
    spoken = [
        _generation(2 + turn, turn, turn + 1, f"turn number {turn}", **(new if turn else {})) for turn in range(turns)
    ]
    writer.write(_trajectory(1, spoken))
    writer.close()


def write_broken(folder: Path) -> None:
    """Write a rollout to step 1 whose second prompt replaces the fourth token of what was said before."""
    first = {"prompt_ids": [10, 11, 12], "response_ids": [20, 21]}
    second = {"prompt_ids": [10, 11, 12, 99, 21, 30], "response_ids": [40]}
    spans = []
    for number, ids in enumerate((first, second)):
        values = {semconv.OUTPUT_VALUE: orjson.dumps({"response_text": "Yes.", **ids}).decode()}
        spans.append(
            _generation(
                2 + number, number, number + 1, "", **values, **({semconv.PREFIX_BROKEN: True} if number else {})
            )
        )
    write_folder(folder, _trajectory(0, spans))


def _messages(role: str, *parts: dict[str, Any]) -> str:
    return orjson.dumps([{"role": role, "parts": list(parts)}]).decode()


def _generation(number: int, start: float, end: float, text: str, *, rollout: int = 0, **parts: Any) -> ReadableSpan:
    attributes = {
        semconv.SPAN_KIND: "LLM",
        semconv.INPUT_MESSAGES: _messages("user", {"type": "text", "content": "Go on."}),
        **({semconv.OUTPUT_MESSAGES: _messages("assistant", {"type": "text", "content": text})} if text else {}),
        semconv.USAGE_OUTPUT_TOKENS: 5,
        **parts,
    }
    return make_span("generate", number, trace_id_of(1, 0, rollout), attributes=attributes, seconds=(start, end))


def _trajectory(rollout: int, spans: list[ReadableSpan], **root: Any) -> list[ReadableSpan]:
    trace_id = trace_id_of(1, 0, rollout)
    tags = dict(zip(semconv.TAGS, (1, 0, rollout, False, "exp"), strict=True))
    moved = [
        make_span(
            span.name,
            span.context.span_id,
            trace_id,
            attributes={**tags, **(span.attributes or {})},
            error=span.status.description,
            events=tuple(span.events),
            seconds=_seconds(span),
        )
        for span in spans
    ]
    end = max(seconds for span in spans for seconds in _seconds(span))
    attributes = {semconv.SPAN_KIND: "AGENT", semconv.STATUS: "completed", semconv.REWARD: 1.0, **tags, **root}
    return [*moved, make_span("rollout", 1, trace_id, parent=None, attributes=attributes, seconds=(0, end))]


def _seconds(span: ReadableSpan) -> tuple[float, float]:
    return ((span.start_time or 0) - START) / SECOND, ((span.end_time or 0) - START) / SECOND


def _hostile(rollout: int) -> list[ReadableSpan]:
    trace_id = trace_id_of(1, 0, rollout)
    arguments = {HARM: HARM, "n": rollout}
    call = {"type": "tool_call", "id": "call", "name": HARM, "arguments": arguments}
    said = {"type": "text", "content": f"<think>{HARM}</think>{HARM} {rollout}"}
    generation = _generation(2, 0, 1, "")
    attributes = {
        **(generation.attributes or {}),
        semconv.INPUT_MESSAGES: orjson.dumps(
            [
                {"role": "system", "parts": [{"type": "text", "content": HARM}]},
                {"role": HARM, "parts": [{"type": "text", "content": HARM}]},
            ]
        ).decode(),
        semconv.OUTPUT_MESSAGES: _messages("assistant", said, call),
        HARM: HARM,
        semconv.PREFIX_BROKEN: True,
    }
    tool = make_span(
        HARM,
        3,
        trace_id,
        attributes={semconv.SPAN_KIND: "TOOL", semconv.TOOL_NAME: HARM, semconv.INPUT_VALUE: HARM},
        error=HARM,
        seconds=(1, 2),
        events=(Event("exception", {"exception.stacktrace": HARM, "exception.type": HARM}),),
    )
    return _trajectory(
        rollout,
        [make_span(HARM, 2, trace_id, attributes=attributes, seconds=(0, 1)), tool],
        **{
            semconv.STATUS: HARM,
            semconv.FINISH_REASON: HARM,
            "rollout.fate": HARM,
            "rollout.advantage": 0.5,
            semconv.REWARD_PARTS: orjson.dumps({HARM: 0.5}).decode(),
            semconv.INPUT_VALUE: HARM,
            semconv.OUTPUT_VALUE: HARM,
        },
    )
