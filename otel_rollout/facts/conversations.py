"""The conversations of a trajectory, from its spans: what each comes from, its turns, tokens and training."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from otel_rollout import semconv
from otel_rollout.facts.builder import SummaryBuilder
from otel_rollout.facts.compact_spans import AGENT, TOOL, Around, Scope, turns_of
from otel_rollout.facts.exact_conversations import Found, Kind
from otel_rollout.facts.histories import Histories
from otel_rollout.facts.reward_parts import Dated
from otel_rollout.facts.sides import Sides, find_sides
from otel_rollout.facts.span_facts import is_late_annotation, kind_of
from otel_rollout.facts.span_values import count_of, text_of, times_of
from otel_rollout.facts.trace_tree import id_of
from otel_rollout.messages import Message
from otel_rollout.text.sanitize import INT64_MAX

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation of a trajectory; None is unknown, or nothing of that kind.

    Args:
        id: Its number in the trajectory, from 1, in the order of the first turns.
        kind: `main`, `subagent`, `fork`, `compacted`, or `user` for a simulated user's.
        parent: The conversation that called the sub-agent, that the fork parts from, that is compacted, or that the
            simulated user speaks to.
        parent_turn: The parent's last turn before it; of a fork, the last one whose answer it shares.
        joined_turn: The parent's first turn after a sub-agent's end; None for others.
        shared: The messages at its beginning that it shares with the parent.
        replaced: The messages of the parent that a compacted one leaves out; None for others.
        name: The sub-agent's or the simulated user's name; empty if it is unknown.
        turns: The numbers of its turns in the trajectory, from 1.
        input_tokens: The sum of its turns' input tokens.
        output_tokens: The sum of its turns' output tokens.
        messages: The messages of its history, with the last answer.
        trained: True if it is training data.
        start_time: The start of its first turn, in nanoseconds since 1970.
        end_time: The end of its last turn.
        conversation_id: `gen_ai.conversation.id`, if its turns have one; else empty.
        inferred: True if no scope, mark or prompt shows what it comes from: that is a guess from what messages repeat.
    """

    id: int
    kind: Kind
    parent: int | None
    parent_turn: int | None
    joined_turn: int | None
    shared: int
    replaced: int | None
    name: str
    turns: tuple[int, ...]
    input_tokens: int | None
    output_tokens: int | None
    messages: int
    trained: bool | None
    start_time: int
    end_time: int
    conversation_id: str
    inferred: bool


class Conversations(NamedTuple):
    """The conversations of a trajectory.

    Args:
        all: The conversations.
        turns: The trajectory's turns, by start: generations that are in no other one.
        tools: The tool calls, by start: those inside another one only if a sub-agent made them.
        of_span: By span id, the conversation of a turn, and of a span inside a sub-agent's.
        prompts: By span id, the messages of a turn's prompt.
        answers: By span id, the messages of a turn's answer.
        is_undecided: True if two sides speak, and nothing shows which one is the policy.
    """

    all: tuple[Conversation, ...]
    turns: tuple[ReadableSpan, ...]
    tools: Sequence[ReadableSpan]
    of_span: Mapping[int, int]
    prompts: Mapping[int, list[Message]]
    answers: Mapping[int, list[Message]]
    is_undecided: bool = False


def conversations_of(spans: Sequence[ReadableSpan]) -> Conversations:
    """Return the conversations of a trajectory."""
    ordered = sorted(spans, key=lambda span: (span.start_time or 0, id_of(span)))
    reading = _Reading(ordered)
    numbers = {turn.number: number for number, each in enumerate(reading.found, 1) for turn in each.turns}
    fate = _fate_of(ordered)
    all_ = tuple(reading.conversation(number, fate) for number in range(1, len(reading.found) + 1))
    places, read = reading.places(numbers), reading.histories
    tools, is_undecided = reading.tools(places), reading.sides.is_undecided
    return Conversations(all_, tuple(reading.turns), tools, places, read.prompts, read.answers, is_undecided)


