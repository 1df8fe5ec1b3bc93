"""The conversations of a trajectory: which turns belong together, and what each conversation comes from.

A turn continues the conversation whose history its prompt extends, also if the history was edited in place, or has lost
its oldest messages. Another prompt begins a conversation: a fork, if it shares the beginning of a history with what the
model generated; a compacted one, if it replaces a history that is not returned to; else a sub-agent's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import eq
from typing import Final

from otel_rollout.facts.exact_conversations import MAX_CONVERSATIONS, Found, Kind, Scope, Turn
from otel_rollout.facts.histories import ASSISTANT, PIECE, ROOT, Histories
from otel_rollout.facts.turn_links import Link, TurnLinks

_RECENT: Final = 4
_CANDIDATES: Final = 16
_SHRUNK: Final = 0.75
"""A history that has less than this part of its messages left was replaced."""
_UNKNOWN: Final = 0.125
"""The part of another agent's prompt that may be unknown where it is continued."""
_OTHER_WORDS: Final = 16
"""System prompts that begin or end the same, and differ by so few characters in length, are versions of one."""
_LONG: Final = 4
"""A shorter history is not compacted without a sign of it."""


def find_conversations(turns: Sequence[Turn], histories: Histories) -> list[Found]:
    """Return the conversations of a trajectory, in the order of their first turns.

    Args:
        turns: Its turns, by start.
        histories: Their messages.
    """
    if not turns:
        return []
    return _Finder(turns, histories.copy()).find()


