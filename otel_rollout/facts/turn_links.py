"""The turns of a trajectory as chains: which one's prompt extends which one's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from otel_rollout.facts.exact_conversations import Scope, Turn
from otel_rollout.facts.histories import ASSISTANT, ROOT, TOOL, Histories, History

_LATEST: Final = 32
"""The most turns with one history that a turn is compared with."""
_NO_HISTORY: Final = History(0, 0, (0, 0, 0), ROOT, (), None, (), 0, (), False, "", "")


class Link(NamedTuple):
    """The earlier turn whose history a prompt extends, and the number of messages that both have."""

    turn: int
    shared: int


class TurnLinks:
    """Links from the turns of a trajectory to the turns that they extend."""

    def __init__(self, turns: Sequence[Turn], tree: Histories) -> None:
        self.turns = turns
        self.tree = tree
        self.histories = [tree.of_span.get(turn.span_id, _NO_HISTORY) for turn in turns]
        self.asked = [history.asked for history in self.histories]
        self.answers: list[list[int]] = []
        self.of: list[Link | None] = []
        self.leaders = list(range(len(turns)))
        """The first turn with the same prompt after the same history."""
        self._lengths = {ROOT: 0}
        self._spoken = {ROOT: False}
        self.depth = self._find_depth()
        """The number of agents around the main conversation."""
        self._link_all()
        self.next: list[list[int]] = [[] for _ in turns]
        for later, link in enumerate(self.of):
            if link is not None and self.leaders[later] == later:
                self.next[link.turn].append(later)
        self._samples: dict[int, list[int]] = {}
        for at, leader in enumerate(self.leaders):
            self._samples.setdefault(leader, []).append(at)
        self.chosen = {leader: self._choose(samples) for leader, samples in self._samples.items()}
        """The answer to each prompt that its conversation goes on with, by the first turn with the prompt."""
        self.chain_ends = self._find_chain_ends()
        self.last_uses = self._find_last_uses()
        self._best: dict[int, int] = {}
        """By turn, the turn that goes on with its conversation."""

    def _find_depth(self) -> int:
        least = min(len(turn.scope) for turn in self.turns)
        first, last = self.turns[0].scope, self.turns[-1].scope
        attempts = {turn.scope for turn, asked in zip(self.turns, self.asked, strict=True) if asked == self.asked[0]}
        is_judged = len(last) == least and all(len(turn.scope) > least for turn in self.turns[:-1])
        # Agents with one task, and one turn after them all: attempts and their judge.
        return len(first) if is_judged and len(attempts) > 1 else least

    def is_apart(self, other: int, at: int) -> bool:
        """Return True if two turns have different ids of conversations."""
        one, two = self.histories[other].conversation, self.histories[at].conversation
        return one != two and bool(one and two)

    def has_one_system(self, other: int, at: int) -> bool:
        """Return True if the system prompts are the same, or begin the same, as with the date in them."""
        one, two = self.histories[other], self.histories[at]
        return one.system == two.system or (one.head == two.head and bool(one.system and two.system))

    def is_answered(self, at: int) -> bool:
        """Return True if a turn has an answer, and did not fail."""
        return bool(self.answers[at]) and not self.turns[at].failed

    def is_best(self, at: int, before: int) -> bool:
        """Return True if, of the turns that extend an earlier one, this one goes on with its conversation."""
        rivals = self.next[before]
        if before not in self._best:
            self._best[before] = rivals[0] if len(rivals) == 1 else self._choose_next(before, rivals)
        return self._best[before] == self.leaders[at]

    def _choose_next(self, before: int, rivals: Sequence[int]) -> int:
        after = self.length(self.tip(before))
        codes = self.tree.codes
        said = {codes[node] >> 3 for each in rivals for node in self.answers[self.chain_ends[each]]}

        plain = [each for each in rivals if self.length(self.asked[each]) == after + 1]
        results = [each for each in plain if codes[self.asked[each]] & 7 == TOOL]
        if len(results) > 1:
            # Several results of one call: the last one is the caller's, who gave its own history to agents before.
            return results[-1]

        def rank(later: int) -> tuple[bool, bool, bool, bool, int]:
            new = [codes[node] for node in self.tree.path(self.asked[later])[after:]]
            is_inside = len(self.turns[later].scope) > len(self.turns[before].scope)
            system = self.histories[before].system
            # If two answer one call, the caller has the other's last words.
            is_caller = any(code >> 3 in said and code & 7 != ASSISTANT for code in new)
            is_result = bool(new) and new[0] & 7 == TOOL
            return not is_inside, self.histories[later].system == system, is_caller, is_result, -later

        return max(rivals, key=rank)

    def tip(self, at: int) -> int:
        """Return the last node of a turn's history: its answer, or its prompt's last message."""
        return (self.answers[at] or [self.asked[at]])[0]

    def codes(self, at: int) -> list[int]:
        """Return the codes of a turn's history: its prompt and its answer."""
        return [self.tree.codes[node] for node in self.tree.path(self.tip(at))]

    def node_at(self, at: int, length: int) -> int:
        """Return the node of a turn's prompt after a number of messages."""
        node = self.asked[at]
        while self.length(node) > length:
            node = self.tree.parents[node]
        return node

    def length(self, node: int) -> int:
        """Return the number of messages until a node."""
        missing = []
        while node not in self._lengths:
            missing.append(node)
            node = self.tree.parents[node]
        for each in reversed(missing):
            self._lengths[each] = self._lengths[self.tree.parents[each]] + 1
        return self._lengths[missing[0] if missing else node]

    def is_spoken(self, node: int) -> bool:
        """Return True if the model said one of the messages until a node."""
        missing = []
        while node not in self._spoken:
            missing.append(node)
            node = self.tree.parents[node]
        for each in reversed(missing):
            is_answer = self.tree.codes[each] & 7 == ASSISTANT
            self._spoken[each] = is_answer or self._spoken[self.tree.parents[each]]
        return self._spoken[missing[0] if missing else node]

    def _link_all(self) -> None:
        asked_at: dict[int, list[int]] = {}
        answered_at: dict[int, list[int]] = {}
        last: dict[str | Scope, int] = {}
        for at, history in enumerate(self.histories):
            link = None
            if history.added is not None:
                link = self._link_added(at, history.added, last)
            else:
                node = self.asked[at]
                same = [other for other in asked_at.get(node, ())[-_LATEST:] if node and self._is_same(other, at)]
                if same:
                    self.leaders[at] = leader = self.leaders[same[-1]]
                    link = self.of[leader]
                else:
                    link = self._link_by_messages(at, asked_at, answered_at)
            self.of.append(link)
            last[history.request or self.turns[at].scope] = at
            node = self.asked[at]
            self.answers.append([self.tree.child(node, code) for code in history.answers])
            if node:
                asked_at.setdefault(node, []).append(at)
            # An agent that speaks first is given a system prompt, and no message.
            for answer in self.answers[at] if node or history.system else ():
                answered_at.setdefault(answer, []).append(at)

    def _link_added(self, at: int, added: Sequence[int], last: Mapping[str | Scope, int]) -> Link | None:
        """Link a turn that is recorded without the messages of earlier turns, and put its messages after theirs."""
        request, scope = self.histories[at].request, self.turns[at].scope
        before = last.get(request or scope)
        node = ROOT if before is None else self.tip(before)
        shared = self.length(node)
        for code in added:
            node = self.tree.child(node, code)
        self.asked[at] = node
        return None if before is None else Link(before, shared)

    def _link_by_messages(
        self, at: int, asked_at: dict[int, list[int]], answered_at: dict[int, list[int]]
    ) -> Link | None:
        node = asked = self.asked[at]
        refused = 0
        while node != ROOT and refused < _LATEST:
            for known in (answered_at, asked_at):
                if known is asked_at and node == asked:
                    continue
                latest = known.get(node, ())[-_LATEST:]
                others = [other for other in latest if self._is_one(other, at, node)]
                if others:
                    return Link(max(others, key=lambda other: self._nearness(other, at)), self.length(node))
                refused += bool(latest)
            node = self.tree.parents[node]
        return None

    def _is_same(self, other: int, at: int) -> bool:
        """Return True if two turns with one prompt are answers to it, and not agents with the same task."""
        if not self.has_one_system(other, at) or self.is_apart(other, at):
            return False
        one, two = self.turns[other].scope, self.turns[at].scope
        # Agents with one task are no attempts at it, unless nothing is around them.
        return one == two or len(one) == len(two) == self.depth or self.is_spoken(self.asked[at])

    def _is_one(self, other: int, at: int, node: int) -> bool:
        """Return True if a turn may continue the history of an earlier one, with the same messages until a node."""
        return not self.is_apart(other, at) and (self.has_one_system(other, at) or self.is_spoken(node))

    def _nearness(self, other: int, at: int) -> tuple[bool, bool, int]:
        scope = self.turns[other].scope
        is_around = scope == self.turns[at].scope[: len(scope)]
        return is_around, self.histories[other].system == self.histories[at].system, other

    def _choose(self, samples: Sequence[int]) -> int:
        """Return the first of several turns with one prompt that is continued; else the first that has an answer."""
        continued = [at for at in samples if any(later > at for later in self.next[at])]
        answered = [at for at in samples if self.is_answered(at)]
        return (continued or answered or samples)[0]

    def _find_chain_ends(self) -> list[int]:
        """Return, for each turn, the last of the turns that extend it."""
        ends = list(range(len(self.turns)))
        for at in reversed(ends):
            for later in self.next[at]:
                ends[at] = max(ends[at], ends[later])
        return ends

    def _find_last_uses(self) -> dict[int, int]:
        """Return, by a message's code, the last turn whose prompt has it."""
        uses: dict[int, int] = {}
        seen: set[int] = set()
        for at in range(len(self.turns) - 1, -1, -1):
            node = self.asked[at]
            while node != ROOT and node not in seen:
                seen.add(node)
                uses.setdefault(self.tree.codes[node], at)
                node = self.tree.parents[node]
        return uses
