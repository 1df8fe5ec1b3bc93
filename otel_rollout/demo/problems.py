"""The demo's word problems, the tool calls that solve them, and the lookup tool's table: `problems.json`, typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple


class ToolCall(NamedTuple):
    """A call of a tool: an expression for the `calculator`, an entry's name for the `lookup`."""

    tool: str
    argument: str


class Turn(NamedTuple):
    """A turn of a solution: a thought, and the calls that are made side by side."""

    thought: str
    calls: tuple[ToolCall, ...]


class Problem(NamedTuple):
    """A word problem.

    Args:
        question: The problem as the policy reads it.
        solution: The turns of a right solution; the last one calls the calculator and gets the answer.
        answer: The right answer.
    """

    question: str
    solution: tuple[Turn, ...]
    answer: float


def problem_at(index: int) -> Problem:
    """Return the problem of a sample; past the last one they begin again."""
    return PROBLEMS[index % len(PROBLEMS)]


def _read_turn(turn: dict[str, Any]) -> Turn:
    tool = "lookup" if "lookup" in turn else "calculator"
    thought = turn.get("thought") or f"I need the {' and the '.join(turn[tool])}."
    return Turn(thought, tuple(ToolCall(tool, argument) for argument in turn[tool]))


_DATA: Final = json.loads(Path(__file__).with_name("problems.json").read_text("utf-8"))
LOOKUP_TABLE: Final[dict[str, str]] = _DATA["lookup_table"]
PROBLEMS: Final = tuple(
    Problem(each["question"], tuple(map(_read_turn, each["solution"])), each["answer"]) for each in _DATA["problems"]
)
"""A sample's index in it is the `sample_index` of its trajectories."""
