"""The conversations of a trajectory: which turns belong together, and what each conversation comes from.

A turn continues the conversation whose history its prompt extends, also if the history was edited in place, or has lost
its oldest messages. Another prompt begins a conversation: a fork, if it shares the beginning of a history with what the
model generated; a compacted one, if it replaces a history that is not returned to; else a sub-agent's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias

from otel_rollout.facts.histories import ASSISTANT, PIECE, ROOT, TOOL, Histories, History

Kind: TypeAlias = Literal["main", "subagent", "fork", "compacted"]
Scope: TypeAlias = tuple[int, ...]
MAX_CONVERSATIONS: Final = 128
"""The turns of further conversations are in the last one."""
_RECENT: Final = 4
_CANDIDATES: Final = 16
_SHRUNK: Final = 0.75
"""A history that has less than this part of its messages left was replaced."""
_LONG: Final = 4
"""A shorter history is not compacted without a sign of it."""
_NO_HISTORY: Final = History(0, 0, ROOT, (), None, (), 0, (), False, "", "")


class Turn(NamedTuple):
    """A generation that is in no other one.

    Args:
        span_id: Its span.
        start: Its start, in any unit.
        end: Its end.
        failed: True if it ended with an error.
        scope: The spans of agents, tools and evaluators around it, from the outermost; without the root.
        history: Its messages; None if they are unknown.
    """

    span_id: int
    start: int
    end: int
    failed: bool
    scope: Scope
    history: History | None


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
        messages: The messages of its history, with the last answer.
        others: The number of conversations beyond the bound whose turns it has, by kind.
    """

    kind: Kind
    origin: int | None
    shared: int = 0
    replaced: int | None = None
    turns: list[int] = field(default_factory=list)
    parent: int | None = None
    messages: int = 0
    others: Counter[Kind] = field(default_factory=Counter)


class _Link(NamedTuple):
    """The earlier turn whose history a prompt extends, and the number of messages that both have."""

    turn: int
    shared: int


def find_conversations(turns: Sequence[Turn], histories: Histories) -> list[Found]:
    """Return the conversations of a trajectory, in the order of their first turns.

    Args:
        turns: Its turns, by start.
        histories: Their messages, to which nodes may be added.
    """
    if not turns:
        return []
    if _is_one_chain(turns, histories):
        # Most are.
        return [Found("main", None, turns=list(range(len(turns))), messages=_messages(turns[-1].history, histories))]
    return _Finder(turns, histories).find()


def _is_one_chain(turns: Sequence[Turn], tree: Histories) -> bool:
    """Return True if each turn's prompt is the history of the turn before it, and more."""
    first, before = turns[0], ROOT
    for turn in turns:
        history = turn.history
        if history is None or turn.scope != first.scope or not history.asked or history.is_compacted:
            return False
        if first.history is None or history.system != first.history.system or history.conversation:
            return False
        node = history.asked
        # Children come after their parents.
        while node > before:
            node = tree.parents[node]
        if node != before or (before == history.asked):
            return False
        before = history.asked
        if len(history.answers) == 1:
            before = tree.child(before, history.answers[0])
    return True


def _messages(history: History | None, tree: Histories) -> int:
    if history is None:
        return 0
    return len(tree.path(history.asked)) + len(history.answers[:1]) + (history.system != 0)