class _Reading:
    """The spans of a trajectory, by start, and the conversations found in them."""

    def __init__(self, ordered: Sequence[ReadableSpan]) -> None:
        self._ordered = ordered
        self._known = {id_of(span): span for span in ordered}
        builder = SummaryBuilder(0, takes_records=False)
        # In the order in which the writer has them.
        builder.add(sorted(ordered, key=lambda span: span.end_time or 0))
        rows = builder.sorted_rows()
        self._around = Around(rows)
        self._given = turns_of(rows, self._around)
        self.turns = [self._known[turn.row.span_id] for turn in self._given]
        self.histories = Histories(self.turns)
        self.sides = find_sides(self._given, lambda: self.histories) or Sides([])
        self.found = self.sides.found
        self.histories.measure(self.found)

    def conversation(self, number: int, fate: str | None) -> Conversation:
        """Return a conversation.

        Args:
            number: Its number.
            fate: The trajectory's fate in training; None is unknown.
        """
        found = self.found[number - 1]
        last = found.turns[-1].number
        after = [] if found.parent is None else [turn for turn in found.parent.turns if turn.number > last]
        spans = [self.turns[turn.number] for turn in found.turns]
        conversation_id = (spans[0].attributes or {}).get(semconv.CONVERSATION_ID)
        return Conversation(
            number,
            found.kind,
            None if found.parent is None else self.found.index(found.parent) + 1,
            None if found.parent_turn is None else found.parent_turn.number + 1,
            after[0].number + 1 if after and found.kind == "subagent" else None,
            found.shared,
            found.replaced,
            self._name(found),
            tuple(turn.number + 1 for turn in found.turns),
            _sum_of(spans, semconv.USAGE_INPUT_TOKENS),
            _sum_of(spans, semconv.USAGE_OUTPUT_TOKENS),
            found.messages,
            self._is_trained(found, fate),
            found.turns[0].row.start,
            max(turn.row.end for turn in found.turns),
            conversation_id if type(conversation_id) is str else "",
            self.sides.is_inferred and not self._is_said(found),
        )

    def _is_said(self, found: Found) -> bool:
        """Return True if a mark or a scope shows what a conversation comes from."""
        first = found.turns[0]
        if found.parent is None or first.prompt.is_compacted:
            return True
        around = found.parent.turns[0].scope
        is_inside = first.scope != around == first.scope[: len(around)]
        return is_inside and found.kind in ("subagent", "user")

    def places(self, numbers: Mapping[int, int]) -> dict[int, int]:
        """Return the conversation of each span, by span id, except for those around all conversations."""
        by_scope: dict[Scope, list[tuple[int, int]]] = {}
        users = self.sides.users
        of_policy = {given.scope for given in self._given if given.row.span_id not in users}
        for turn, given in enumerate(self._given):
            # A simulated user calls no tools, unless it is an agent of its own.
            if given.row.span_id not in users or given.scope not in of_policy:
                by_scope.setdefault(given.scope, []).append((given.row.start, numbers[turn]))
        places = {given.row.span_id: numbers[turn] for turn, given in enumerate(self._given)}
        for span_id, row in self._around.known.items():
            if span_id in places or not row.parent:
                continue
            scope = self._around.scope_of(row)
            if row.kind == AGENT and (*scope, span_id) in by_scope:
                scope = (*scope, span_id)
            if turns := by_scope.get(scope):
                at = bisect_right(turns, (row.start, len(self.found))) - 1
                places[span_id] = turns[max(0, at)][1]
        return places

    def tools(self, places: Mapping[int, int]) -> list[ReadableSpan]:
        """Return the tool calls that no other one made, unless a sub-agent did."""
        tools = []
        for span_id, row in self._around.known.items():
            if row.kind == TOOL:
                outer = next((each.span_id for each in self._around[row.parent] if each.kind == TOOL), None)
                if outer is None or places.get(span_id) not in (None, places.get(outer)):
                    tools.append(self._known[span_id])
        return tools

    def _name(self, found: Found) -> str:
        if found.others:
            return "…"
        around = self._spans_around(found)
        agents = [span for span in around if kind_of(span.attributes or {}) == "AGENT"]
        for span in (*agents, *around):
            attributes = span.attributes or {}
            return (
                text_of(attributes.get(semconv.AGENT_NAME)) or text_of(attributes.get(semconv.TOOL_NAME)) or span.name
            )
        return self.turns[found.start].name if found.kind == "user" else ""

    def _spans_around(self, found: Found) -> list[ReadableSpan]:
        return [self._known[span_id] for span_id in reversed(found.turns[0].scope)]

    def _is_trained(self, found: Found, fate: str | None) -> bool | None:
        """Return True if a conversation is training data; None if that is unknown."""
        if fate not in (None, "trained"):
            return False
        is_user = found.kind == "user"
        around = self._spans_around(found)
        if not is_user and (found.kind != "subagent" or around):
            late = [span for span in self._ordered if is_late_annotation(span)]
            around += [*reversed(late), *(span for span in self._ordered if span.parent is None)]
        for span in around:
            if type(trained := (span.attributes or {}).get(semconv.TRAINED)) is bool:
                return trained
        if is_user:
            return False
        roots = [span.attributes or {} for span in self._ordered if span.parent is None]
        rows = next((count_of(root.get(semconv.NUM_OUTPUTS)) for root in roots), None) or 1
        own = [each for each in self.found if each.kind != "user"]
        return True if fate == "trained" and len(own) == rows else None


def _sum_of(spans: Sequence[ReadableSpan], key: str) -> int | None:
    counts = [count for span in spans if (count := count_of((span.attributes or {}).get(key))) is not None]
    return min(sum(counts), INT64_MAX) if counts else None


def _fate_of(spans: Sequence[ReadableSpan]) -> str | None:
    """Return a trajectory's fate in training, by the latest span with one; None if it is unknown."""
    known = [
        Dated(0 if span.parent is None else times_of(span)[1], fate)
        for span in spans
        if (fate := text_of((span.attributes or {}).get(semconv.FATE)))
    ]
    return str(max(known).value) if known else None
