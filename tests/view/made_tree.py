"""Rollouts of one prompt that are trees: parallel and nested sub-agents, a fork, a compaction."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from tests.trace_folder.recordings import make_span, trace_id_of, write_folder

__all__ = ["NO_TREE", "READS_OTHERWISE", "WITH_COMPACTION", "WITH_SUBAGENTS", "write_trees"]

NO_TREE, WITH_SUBAGENTS, WITH_COMPACTION, READS_OTHERWISE = range(4)
"""Rollouts: of one conversation; with sub-agents; also with a fork and a compaction; with a sub-agent that errs."""

Chat = list[tuple[str, str]]
_SYSTEM: Final = ("system", "You lead researchers.")
_QUESTION: Final = ("user", "Which bridge is longer?")


def write_trees(folder: Path) -> None:
    """Write a step of one prompt with the four rollouts."""
    write_folder(folder, *(_trajectory(rollout) for rollout in range(4)))


class _Made:
    """The spans of a rollout."""

    def __init__(self, rollout: int) -> None:
        self._trace_id = trace_id_of(1, 0, rollout)
        self._tags = dict(zip(semconv.TAGS, (1, 0, rollout, False, "exp"), strict=True))
        self.spans: list[ReadableSpan] = []

    def add(self, name: str, kind: str, seconds: tuple[float, float], parent: int | None = 1, **more: Any) -> int:
        """Add a span and return its number; attributes are given by their keys in `semconv`."""
        number = 1 if parent is None else len(self.spans) + 2
        attributes = {semconv.SPAN_KIND: kind, **self._tags, **{getattr(semconv, key): more[key] for key in more}}
        self.spans.append(
            make_span(name, number, self._trace_id, parent=parent, attributes=attributes, seconds=seconds)
        )
        return number

    def turn(self, chat: Chat, answer: str, start: float, parent: int = 1) -> Chat:
        """Add a generation of a second, and return the chat with its answer."""
        self.add(
            "generate",
            "LLM",
            (start, start + 1),
            parent,
            INPUT_MESSAGES=_json(chat),
            OUTPUT_MESSAGES=_json([("assistant", answer)]),
            USAGE_INPUT_TOKENS=100 * len(chat),
            USAGE_OUTPUT_TOKENS=10,
        )
        return [*chat, ("assistant", answer)]


def _trajectory(rollout: int) -> list[ReadableSpan]:
    made = _Made(rollout)
    main = made.turn([_SYSTEM, _QUESTION], "I ask two researchers.", 0)
    if rollout == WITH_COMPACTION:
        made.turn([_SYSTEM, _QUESTION], "I know it without asking.", 1)
    end = 12.0
    if rollout != NO_TREE:
        _research(made, "the Humber Bridge has 2,220 m" if rollout == READS_OTHERWISE else "the first has 2,220 m")
    main = [*main, ("user", "The researchers say: 2,220 m and 1,410 m.")]
    main = made.turn(main, "The first one is longer.", end)
    if rollout == WITH_COMPACTION:
        compacted = [_SYSTEM, ("user", "Summary: the first bridge has 2,220 m, the second 1,410 m. Answer.")]
        made.turn(compacted, "The first one, by 810 m.", end + 2)
    made.add(
        "rollout",
        "AGENT",
        (0, end + 4),
        None,
        REWARD=float(rollout != NO_TREE),
        STATUS="completed",
        INPUT_VALUE=orjson.dumps([{"role": role, "content": text} for role, text in (_SYSTEM, _QUESTION)]).decode(),
        OUTPUT_VALUE=orjson.dumps({"role": "assistant", "content": "The first one."}).decode(),
    )
    return made.spans


def _research(made: _Made, found: str) -> None:
    """Two researchers at a time, of which the second has a reader and isn't trained on."""
    first = made.add("researcher", "AGENT", (2, 8), AGENT_NAME="researcher")
    second = made.add("researcher", "AGENT", (2.5, 11), AGENT_NAME="researcher", TRAINED=False)
    system = ("system", "You look things up.")
    one = made.turn([system, ("user", "How long is the first bridge?")], "I open the encyclopedia.", 3, first)
    other = made.turn([system, ("user", "How long is the second bridge?")], "I let somebody read.", 3.5, second)
    reader = made.add("reader", "AGENT", (5, 7), second, AGENT_NAME="reader")
    made.turn([("system", "You read."), ("user", "Page 7, please.")], "It says 1,410 m.", 5.5, reader)
    made.turn([*one, ("user", "Go on.")], f"It says that {found}.", 5.2, first)
    made.turn([*other, ("user", "The reader says 1,410 m.")], "The second has 1,410 m.", 9, second)


def _json(chat: Chat) -> str:
    return orjson.dumps([{"role": role, "parts": [{"type": "text", "content": text}]} for role, text in chat]).decode()
