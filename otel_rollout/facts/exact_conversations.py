"""The conversations of a trajectory, if scopes, marks and the texts of prompts distinguish them.

Inside one scope a prompt continues the conversation whose last prompt its text begins with; a mark begins a compacted
one. A scope inside the main one's is a sub-agent's. Everything else only the messages can show, to who looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from otel_rollout.facts.compact_spans import Scope, Turn
from otel_rollout.facts.prompt_texts import NO_TEXT

Kind: TypeAlias = Literal["main", "subagent", "fork", "compacted", "user"]
MAX_CONVERSATIONS: Final = 128
"""The turns of further conversations are in the last one."""


@dataclass(slots=True, eq=False)
class Found:
    """A conversation.

    Args:
        kind: Its kind.
        origin: A turn of the conversation that it comes from; None of the main one.
        turns: Its turns.
        parent: The conversation that it comes from; None of the main one.
        parent_turn: The parent's last turn before it; of a fork, the last one whose answer it shares.
        shared: The messages at its beginning that both have.
        replaced: The messages that a compacted one leaves out; None for others.
        messages: The messages of its history, with the last answer.
        others: The number of conversations beyond the bound whose turns it has, by kind.
    """

    kind: Kind
    origin: Turn | None = None
    turns: list[Turn] = field(default_factory=list)
    parent: Found | None = None
    parent_turn: Turn | None = None
    shared: int = 0
    replaced: int | None = None
    messages: int = 0
    others: Counter[Kind] = field(default_factory=Counter)

    @property
    def start(self) -> int:
        """The number of its first turn."""
        return self.turns[0].number

    @property
    def is_trained(self) -> bool:
        """True if one of its turns is marked as training data."""
        return any(turn.is_trained for turn in self.turns)

    @property
    def above(self) -> list[Turn]:
        """The parent's turns before it."""
        return [] if self.parent is None else [turn for turn in self.parent.turns if turn.number < self.start]


def exact_conversations(turns: Sequence[Turn]) -> list[Found] | None:
    """Return the conversations, in the order of their first turns; None if only their messages tell them apart.

    Args:
        turns: The turns, by start.
    """
    found: list[Found] = []
    open_: dict[Scope, Found] = {}
    """The conversation that goes on inside each scope."""
    for turn in turns:
        known, scope = open_.get(turn.scope), turn.scope
        if known is None:
            if scope[: len(turns[0].scope)] != turns[0].scope:
                return None
            begun, before = _begun(turn, open_), turn.prompt.text.before
            if before and (begun.parent is None or before[-1] != begun.parent.turns[-1].prompt.text.own):
                # It may continue the conversation of another agent.
                return None
        elif turn.prompt.is_compacted:
            begun = Found("compacted", known.turns[-1], [turn], known)
        elif _continues(turn, known.turns[-1]):
            known.turns.append(turn)
            continue
        else:
            return None
        open_[scope] = begun
        found.append(begun)
        if len(found) > MAX_CONVERSATIONS:
            return None
    for each in found:
        each.parent_turn = each.above[-1] if each.parent else None
    return found


def _begun(turn: Turn, open_: Mapping[Scope, Found]) -> Found:
    """Return the conversation that a turn begins in its scope."""
    scopes = (turn.scope[:depth] for depth in range(len(turn.scope) - 1, -1, -1))
    # The main one's at least.
    parent = next((open_[scope] for scope in scopes if scope in open_), None)
    return Found("subagent" if open_ else "main", None, [turn], parent)


def _continues(turn: Turn, last: Turn) -> bool:
    prompt, before = turn.prompt, last.prompt
    text = prompt.text
    if not text.is_clear or prompt.conversation != before.conversation:
        return False
    if text.own == NO_TEXT:
        return prompt.request == before.request or not (prompt.request and before.request)
    # A generation that failed is tried again.
    is_repeated = text.own == before.text.own and (turn.is_failed or last.is_failed)
    return is_repeated or before.text.own in text.before
