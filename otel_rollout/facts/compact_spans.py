"""The spans of a trajectory as rows: all that its facts and conversations need of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from otel_rollout import semconv

if TYPE_CHECKING:
    from otel_rollout.facts.prompt_texts import PromptText
    from otel_rollout.facts.span_record import SpanRecord

KINDS: Final = ("", "AGENT", "CHAIN", "EMBEDDING", "EVALUATOR", "LLM", "TOOL")
"""A row has the position of its kind here."""
AGENT, EVALUATOR, LLM, TOOL = 1, 4, 5, 6
ERROR: Final = 2
_SCOPES: Final = frozenset(map(KINDS.index, semconv.SCOPES))
_MAX_DEPTH: Final = 256
"""Deeper nesting is not looked through: spans of other programs may even be nested in a circle."""
Scope: TypeAlias = tuple[int, ...]
"""The spans of agents, tools and evaluators around a span, from the outermost; without the root."""


class Mark(NamedTuple):
    """The marks on a generation, or on an agent around some.

    Args:
        role: `policy` or `user`; empty without the mark.
        is_trained: True if it is training data, has token ids, or versions of weights: the policy has.
    """

    role: str
    is_trained: bool


NO_MARK: Final = Mark("", False)


class Prompt(NamedTuple):
    """A generation's prompt.

    Args:
        text: Its text.
        is_compacted: True if it is marked as the first of a compacted conversation.
        conversation: `gen_ai.conversation.id`; empty without one.
        request: verl's id of the conversation; empty without one.
    """

    text: PromptText
    is_compacted: bool
    conversation: str
    request: str


class SpanRow(NamedTuple):
    """A span.

    Args:
        start: Its start, in nanoseconds since 1970.
        end: Its end, not before its start.
        span_id: Its id.
        parent: Its parent's id; 0 without one.
        name: Its name; of a tool call, the tool's.
        kind: Its kind, by its position in `KINDS`.
        status: 0 unset, 1 ok, 2 error.
        error: The exception's class that it ended with; empty without one.
        asked: A generation's input tokens; None is unknown.
        answered: Its output tokens.
        finish_reason: The reason for which it stopped; empty without one.
        record: The facts that its payload shows.
        mark: The marks on a generation or an agent.
        prompt: A generation's prompt; None of other spans.
    """

    start: int
    end: int
    span_id: int
    parent: int
    name: str
    kind: int
    status: int
    error: str
    asked: int | None
    answered: int | None
    finish_reason: str
    record: SpanRecord
    mark: Mark
    prompt: Prompt | None


class Turn(NamedTuple):
    """A generation that is in no other one.

    Args:
        number: Its number among the trajectory's turns, from 0.
        row: Its span.
        prompt: Its prompt.
        scope: Its scope.
        marks: The marks on it, and on the agents around it, from the innermost.
    """

    number: int
    row: SpanRow
    prompt: Prompt
    scope: Scope
    marks: tuple[Mark, ...]

    @property
    def is_failed(self) -> bool:
        """True if it ended with an error."""
        return self.row.status == ERROR

    @property
    def is_trained(self) -> bool:
        """True if it is marked as training data."""
        return any(mark.is_trained for mark in self.marks)

    @property
    def role(self) -> str:
        """The role that the innermost mark gives it; empty without one."""
        return next((mark.role for mark in self.marks if mark.role), "")


class Around(dict[int, tuple[SpanRow, ...]]):
    """The ancestors of the spans of a trace, the innermost first, by the id of the parent; most spans share one.

    Args:
        rows: The rows of a trajectory.
    """

    def __init__(self, rows: Iterable[SpanRow]) -> None:
        super().__init__()
        self.known = {row.span_id: row for row in rows}

    def __missing__(self, parent: int) -> tuple[SpanRow, ...]:
        rows: list[SpanRow] = []
        around = self.known.get(parent)
        while around is not None and len(rows) < _MAX_DEPTH:
            rows.append(around)
            around = self.known.get(around.parent)
        return self.setdefault(parent, tuple(rows))

    def scope_of(self, row: SpanRow) -> Scope:
        """Return the scope of a span."""
        around = dict.fromkeys(each.span_id for each in self[row.parent] if each.kind in _SCOPES and each.parent)
        return tuple(reversed(around))

    def is_outermost(self, row: SpanRow) -> bool:
        """Return True if a span is in none of its kind."""
        return row.kind not in [each.kind for each in self[row.parent]]


def turns_of(rows: Sequence[SpanRow], around: Around) -> list[Turn]:
    """Return the turns among the rows of a trajectory, in their order."""
    turns: list[Turn] = []
    for row in rows:
        if row.prompt is not None and around.is_outermost(row):
            scope = around.scope_of(row)
            marks = (row.mark, *(around.known[span_id].mark for span_id in reversed(scope)))
            turns.append(Turn(len(turns), row, row.prompt, scope, marks))
    return turns