class _Finder:
    """Finds the conversations of a trajectory's turns."""

    def __init__(self, turns: Sequence[Turn], tree: Histories) -> None:
        self._turns = turns
        self._tree = tree
        self._histories = [turn.history or _NO_HISTORY for turn in turns]
        self._asked = [history.asked for history in self._histories]
        self._answers: list[list[int]] = []
        self._links: list[_Link | None] = []
        self._leaders = list(range(len(turns)))
        """The first turn with the same prompt after the same history."""
        self._lengths = {ROOT: 0}
        self._spoken = {ROOT: False}
        self._link_all()
        self._next: list[list[int]] = [[] for _ in turns]
        for later, link in enumerate(self._links):
            if link is not None and self._leaders[later] == later:
                self._next[link.turn].append(later)
        self._samples: dict[int, list[int]] = {}
        for at, leader in enumerate(self._leaders):
            self._samples.setdefault(leader, []).append(at)
        self._chosen = {leader: self._choose(samples) for leader, samples in self._samples.items()}
        """The answer to each prompt that its conversation goes on with, by the first turn with the prompt."""
        self._chain_ends = self._find_chain_ends()
        self._last_uses = self._find_last_uses()
        least = min(len(turn.scope) for turn in turns)
        self._main = next(at for at, turn in enumerate(turns) if len(turn.scope) == least)
        self._found: list[Found] = []
        self._of_turn: list[int] = []
        self._through: dict[int, int] = {}
        """By node, the last turn whose history has it."""

    def find(self) -> list[Found]:
        """Return the conversations."""
        for at in range(len(self._turns)):
            self._place(at)
            self._mark(at)
        order = sorted(range(len(self._found)), key=lambda position: self._found[position].turns[0])
        numbers = {position: number for number, position in enumerate(order)}
        main = self._of_turn[self._main]
        for position, each in enumerate(self._found):
            if position == main:
                each.kind, each.origin, each.shared, each.replaced = "main", None, 0, None
            else:
                each.parent = main if each.origin is None else self._of_turn[each.origin]
        for position, each in enumerate(self._found):
            if each.parent is not None and self._is_in_circle(position):
                each.parent = main
        for each in self._found:
            if each.parent is not None:
                each.shared += self._has_system_of(each.turns[0], self._found[each.parent].turns[0])
                each.parent = numbers[each.parent]
            each.messages = self._length(self._tip(each.turns[-1])) + (self._histories[each.turns[-1]].system != 0)
        return [self._found[position] for position in order]

    def _is_in_circle(self, position: int) -> bool:
        at: int | None = position
        for _ in self._found:
            at = None if at is None else self._found[at].parent
            if at is None:
                return False
        return True

    def _has_system_of(self, one: int, other: int) -> bool:
        return self._histories[one].system == self._histories[other].system != 0

    # --- what extends what

    def _link_all(self) -> None:
        asked_at: dict[int, list[int]] = {}
        answered_at: dict[int, list[int]] = {}
        for at, history in enumerate(self._histories):
            link = None
            if history.added is not None:
                link = self._link_added(at, history.added)
            else:
                node = self._asked[at]
                same = [other for other in asked_at.get(node, ()) if node and self._is_same(other, at)]
                if same:
                    self._leaders[at] = leader = self._leaders[same[-1]]
                    link = self._links[leader]
                else:
                    link = self._link_by_messages(at, asked_at, answered_at)
            self._links.append(link)
            node = self._asked[at]
            self._answers.append([self._tree.child(node, code) for code in history.answers])
            if node:
                asked_at.setdefault(node, []).append(at)
                for answer in self._answers[at]:
                    answered_at.setdefault(answer, []).append(at)

    def _link_added(self, at: int, added: Sequence[int]) -> _Link | None:
        """Link a turn that is recorded without the messages of earlier turns, and put its messages after theirs."""
        request, scope = self._histories[at].request, self._turns[at].scope
        before = next(
            (
                other
                for other in range(at - 1, -1, -1)
                if self._histories[other].request == request and (request or self._turns[other].scope == scope)
            ),
            None,
        )
        node = ROOT if before is None else self._tip(before)
        shared = self._length(node)
        for code in added:
            node = self._tree.child(node, code)
        self._asked[at] = node
        return None if before is None else _Link(before, shared)

    def _link_by_messages(
        self, at: int, asked_at: dict[int, list[int]], answered_at: dict[int, list[int]]
    ) -> _Link | None:
        node = asked = self._asked[at]
        while node != ROOT:
            for known in (answered_at, asked_at):
                if known is asked_at and node == asked:
                    continue
                others = [other for other in known.get(node, ()) if self._is_one(other, at, node)]
                if others:
                    return _Link(max(others, key=lambda other: self._nearness(other, at)), self._length(node))
            node = self._tree.parents[node]
        return None

    def _is_same(self, other: int, at: int) -> bool:
        """Return True if two turns with one prompt are answers to it, and not agents with the same task."""
        if not self._has_one_system(other, at) or self._is_apart(other, at):
            return False
        return self._turns[other].scope == self._turns[at].scope or self._is_spoken(self._asked[at])

    def _is_one(self, other: int, at: int, node: int) -> bool:
        """Return True if a turn may continue the history of an earlier one, with the same messages until a node."""
        return not self._is_apart(other, at) and (self._has_one_system(other, at) or self._is_spoken(node))

    def _is_apart(self, other: int, at: int) -> bool:
        one, two = self._histories[other].conversation, self._histories[at].conversation
        return one != two and bool(one and two)

    def _has_one_system(self, other: int, at: int) -> bool:
        """Return True if the system prompts are the same, or begin the same, as with the date in them."""
        one, two = self._histories[other], self._histories[at]
        return one.system == two.system or (one.head == two.head and bool(one.system and two.system))

    def _nearness(self, other: int, at: int) -> tuple[bool, bool, int]:
        scope = self._turns[other].scope
        is_around = scope == self._turns[at].scope[: len(scope)]
        return is_around, self._histories[other].system == self._histories[at].system, other

    def _tip(self, at: int) -> int:
        """Return the last node of a turn's history: its answer, or its prompt's last message."""
        return (self._answers[at] or [self._asked[at]])[0]

    def _length(self, node: int) -> int:
        """Return the number of messages until a node."""
        missing = []
        while node not in self._lengths:
            missing.append(node)
            node = self._tree.parents[node]
        for each in reversed(missing):
            self._lengths[each] = self._lengths[self._tree.parents[each]] + 1
        return self._lengths[missing[0] if missing else node]

    def _is_spoken(self, node: int) -> bool:
        """Return True if the model said one of the messages until a node."""
        missing = []
        while node not in self._spoken:
            missing.append(node)
            node = self._tree.parents[node]
        for each in reversed(missing):
            is_answer = self._tree.codes[each] & 7 == ASSISTANT
            self._spoken[each] = is_answer or self._spoken[self._tree.parents[each]]
        return self._spoken[missing[0] if missing else node]

    def _choose(self, samples: Sequence[int]) -> int:
        """Return the first of several turns with one prompt that is continued; else the first that has an answer."""
        continued = [at for at in samples if any(later > at for later in self._next[at])]
        answered = [at for at in samples if self._is_answered(at)]
        return (continued or answered or samples)[0]

    def _find_chain_ends(self) -> list[int]:
        """Return, for each turn, the last of the turns that extend it."""
        ends = list(range(len(self._turns)))
        for at in reversed(ends):
            for later in self._next[at]:
                ends[at] = max(ends[at], ends[later])
        return ends

    def _find_last_uses(self) -> dict[int, int]:
        """Return, by a message's code, the last turn whose prompt has it."""
        uses: dict[int, int] = {}
        seen: set[int] = set()
        for at in range(len(self._turns) - 1, -1, -1):
            node = self._asked[at]
            while node != ROOT and node not in seen:
                seen.add(node)
                uses.setdefault(self._tree.codes[node], at)
                node = self._tree.parents[node]
        return uses

    # --- the conversation of a turn

    def _place(self, at: int) -> None:
        history, link = self._histories[at], self._links[at]
        leader = self._leaders[at]
        chosen = self._chosen[leader]
        if not self._asked[at] and not history.answers and not history.is_compacted:
            self._place_unknown(at)
        elif history.is_compacted and self._found and (before := self._before(at)) is not None:
            self._begin_compacted(at, before)
        elif at != chosen and self._is_answered(at) and (leader < at or link is not None):
            # The conversation goes on with another answer to the same prompt.
            self._begin(at, "fork", chosen if chosen < at or link is None else link.turn, self._length(self._asked[at]))
        elif leader < at and link is None:
            self._go_on(at, leader)
        elif link is not None and self._is_best(at, link.turn):
            self._add(at, self._of_turn[link.turn])
        elif self._is_edited(at):
            pass
        elif link is not None:
            is_deeper = len(self._turns[at].scope) > len(self._turns[link.turn].scope)
            is_other = not self._has_one_system(link.turn, at)
            self._begin(at, "subagent" if is_deeper or is_other else "fork", link.turn, link.shared)
        else:
            self._begin_other(at)

    def _go_on(self, at: int, leader: int) -> None:
        """Go on with the conversation that began with the same prompt; an answer that is left is a fork of it."""
        conversation = self._of_turn[leader]
        if at == self._chosen[leader] and self._is_answered(leader) and self._found[conversation].turns == [leader]:
            self._found[conversation].turns = []
            self._begin(leader, "fork", at, self._length(self._asked[leader]))
            self._of_turn[leader] = self._of_turn.pop()
        self._add(at, conversation)

    def _is_answered(self, at: int) -> bool:
        return bool(self._answers[at]) and not self._turns[at].failed

    def _mark(self, at: int) -> None:
        for last in (self._tip(at), self._asked[at]):
            node = last
            while node != ROOT and self._through.get(node) != at:
                known = self._through.get(node)
                self._through[node] = at
                if known is not None and self._of_turn[known] == self._of_turn[at]:
                    break
                node = self._tree.parents[node]

    def _add(self, at: int, conversation: int) -> None:
        self._found[conversation].turns.append(at)
        self._of_turn.append(conversation)

    def _begin(self, at: int, kind: Kind, origin: int | None, shared: int = 0, replaced: int | None = None) -> None:
        if len(self._found) >= MAX_CONVERSATIONS:
            self._found[-1].others[kind] += 1
            self._add(at, len(self._found) - 1)
            return
        self._found.append(Found(kind, origin, shared, replaced))
        self._add(at, len(self._found) - 1)

    def _begin_compacted(self, at: int, before: int) -> None:
        """Begin a conversation in place of an earlier turn's."""
        old, new = self._codes(before), self._tree.path(self._asked[at])
        codes = [self._tree.codes[node] for node in new]
        shared = _common(old, codes)
        kept = sum((Counter(old[shared:]) & Counter(codes[shared:])).values())
        self._begin(at, "compacted", before, shared, max(0, len(old) - shared - kept))

    def _is_best(self, at: int, before: int) -> bool:
        """Return True if, of the turns that extend an earlier one, this one goes on with its conversation."""
        rivals = self._next[before]
        if len(rivals) == 1:
            return True
        after = self._length(self._tip(before))
        said = {self._tree.codes[node] >> 3 for each in rivals for node in self._answers[self._chain_ends[each]]}

        def rank(later: int) -> tuple[bool, bool, bool, bool, int]:
            new = [self._tree.codes[node] for node in self._tree.path(self._asked[later])[after:]]
            is_inside = len(self._turns[later].scope) > len(self._turns[before].scope)
            system = self._histories[before].system
            # If two answer one call, the caller has the other's last words.
            is_caller = any(code >> 3 in said and code & 7 != ASSISTANT for code in new)
            is_result = bool(new) and new[0] & 7 == TOOL
            return not is_inside, self._histories[later].system == system, is_caller, is_result, -later

        return max(rivals, key=rank) == self._leaders[at]

    def _codes(self, at: int) -> list[int]:
        return [self._tree.codes[node] for node in self._tree.path(self._tip(at))]

    def _latest(self, pool: Iterable[int] | None = None) -> list[int]:
        """Return the last turn of each conversation until now, the latest first."""
        return sorted(
            (self._found[each].turns[-1] for each in range(len(self._found)) if pool is None or each in pool),
            reverse=True,
        )

    def _before(self, at: int) -> int | None:
        """Return the last turn inside the same spans."""
        scope = self._turns[at].scope
        link = self._links[at]
        return next(
            (other for other in range(at - 1, -1, -1) if self._turns[other].scope == scope),
            None if link is None else link.turn,
        )

    def _place_unknown(self, at: int) -> None:
        """Place a turn without messages: after a turn of its request, else after the last one in the same spans."""
        request = self._histories[at].request
        for other in range(at - 1, -1, -1):
            if request and self._histories[other].request == request:
                self._add(at, self._of_turn[other])
                return
        before = self._before(at)
        if before is not None and not self._is_apart(before, at):
            self._add(at, self._of_turn[before])
        else:
            self._begin(at, "subagent", self._caller(at))

    def _is_edited(self, at: int) -> bool:
        """Place a turn whose history is an earlier one that was edited, shortened or compacted; False if it is none."""
        scope = self._turns[at].scope
        codes = [self._tree.codes[node] for node in self._tree.path(self._asked[at])]
        for before in self._latest()[:_CANDIDATES]:
            if len(scope) > len(self._turns[before].scope) or self._is_apart(before, at):
                continue
            if self._is_longer_text(at, before):
                self._add(at, self._of_turn[before])
                return True
            old = self._codes(before)
            shared = _common(old, codes)
            counts, rest = Counter(old), codes[shared:]
            recent = {code for code in old[max(shared, len(old) - _RECENT) :] if counts[code] == 1}
            first = next((place for place, code in enumerate(rest) if code in recent), None)
            if first is None:
                continue
            known = set(old)
            first = next(place for place, code in enumerate(rest) if code in known)
            is_inserted = first > 0 and len(codes) < len(old)
            if is_inserted or len(codes) < _SHRUNK * len(old):
                self._begin_compacted(at, before)
            else:
                self._add(at, self._of_turn[before])
            return True
        return False

    def _is_longer_text(self, at: int, before: int) -> bool:
        """Return True if a prompt of one message is an earlier one with more at its end."""
        old, new = self._histories[before], self._histories[at]
        pieces = min(old.length // PIECE, len(old.texts))
        return (
            pieces > 0
            and new.length > old.length
            and len(new.texts) >= pieces
            and old.texts[pieces - 1] == new.texts[pieces - 1]
            and self._has_one_system(before, at)
        )

    # --- a prompt that extends no history

    def _begin_other(self, at: int) -> None:
        """Begin a conversation with a prompt that extends no history."""
        scope = self._turns[at].scope
        if not self._found:
            self._begin(at, "subagent", None)
            return
        pool = {self._of_turn[other] for other in range(at) if self._turns[other].scope == scope} or self._roaming(at)
        node = self._asked[at]
        while node not in self._through and node != ROOT:
            node = self._tree.parents[node]
        owner = self._through.get(node)
        shared = self._length(node)
        if owner is not None and self._of_turn[owner] in pool and self._has_one_system(owner, at):
            if self._is_spoken(node) or shared == self._length(self._asked[at]):
                self._begin(at, "fork", owner, shared)
                return
        else:
            shared = 0
        same = next((each for each in self._latest(pool) if self._has_one_system(each, at)), None)
        if same is None or self._is_called(at) or self._is_apart(same, at):
            self._begin(at, "subagent", self._caller(at))
        elif self._is_returned_to(same, at):
            if shared:
                self._begin(at, "fork", same, shared)
            else:
                self._begin(at, "subagent", self._caller(at))
        elif self._is_replacement(at, same, shared):
            self._begin_compacted(at, same)
        else:
            self._begin(at, "subagent", self._caller(at))

    def _roaming(self, at: int) -> set[int]:
        """Return the conversations that go on in one span after the other, each as deep as the turn's."""
        scope = self._turns[at].scope
        found = set()
        for position, each in enumerate(self._found):
            scopes = {self._turns[turn].scope for turn in each.turns}
            if len(scopes) > 1 and all(len(one) == len(scope) and one[:-1] == scope[:-1] for one in scopes):
                found.add(position)
        return found

    def _is_returned_to(self, before: int, at: int) -> bool:
        """Return True if a conversation goes on after a turn that is not its own, or still runs when that starts."""
        if self._turns[before].end > self._turns[at].start or any(later > at for later in self._next[before]):
            return True
        codes = [self._tree.codes[node] for node in self._answers[before]]
        return any(code > 7 and self._last_uses.get(code, -1) > at for code in codes)

    def _is_replacement(self, at: int, before: int, shared: int) -> bool:
        """Return True if a prompt replaces a history, and is no agent's task."""
        conversation = self._found[self._of_turn[before]]
        if conversation.kind == "subagent" and before != at - 1:
            # Its caller went on meanwhile, or another agent.
            return False
        path = self._tree.path(self._asked[at])[shared:]
        if any(node in self._tree.summaries for node in path[:3]):
            return True
        is_long = self._length(self._tip(before)) >= _LONG
        if conversation.kind == "subagent" and not self._turns[at].scope:
            return is_long and bool(self._histories[before].calls)
        return is_long

    def _is_called(self, at: int) -> bool:
        return self._calling_turn(at) is not None

    def _calling_turn(self, at: int) -> int | None:
        """Return the earlier turn that called a tool with the task of a turn's prompt."""
        path = self._tree.path(self._asked[at])
        tasks = {self._tree.codes[node] >> 3 for node in path[:1]}
        return next(
            (other for other in range(at - 1, -1, -1) if tasks.intersection(self._histories[other].calls)), None
        )

    def _caller(self, at: int) -> int | None:
        """Return a turn of the conversation that a sub-agent's work is done for; None for the main one."""
        calling = self._calling_turn(at)
        if calling is not None:
            return calling
        scope, end = self._turns[at].scope, self._chain_ends[at]
        around = [other for other in range(at) if self._is_around(self._turns[other].scope, scope)]
        deepest = max((len(self._turns[other].scope) for other in around), default=0)
        pool = {self._of_turn[other] for other in around if len(self._turns[other].scope) == deepest}
        latest = self._latest(pool)
        for before in latest:
            later = [each for each in self._next[before] if each > at]
            uses = [self._last_uses.get(self._tree.codes[node], -1) for node in self._answers[before]]
            if (later and min(later) > end) or (not later and max(uses, default=-1) > end):
                return before
        return next((each for each in latest if self._found[self._of_turn[each]].kind != "subagent"), None)

    def _is_around(self, outer: Scope, inner: Scope) -> bool:
        return outer == inner[: len(outer)]


def _common(one: Sequence[int], two: Sequence[int]) -> int:
    at = 0
    while at < len(one) and at < len(two) and one[at] == two[at]:
        at += 1
    return at