class _Finder:
    """Finds the conversations of a trajectory's turns."""

    def __init__(self, turns: Sequence[Turn], tree: Histories) -> None:
        self._links = TurnLinks(turns, tree)
        self._turns = turns
        self._tree = tree
        outermost = next(at for at, turn in enumerate(turns) if len(turn.scope) == self._links.depth)
        self._main = self._links.chosen[self._links.leaders[outermost]]
        """A turn of the main conversation."""
        self._found: list[Found] = []
        self._of_turn: list[int] = []
        self._last: dict[str | Scope, int] = {}
        """The last turn of each request, and inside each scope."""
        self._through: dict[int, int] = {}
        """By node, the last turn whose history has it."""

    def find(self) -> list[Found]:
        """Return the conversations."""
        for at in range(len(self._turns)):
            if len(self._found) >= MAX_CONVERSATIONS and self._links.of[at] is None:
                self._begin(at, "fork" if self._links.leaders[at] < at else "subagent", None)
            else:
                self._place(at)
            self._mark(at)
            self._last[self._links.histories[at].request or self._turns[at].scope] = at
            self._last[self._turns[at].scope] = at
        order = sorted(range(len(self._found)), key=lambda position: self._found[position].turns[0])
        numbers = {position: number for number, position in enumerate(order)}
        main = self._main_conversation()
        for position, each in enumerate(self._found):
            if position == main:
                each.kind, each.origin, each.shared, each.replaced = "main", None, 0, None
            else:
                each.parent = main if each.origin is None else self._of_turn[each.origin]
                # One with the main one's prompt, which goes on with another answer.
                each.kind = "fork" if each.kind == "main" else each.kind
        for position, each in enumerate(self._found):
            if each.parent is not None and self._is_in_circle(position):
                each.parent = main
        for each in self._found:
            if each.parent is not None:
                above = self._found[each.parent].turns
                each.shared += self._has_system_of(each.turns[0], above[0])
                before = [turn for turn in above if turn < each.turns[0]]
                if each.kind == "fork":
                    before = before[: bisect_right(before, each.shared, key=self._messages)]
                each.parent_turn = before[-1] if before else None
                each.parent = numbers[each.parent]
            each.messages = self._messages(each.turns[-1])
        return [self._found[position] for position in order]

    def _messages(self, turn: int) -> int:
        """Return the number of messages of a turn's history, with its answer."""
        return self._links.length(self._links.tip(turn)) + (self._links.histories[turn].system != 0)

    def _main_conversation(self) -> int:
        """Return the conversation that the others serve: the first one with the least agents around it.

        One turn before it, of a guard or a router for example, is no conversation that others serve.
        """
        main = self._of_turn[self._main]
        first = self._found[main]
        if len(first.turns) > 1 or self._links.next[first.turns[0]] or self._links.histories[first.turns[0]].calls:
            return main
        depth = len(self._turns[first.turns[0]].scope)
        for position, each in enumerate(self._found):
            is_as_far_out = len(self._turns[each.turns[0]].scope) == depth
            if each.kind == "subagent" and len(each.turns) > 1 and is_as_far_out and each.turns[0] > first.turns[0]:
                for other in self._found:
                    if other.origin is not None and self._of_turn[other.origin] == main:
                        other.origin = each.turns[0]
                first.kind, first.origin = "subagent", each.turns[0]
                return position
        return main

    def _is_in_circle(self, position: int) -> bool:
        at: int | None = position
        for _ in self._found:
            at = None if at is None else self._found[at].parent
            if at is None:
                return False
        return True

    def _has_system_of(self, one: int, other: int) -> bool:
        return self._links.histories[one].system == self._links.histories[other].system != 0

    def _place(self, at: int) -> None:
        history, link = self._links.histories[at], self._links.of[at]
        leader = self._links.leaders[at]
        chosen = self._links.chosen[leader]
        is_compacted = history.is_compacted or self._has_new_compaction(at)
        if not self._links.asked[at] and not history.answers and not is_compacted:
            self._place_unknown(at)
        elif is_compacted and (before := self._compacted_turn(at)) is not None:
            self._begin_compacted(at, before)
        elif at != chosen and self._links.is_answered(at) and (leader < at or link is not None):
            # The conversation goes on with another answer to the same prompt.
            self._begin(
                at,
                "fork",
                chosen if chosen < at or link is None else link.turn,
                self._links.length(self._links.asked[at]),
            )
        elif leader < at and link is None:
            self._go_on(at, leader)
        elif link is not None and self._is_of_other_agent(at, link.turn):
            self._place_with_agent(at, link)
        elif link is not None and self._links.is_best(at, link.turn):
            self._add(at, self._of_turn[link.turn])
        elif self._is_edited(at):
            pass
        elif link is not None and self._links.is_spoken(self._links.node_at(at, link.shared)):
            is_deeper = len(self._turns[at].scope) > len(self._turns[link.turn].scope)
            is_other = not self._links.has_one_system(link.turn, at)
            self._begin(at, "subagent" if is_deeper or is_other else "fork", link.turn, link.shared)
        else:
            self._begin_other(at)

    def _is_of_other_agent(self, at: int, before: int) -> bool:
        """Return True if a turn has an earlier one's history, and another agent's system prompt."""
        one, two = self._links.histories[before], self._links.histories[at]
        *ends, length = one.shape
        # As with another date in them.
        is_alike = abs(length - two.shape[-1]) <= _OTHER_WORDS and any(map(eq, ends, two.shape))
        return bool(one.system and two.system) and not is_alike and not self._links.has_one_system(before, at)

    def _place_with_agent(self, at: int, link: Link) -> None:
        """Place a turn with the history that agents hand to each other: with its agent's turns in it."""
        path = set(self._tree.path(self._links.asked[at]))
        for before in self._latest():
            if self._links.has_one_system(before, at) and self._links.tip(before) in path:
                self._add(at, self._of_turn[before])
                return
        self._begin(at, "subagent", link.turn, link.shared)

    def _go_on(self, at: int, leader: int) -> None:
        """Go on with the conversation that began with the same prompt; an answer that is left is a fork of it."""
        conversation = self._of_turn[leader]
        if (
            at == self._links.chosen[leader]
            and self._links.is_answered(leader)
            and self._found[conversation].turns == [leader]
        ):
            self._found[conversation].turns = []
            self._begin(leader, "fork", at, self._links.length(self._links.asked[leader]))
            self._of_turn[leader] = self._of_turn.pop()
        self._add(at, conversation)

    def _mark(self, at: int) -> None:
        for last in (self._links.tip(at), self._links.asked[at]):
            node = last
            while node != ROOT and self._through.get(node) != at:
                known = self._through.get(node)
                self._through[node] = at
                if known is not None and self._of_turn[known] == self._of_turn[at]:
                    break
                node = self._tree.parents[node]

    def _has_new_compaction(self, at: int) -> bool:
        """Return True if a prompt has a part of type `compaction` that no earlier one has."""
        known = self._tree.compactions
        return bool(known) and any(
            node in known and node not in self._through for node in self._tree.path(self._links.asked[at])
        )

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

    def _compacted_turn(self, at: int) -> int | None:
        """Return the last turn of the conversation that a turn was marked to replace; None if there is none."""
        scope = self._turns[at].scope
        latest = [each for each in self._latest() if self._turns[each].scope == scope]
        return next((each for each in latest if self._links.has_one_system(each, at)), next(iter(latest), None))

    def _begin_compacted(self, at: int, before: int) -> None:
        """Begin a conversation in place of an earlier turn's."""
        old, new = self._links.codes(before), self._tree.path(self._links.asked[at])
        codes = [self._tree.codes[node] for node in new]
        shared = _common(old, codes)
        kept = sum((Counter(old[shared:]) & Counter(codes[shared:])).values())
        self._begin(at, "compacted", before, shared, max(0, len(old) - shared - kept))

    def _latest(self, pool: Iterable[int] | None = None) -> list[int]:
        """Return the last turn of each conversation until now, the latest first."""
        return sorted(
            (self._found[each].turns[-1] for each in range(len(self._found)) if pool is None or each in pool),
            reverse=True,
        )

    def _place_unknown(self, at: int) -> None:
        """Place a turn without messages: after a turn of its request, else after the last one in the same spans."""
        before = self._last.get(self._links.histories[at].request, self._last.get(self._turns[at].scope))
        if before is not None and not self._links.is_apart(before, at):
            self._add(at, self._of_turn[before])
        else:
            self._begin(at, "subagent", self._caller(at))

    def _is_edited(self, at: int) -> bool:
        """Place a turn whose history is an earlier one that was edited, shortened or compacted; False if it is none."""
        scope = self._turns[at].scope
        codes = [self._tree.codes[node] for node in self._tree.path(self._links.asked[at])]
        edited: list[tuple[bool, int, int]] = []
        for before in sorted(self._latest()[:_CANDIDATES], key=lambda each: self._turns[each].scope != scope):
            if len(scope) > len(self._turns[before].scope) or self._links.is_apart(before, at):
                continue
            if (self._links.histories[at].system == 0) != (self._links.histories[before].system == 0):
                continue
            if self._is_longer_text(at, before):
                self._add(at, self._of_turn[before])
                return True
            old = self._links.codes(before)
            shared = _common(old, codes)
            if self._has_other_answer(before, codes, shared):
                self._add(at, self._of_turn[before])
                return True
            counts = Counter(old)
            recent = {code for code in old[max(shared, len(old) - _RECENT) :] if counts[code] == 1}
            # A repeated action is evidence only in the place of the last answer.
            is_answered = shared < len(old) and bool(self._links.answers[before])
            is_kept = is_answered and codes[len(old) - 1 : len(old)] == old[-1:]
            if is_kept or not recent.isdisjoint(codes[shared:]):
                edited.append((self._turns[before].scope == scope, len(counts.keys() & set(codes)), before))
        if not edited:
            return False
        before = max(edited)[-1]
        old = self._links.codes(before)
        rest, known = codes[_common(old, codes) :], set(old)
        first = next(place for place, code in enumerate(rest) if code in known)
        is_inserted = first > 0 and len(codes) < len(old)
        if is_inserted or len(codes) < _SHRUNK * len(old):
            self._begin_compacted(at, before)
        else:
            self._add(at, self._of_turn[before])
        return True

    def _has_other_answer(self, before: int, codes: Sequence[int], shared: int) -> bool:
        """Return True if a prompt is an earlier one with another answer, as where a cut answer was continued."""
        asked = [self._tree.codes[node] for node in self._tree.path(self._links.asked[before])]
        while asked and asked[-1] & 7 == ASSISTANT:
            asked.pop()
        return 0 < len(asked) == shared < len(codes) and codes[len(asked)] & 7 == ASSISTANT

    def _is_longer_text(self, at: int, before: int) -> bool:
        """Return True if a prompt of one message is an earlier one with more at its end.

        The last characters of the earlier one are not compared. So another question that begins the same is known by
        its length, by another agent around it, or by the earlier conversation, which goes on.
        """
        old, new = self._links.histories[before], self._links.histories[at]
        pieces = min(old.length // PIECE, len(old.texts))
        return (
            pieces > 0
            and new.length >= old.length + PIECE
            and (old.length % PIECE <= old.length * _UNKNOWN or self._turns[before].scope == self._turns[at].scope)
            and len(new.texts) >= pieces
            and old.texts[pieces - 1] == new.texts[pieces - 1]
            and self._links.has_one_system(before, at)
            and not self._is_returned_to(before, at)
        )

    def _begin_other(self, at: int) -> None:
        """Begin a conversation with a prompt that extends no history."""
        if len(self._found) >= MAX_CONVERSATIONS:
            self._begin(at, "fork" if self._links.of[at] is not None else "subagent", None)
            return
        scope = self._turns[at].scope
        if self._links.leaders[at] == self._links.leaders[self._main]:
            self._begin(at, "main", None)
            return
        if not self._found:
            self._begin(at, "subagent", None)
            return
        pool = {self._of_turn[other] for other in range(at) if self._turns[other].scope == scope} or self._roaming(at)
        node = self._links.asked[at]
        while node not in self._through and node != ROOT:
            node = self._tree.parents[node]
        owner = self._through.get(node)
        shared = self._links.length(node)
        if owner is not None and self._of_turn[owner] in pool and self._links.has_one_system(owner, at):
            if self._links.is_spoken(node) or shared == self._links.length(self._links.asked[at]):
                self._begin(at, "fork", owner, shared)
                return
        else:
            shared = 0
        if not pool and (first := self._earlier_attempt(at)) is not None:
            self._begin(at, "fork", first)
            return
        likely = {self._of_turn[owner]} if shared and owner is not None else pool
        same = next((each for each in self._latest(likely) if self._links.has_one_system(each, at)), None)
        if same is None or self._links.is_apart(same, at) or (self._is_called(at) and not self._has_task_of(same, at)):
            self._begin(at, "subagent", self._caller(at))
        elif self._is_returned_to(same, at):
            if shared:
                self._begin(at, "fork", same, shared)
            else:
                self._begin(at, "subagent", self._caller(at))
        elif self._is_replacement(at, same, shared):
            self._begin_compacted(at, same)
        elif shared:
            self._begin(at, "fork", same, shared)
        else:
            self._begin(at, "subagent", self._caller(at))

    def _earlier_attempt(self, at: int) -> int | None:
        """Return the first turn of a conversation as far out, with a task that a turn's prompt begins with."""
        depth = len(self._turns[at].scope)
        firsts = [each.turns[0] for each in self._found if each.kind != "subagent"]
        return next(
            (each for each in firsts if len(self._turns[each].scope) == depth and self._is_longer_text(at, each)), None
        )

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
        if self._turns[before].end > self._turns[at].start or any(later > at for later in self._links.next[before]):
            return True
        codes = [self._tree.codes[node] for node in self._links.answers[before]]
        return any(code > 7 and self._links.last_uses.get(code, -1) > at for code in codes)

    def _is_replacement(self, at: int, before: int, shared: int) -> bool:
        """Return True if a prompt replaces a history, and is no agent's task."""
        conversation = self._found[self._of_turn[before]]
        scope = self._turns[at].scope
        if conversation.kind == "subagent" and not shared and self._last.get(scope, at - 1) != before:
            # Its caller went on meanwhile, or another agent.
            return False
        path = self._tree.path(self._links.asked[at])[shared:]
        is_first = self._links.length(self._links.tip(before)) > 2 or self._begins_alike(before, at)
        if (is_first and any(node in self._tree.summaries for node in path[:3])) or self._is_longer_text(
            at, conversation.turns[0]
        ):
            return True
        is_long = self._links.length(self._links.tip(before)) >= _LONG
        if conversation.kind == "subagent" and not scope:
            return is_long and bool(self._links.histories[before].calls)
        return is_long

    def _begins_alike(self, before: int, at: int) -> bool:
        return self._links.histories[before].texts[:1] == self._links.histories[at].texts[:1]

    def _is_called(self, at: int) -> bool:
        return self._calling_turn(at) is not None

    def _has_task_of(self, before: int, at: int) -> bool:
        """Return True if a turn's prompt begins with the first message of an earlier turn's conversation."""
        first = self._found[self._of_turn[before]].turns[0]
        return self._tree.path(self._links.asked[first])[:1] == self._tree.path(self._links.asked[at])[:1]

    def _calling_turn(self, at: int) -> int | None:
        """Return the earlier turn that called a tool with the task of a turn's prompt."""
        path = self._tree.path(self._links.asked[at])
        tasks = {self._tree.codes[node] >> 3 for node in path[:1]}
        return next(
            (other for other in range(at - 1, -1, -1) if tasks.intersection(self._links.histories[other].calls)), None
        )

    def _caller(self, at: int) -> int | None:
        """Return a turn of the conversation that a sub-agent's work is done for; None for the main one."""
        calling = self._calling_turn(at)
        if calling is not None:
            return calling
        scope, end = self._turns[at].scope, self._links.chain_ends[at]
        around = [other for other in range(at) if self._is_around(self._turns[other].scope, scope)]
        deepest = max((len(self._turns[other].scope) for other in around), default=0)
        pool = {self._of_turn[other] for other in around if len(self._turns[other].scope) == deepest}
        latest = self._latest(pool)
        for before in latest:
            later = [each for each in self._links.next[before] if each > at]
            uses = [self._links.last_uses.get(self._tree.codes[node], -1) for node in self._links.answers[before]]
            if (later and min(later) > end) or (not later and max(uses, default=-1) > end):
                # The main conversation asks what to think of several answers to its prompt.
                is_sampled = self._links.leaders[self._main] == self._links.leaders[before] and self._main in latest
                return self._main if is_sampled else before
        own = (each for each in latest if self._found[self._of_turn[each]].kind in ("main", "compacted"))
        return next(own, latest[0] if deepest else None)

    def _is_around(self, outer: Scope, inner: Scope) -> bool:
        return outer == inner[: len(outer)]


def _common(one: Sequence[int], two: Sequence[int]) -> int:
    at = 0
    while at < len(one) and at < len(two) and one[at] == two[at]:
        at += 1
    return at
