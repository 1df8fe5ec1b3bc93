"""The conversations of a trajectory, if scopes, marks and the texts of prompts distinguish them.

Inside one scope a prompt continues the conversation whose last prompt its text begins with; a mark begins a compacted
one. A scope inside the main one's is a sub-agent's. Everything else only the messages can show, to who looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from otel_rollout.facts.prompt_texts import NO_TEXT
from otel_rollout.facts.prompts import Prompt

Kind: TypeAlias = Literal["main", "subagent", "fork", "compacted", "user"]
Scope: TypeAlias = tuple[int, ...]
MAX_CONVERSATIONS: Final = 128
"""The turns of further conversations are in the last one."""


class Turn(NamedTuple):
    """A generation that is in no other one.

    Args:
        span_id: Its span.
        start: Its start, in any unit.
        end: Its end.
        failed: True if it ended with an error.
        scope: The spans of agents, tools and evaluators around it, from the outermost; without the root.
        prompt: Its prompt.
    """

    span_id: int
    start: int
    end: int
    failed: bool
    scope: Scope
    prompt: Prompt


@dataclass(slots=True)
class Found:
    """A conversation, with turns by their positions.

    Args:
        kind: Its kind.
        origin: A turn of the conversation that it comes from; None of the main one.
        shared: The messages at its beginning that both have.
        replaced: The messages that a compacted one leaves out; None for others.
        turns: Its turns.
        parent: The position of the conversation that it comes from; None of the main one.
        parent_turn: The parent's last turn before it; of a fork, the last one whose answer it shares.
        messages: The messages of its history, with the last answer.
        others: The number of conversations beyond the bound whose turns it has, by kind.
    """

    kind: Kind
    origin: int | None
    shared: int = 0
    replaced: int | None = None
    turns: list[int] = field(default_factory=list)
    parent: int | None = None
    parent_turn: int | None = None
    messages: int = 0
    others: Counter[Kind] = field(default_factory=Counter)


def exact_conversations(turns: Sequence[Turn]) -> list[Found] | None:
    """Return the conversations, in the order of their first turns; None if only their messages tell them apart.

    Args:
        turns: The turns, by start.
    """
    found: list[Found] = []
    open_: dict[Scope, int] = {}
    """The conversation that goes on inside each scope."""
    for at, turn in enumerate(turns):
        known = open_.get(turn.scope)
        if known is None:
            if turn.scope[: len(turns[0].scope)] != turns[0].scope:
                return None
            begun, text = _begun(turn.scope, open_, at), turn.prompt.text
            caller = NO_TEXT if begun.parent is None else turns[found[begun.parent].turns[-1]].prompt.text.own
            if text.before and text.before[-1] != caller:
                # It may continue the conversation of another agent.
                return None
            open_[turn.scope] = len(found)
            found.append(begun)
        elif turn.prompt.is_compacted:
            last = found[known].turns[-1]
            open_[turn.scope] = len(found)
            found.append(Found("compacted", last, replaced=0, turns=[at], parent=known, parent_turn=last))
        elif _continues(turn, turns[found[known].turns[-1]]):
            found[known].turns.append(at)
        else:
            return None
        if len(found) > MAX_CONVERSATIONS:
            return None
    for each in found:
        if each.parent is not None:
            each.parent_turn = max(turn for turn in found[each.parent].turns if turn < each.turns[0])
    return found


def _begun(scope: Scope, open_: dict[Scope, int], at: int) -> Found:
    if not at:
        return Found("main", None, turns=[at])
    # The main one's at least.
    parent = next(open_[scope[:depth]] for depth in range(len(scope) - 1, -1, -1) if scope[:depth] in open_)
    return Found("subagent", None, turns=[at], parent=parent)


def _continues(turn: Turn, last: Turn) -> bool:
    prompt, before = turn.prompt, last.prompt
    text = prompt.text
    if not text.is_clear or prompt.conversation != before.conversation:
        return False
    if text.own == NO_TEXT:
        return prompt.request == before.request or not (prompt.request and before.request)
    # A generation that failed is tried again.
    is_repeated = text.own == before.text.own and (turn.failed or last.failed)
    return is_repeated or before.text.own in text.before
