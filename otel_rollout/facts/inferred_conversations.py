"""The conversations of a trajectory by what its messages repeat, where neither scopes nor marks nor prompts decide.

A turn continues the conversation whose history its prompt extends, also if the history was edited in place, or has lost
its oldest messages. Another prompt begins a conversation: a fork, if it shares the beginning of a history with what the
model generated; a compacted one, if it replaces a history that is not returned to; else a sub-agent's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from operator import eq
from typing import Final, NamedTuple

from otel_rollout.facts.exact_conversations import MAX_CONVERSATIONS, Found, Kind, Scope, Turn
from otel_rollout.facts.histories import ASSISTANT, NO_HISTORY, TOOL, Histories, common, keys_of

_LATEST: Final = 32
"""The most turns with one history that a turn is compared with."""
_RECENT: Final = 4
_CANDIDATES: Final = 16
_SHRUNK: Final = 0.75
"""A history that has less than this part of its messages left was replaced."""
_MORE: Final = 16
"""The characters by which a prompt of one text grows at least."""
_OTHER_WORDS: Final = 16
"""System prompts that begin or end the same, and differ by so few characters in length, are versions of one."""
_LONG: Final = 4
"""A shorter history is not compacted."""


class Link(NamedTuple):
    """The earlier turn whose history a prompt extends, and the number of messages that both have."""

    turn: int
    shared: int


class _Links:
    """Links from the turns of a trajectory to the turns that they extend; a history is known by a hash, its key."""

    def __init__(self, turns: Sequence[Turn], messages: Histories) -> None:
        self.turns = turns
        self.histories = [messages.of_span.get(turn.span_id, NO_HISTORY) for turn in turns]
        self.asked: list[list[int]] = []
        """The codes of each prompt."""
        self.keys: list[list[int]] = []
        """By number of messages, the key of the beginning of each history with its answer."""
        self.histories_of: list[list[int]] = []
        """The codes of each prompt and its answer."""
        self.of: list[Link | None] = []
        self.leaders: list[int] = []
        """The first turn with the same prompt after the same history."""
        self.depth = min(len(turn.scope) for turn in turns)
        """The number of agents around the main conversation."""
        self._link_all()
        self.next: list[list[int]] = [[] for _ in turns]
        for later, link in enumerate(self.of):
            if link is not None and self.leaders[later] == later:
                self.next[link.turn].append(later)
        samples: dict[int, list[int]] = {}
        for at, leader in enumerate(self.leaders):
            samples.setdefault(leader, []).append(at)
        self.chosen = {leader: self._choose(found) for leader, found in samples.items()}
        """The answer to each prompt that its conversation goes on with, by the first turn with the prompt."""
        self.ends = list(range(len(turns)))
        """The last of the turns that extend each one."""
        for at in reversed(self.ends):
            self.ends[at] = max([at, *(self.ends[later] for later in self.next[at])])

    def is_apart(self, other: int, at: int) -> bool:
        """Return True if two turns have different ids of conversations."""
        one, two = self.turns[other].prompt.conversation, self.turns[at].prompt.conversation
        return one != two and bool(one and two)

    def has_one_system(self, other: int, at: int) -> bool:
        """Return True if the system prompts are the same, or begin the same, as with the date in them."""
        one, two = self.histories[other], self.histories[at]
        return one.system == two.system or (one.head == two.head and bool(one.system and two.system))

    def is_answered(self, at: int) -> bool:
        """Return True if a turn has an answer, and did not fail."""
        return bool(self.histories[at].answers) and not self.turns[at].failed

    def is_spoken(self, at: int, length: int) -> bool:
        """Return True if the model said one of the first messages of a turn's prompt."""
        return any(code & 7 == ASSISTANT for code in self.asked[at][:length])

    def is_best(self, at: int, before: int) -> bool:
        """Return True if, of the turns that extend an earlier one, this one goes on with its conversation."""
        rivals, after = self.next[before], len(self.histories_of[before])
        results = [each for each in rivals if len(self.asked[each]) == after + 1 and self.asked[each][-1] & 7 == TOOL]
        if len(results) > 1:
            # Several results of one call: the last one is the caller's, who gave its own history to agents before.
            return results[-1] == self.leaders[at]

        def rank(later: int) -> tuple[bool, bool, int]:
            is_inside = len(self.turns[later].scope) > len(self.turns[before].scope)
            return not is_inside, self.histories[later].system == self.histories[before].system, -later

        return max(rivals, key=rank) == self.leaders[at]

    def _link_all(self) -> None:
        asked_at: dict[int, list[int]] = {}
        answered_at: dict[int, list[int]] = {}
        last: dict[str | Scope, int] = {}
        for at, (turn, history) in enumerate(zip(self.turns, self.histories, strict=True)):
            codes, before = history.codes, last.get(turn.prompt.request or turn.scope)
            link, leader = None, at
            if history.is_added and before is not None:
                link = Link(before, len(self.histories_of[before]))
                codes = [*self.histories_of[before], *codes]
            keys = keys_of(codes)
            self.asked.append(codes)
            if not history.is_added:
                same = [each for each in asked_at.get(keys[-1], ())[-_LATEST:] if codes and self._is_same(each, at)]
                if same:
                    leader = self.leaders[same[-1]]
                    link = self.of[leader]
                else:
                    link = self._find_link(at, keys, asked_at, answered_at)
            self.of.append(link)
            self.leaders.append(leader)
            last[turn.prompt.request or turn.scope] = at
            self.histories_of.append([*codes, *history.answers[:1]])
            self.keys.append(keys_of(self.histories_of[-1]))
            if codes:
                asked_at.setdefault(keys[-1], []).append(at)
            # An agent that speaks first is given a system prompt, and no message.
            for answer in history.answers if codes or history.system else ():
                answered_at.setdefault(hash((keys[-1], answer)), []).append(at)

    def _find_link(
        self, at: int, keys: Sequence[int], asked_at: dict[int, list[int]], answered_at: dict[int, list[int]]
    ) -> Link | None:
        for length in range(len(keys) - 1, 0, -1):
            for known in (answered_at, {} if length == len(keys) - 1 else asked_at):
                for other in reversed(known.get(keys[length], ())[-_LATEST:]):
                    # One that may be continued: with the same messages until there.
                    if not self.is_apart(other, at) and (self.has_one_system(other, at) or self.is_spoken(at, length)):
                        return Link(other, length)
        return None

    def _is_same(self, other: int, at: int) -> bool:
        """Return True if two turns with one prompt are answers to it, and not agents with the same task."""
        if not self.has_one_system(other, at) or self.is_apart(other, at):
            return False
        one, two = self.turns[other].scope, self.turns[at].scope
        # Agents with one task are no attempts at it, unless nothing is around them.
        return one == two or len(one) == len(two) == self.depth

    def _choose(self, samples: Sequence[int]) -> int:
        """Return the first of several turns with one prompt that is continued; else the first that has an answer."""
        continued = [at for at in samples if any(later > at for later in self.next[at])]
        return (continued or [at for at in samples if self.is_answered(at)] or samples)[0]


def infer_conversations(turns: Sequence[Turn], messages: Histories) -> list[Found]:
    """Return the conversations of a trajectory, in the order of their first turns.

    Args:
        turns: Its turns, by start.
        messages: Their messages.
    """
    return _Finder(turns, messages).find() if turns else []


class _Finder:
    """Finds the conversations of a trajectory's turns."""

    def __init__(self, turns: Sequence[Turn], messages: Histories) -> None:
        self._links = links = _Links(turns, messages)
        self._turns = turns
        self._messages = messages
        self._histories = links.histories
        self._asked, self._codes = links.asked, links.histories_of
        outermost = next(at for at, turn in enumerate(turns) if len(turn.scope) == links.depth)
        self._main = links.chosen[links.leaders[outermost]]
        """A turn of the main conversation."""
        self._found: list[Found] = []
        self._of_turn: list[int] = []
        self._last: dict[str | Scope, int] = {}
        """The last turn of each request, and inside each scope."""
        self._through: dict[int, int] = {}
        """By key, the last turn whose history begins so."""
        self._compactions: set[int] = set()
        """The parts of type `compaction` until now."""

    def find(self) -> list[Found]:
        """Return the conversations."""
        for at, turn in enumerate(self._turns):
            if len(self._found) >= MAX_CONVERSATIONS and self._links.of[at] is None:
                self._begin(at, "fork" if self._links.leaders[at] < at else "subagent", None)
            else:
                self._place(at)
            self._through.update(dict.fromkeys(self._links.keys[at], at))
            self._compactions |= self._messages.compactions.intersection(self._asked[at])
            self._last[turn.prompt.request or turn.scope] = self._last[turn.scope] = at
        main = self._main_conversation()
        for position, each in enumerate(self._found):
            if position == main:
                each.kind, each.origin, each.shared, each.replaced = "main", None, 0, None
                continue
            each.parent = main if each.origin is None else self._of_turn[each.origin]
            if self._found[each.parent].turns[0] >= each.turns[0]:
                each.parent = main
            # One with the main one's prompt, which goes on with another answer.
            each.kind = "fork" if each.kind == "main" else each.kind
        order = sorted(range(len(self._found)), key=lambda position: self._found[position].turns[0])
        for each in self._found:
            if each.parent is not None:
                above = self._found[each.parent].turns
                systems = self._histories[each.turns[0]].system, self._histories[above[0]].system
                each.shared += systems[0] == systems[1] != 0
                before = [turn for turn in above if turn < each.turns[0]]
                if each.kind == "fork":
                    before = before[: bisect_right(before, each.shared, key=self._length)]
                each.parent_turn = before[-1] if before else None
                each.parent = order.index(each.parent)
            each.messages = self._length(each.turns[-1])
        return [self._found[position] for position in order]

    def _length(self, turn: int) -> int:
        """Return the number of messages of a turn's history, with its answer."""
        return len(self._codes[turn]) + (self._histories[turn].system != 0)

    def _main_conversation(self) -> int:
        """Return the conversation that the others serve: the first one with the least agents around it.

        One turn before it, of a guard or a router for example, is no conversation that others serve.
        """
        main = self._of_turn[self._main]
        first = self._found[main]
        if len(first.turns) > 1 or self._links.next[first.turns[0]] or self._histories[first.turns[0]].is_calling:
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

    def _place(self, at: int) -> None:
        history, link, leader = self._histories[at], self._links.of[at], self._links.leaders[at]
        chosen, asked = self._links.chosen[leader], self._asked[at]
        new = self._messages.compactions.intersection(asked) - self._compactions
        is_compacted = self._turns[at].prompt.is_compacted or bool(new)
        if not asked and not history.answers and not is_compacted:
            self._place_unknown(at)
        elif is_compacted and (before := self._compacted_turn(at)) is not None:
            self._begin_compacted(at, before)
        elif at != chosen and self._links.is_answered(at) and (leader < at or link is not None):
            # The conversation goes on with another answer to the same prompt.
            self._begin(at, "fork", chosen if chosen < at or link is None else link.turn, len(asked))
        elif leader < at and link is None:
            self._go_on(at, leader)
        elif link is not None and self._is_of_other_agent(at, link.turn):
            self._place_with_agent(at, link)
        elif link is not None and self._links.is_best(at, link.turn):
            self._add(at, self._of_turn[link.turn])
        elif self._is_edited(at):
            pass
        elif link is not None and self._links.is_spoken(at, link.shared):
            is_deeper = len(self._turns[at].scope) > len(self._turns[link.turn].scope)
            is_other = not self._links.has_one_system(link.turn, at)
            self._begin(at, "subagent" if is_deeper or is_other else "fork", link.turn, link.shared)
        else:
            self._begin_other(at)

    def _place_unknown(self, at: int) -> None:
        """Place a turn without messages: after a turn of its request, else after the last one in the same spans."""
        before = self._last.get(self._turns[at].prompt.request, self._last.get(self._turns[at].scope))
        if before is not None and not self._links.is_apart(before, at):
            self._add(at, self._of_turn[before])
        else:
            self._begin(at, "subagent", self._caller(at))

    def _compacted_turn(self, at: int) -> int | None:
        """Return the last turn of the conversation that a turn was marked to replace; None if there is none."""
        latest = [each for each in self._latest() if self._turns[each].scope == self._turns[at].scope]
        return next((each for each in latest if self._links.has_one_system(each, at)), next(iter(latest), None))

    def _begin_compacted(self, at: int, before: int) -> None:
        """Begin a conversation in place of an earlier turn's."""
        old, new = self._codes[before], self._asked[at]
        shared = common(old, new)
        kept = sum((Counter(old[shared:]) & Counter(new[shared:])).values())
        self._begin(at, "compacted", before, shared, max(0, len(old) - shared - kept))

    def _go_on(self, at: int, leader: int) -> None:
        """Go on with the conversation that began with the same prompt; an answer that is left is a fork of it."""
        found = self._found[self._of_turn[leader]]
        if at == self._links.chosen[leader] and self._links.is_answered(leader) and found.turns == [leader]:
            found.turns = []
            conversation = self._of_turn[leader]
            self._begin(leader, "fork", at, len(self._asked[leader]))
            self._of_turn[leader] = self._of_turn.pop()
            self._add(at, conversation)
        else:
            self._add(at, self._of_turn[leader])

    def _is_of_other_agent(self, at: int, before: int) -> bool:
        """Return True if a turn has an earlier one's history, and another agent's system prompt."""
        one, two = self._histories[before], self._histories[at]
        *ends, length = one.shape
        # As with another date in them.
        is_alike = abs(length - two.shape[-1]) <= _OTHER_WORDS and any(map(eq, ends, two.shape))
        return bool(one.system and two.system) and not is_alike and not self._links.has_one_system(before, at)

    def _place_with_agent(self, at: int, link: Link) -> None:
        """Place a turn with the history that agents hand to each other: with its agent's turns in it."""
        keys = set(keys_of(self._asked[at]))
        for before in self._latest():
            if self._links.has_one_system(before, at) and self._links.keys[before][-1] in keys:
                self._add(at, self._of_turn[before])
                return
        self._begin(at, "subagent", link.turn, link.shared)

    def _add(self, at: int, conversation: int) -> None:
        self._found[conversation].turns.append(at)
        self._of_turn.append(conversation)

    def _begin(self, at: int, kind: Kind, origin: int | None, shared: int = 0, replaced: int | None = None) -> None:
        if len(self._found) >= MAX_CONVERSATIONS:
            self._found[-1].others[kind] += 1
        else:
            self._found.append(Found(kind, origin, shared, replaced))
        self._add(at, len(self._found) - 1)

    def _latest(self, pool: Iterable[int] | None = None) -> list[int]:
        """Return the last turn of each conversation until now, the latest first."""
        found = self._found if pool is None else [self._found[each] for each in pool]
        return sorted((each.turns[-1] for each in found), reverse=True)

    def _is_edited(self, at: int) -> bool:
        """Place a turn whose history is an earlier one that was edited, shortened or compacted; False if it is none."""
        scope, codes = self._turns[at].scope, self._asked[at]
        edited: list[tuple[bool, int, int]] = []
        for before in sorted(self._latest()[:_CANDIDATES], key=lambda each: self._turns[each].scope != scope):
            if len(scope) > len(self._turns[before].scope) or self._links.is_apart(before, at):
                continue
            if (self._histories[at].system == 0) != (self._histories[before].system == 0):
                continue
            if self._is_longer_text(at, before):
                self._add(at, self._of_turn[before])
                return True
            old = self._codes[before]
            shared = common(old, codes)
            counts = Counter(old)
            recent = {code for code in old[max(shared, len(old) - _RECENT) :] if counts[code] == 1}
            # A repeated action is evidence only in the place of the last answer.
            is_answered = shared < len(old) and bool(self._histories[before].answers)
            is_kept = is_answered and codes[len(old) - 1 : len(old)] == old[-1:]
            if is_kept or not recent.isdisjoint(codes[shared:]):
                edited.append((self._turns[before].scope == scope, len(counts.keys() & set(codes)), before))
        if not edited:
            return False
        before = max(edited)[-1]
        old = self._codes[before]
        rest, known = codes[common(old, codes) :], set(old)
        first = next(place for place, code in enumerate(rest) if code in known)
        is_inserted = first > 0 and len(codes) < len(old)
        if is_inserted or len(codes) < _SHRUNK * len(old):
            self._begin_compacted(at, before)
        else:
            self._add(at, self._of_turn[before])
        return True

    def _is_longer_text(self, at: int, before: int) -> bool:
        """Return True if a prompt of one message is an earlier one with more at its end, and that isn't continued."""
        old, new = self._histories[before].text, self._histories[at].text
        return (
            bool(old)
            and len(new) >= len(old) + _MORE
            and new.startswith(old)
            and self._links.has_one_system(before, at)
            and not self._is_returned_to(before, at)
        )

    def _begin_other(self, at: int) -> None:
        """Begin a conversation with a prompt that extends no history."""
        scope, asked = self._turns[at].scope, self._asked[at]
        if len(self._found) >= MAX_CONVERSATIONS:
            self._begin(at, "fork" if self._links.of[at] is not None else "subagent", None)
            return
        if self._links.leaders[at] == self._links.leaders[self._main]:
            self._begin(at, "main", None)
            return
        pool = {self._of_turn[other] for other in range(at) if self._turns[other].scope == scope}
        keys = keys_of(asked)
        shared = next(length for length in range(len(asked), -1, -1) if not length or keys[length] in self._through)
        owner = self._through[keys[shared]] if shared else None
        if owner is not None and self._of_turn[owner] in pool and self._links.has_one_system(owner, at):
            if self._links.is_spoken(at, shared) or shared == len(asked):
                self._begin(at, "fork", owner, shared)
                return
            pool = {self._of_turn[owner]}
        else:
            shared = 0
        same = next((each for each in self._latest(pool) if self._links.has_one_system(each, at)), None)
        if same is None or self._links.is_apart(same, at):
            self._begin(at, "subagent", self._caller(at))
        elif not self._is_returned_to(same, at) and self._is_replacement(at, same, shared):
            self._begin_compacted(at, same)
        elif shared:
            self._begin(at, "fork", same, shared)
        else:
            self._begin(at, "subagent", self._caller(at))

    def _is_returned_to(self, before: int, at: int) -> bool:
        """Return True if a conversation goes on after a turn that is not its own."""
        return any(later > at for later in self._links.next[before])

    def _is_replacement(self, at: int, before: int, shared: int) -> bool:
        """Return True if a prompt replaces a history, and is no agent's task."""
        conversation = self._found[self._of_turn[before]]
        if conversation.kind == "subagent" and not shared and self._last.get(self._turns[at].scope, at - 1) != before:
            # Its caller went on meanwhile, or another agent.
            return False
        if self._is_longer_text(at, conversation.turns[0]):
            return True
        # Workers that are asked the same way one after the other call no tool, as a rule.
        is_worker = conversation.kind == "subagent" and not self._turns[at].scope
        return len(self._codes[before]) >= _LONG and (not is_worker or self._histories[before].is_calling)

    def _caller(self, at: int) -> int | None:
        """Return a turn of the conversation that a sub-agent's work is done for; None for the main one."""
        scope, end = self._turns[at].scope, self._links.ends[at]
        around = [other for other in range(at) if scope[: len(self._turns[other].scope)] == self._turns[other].scope]
        deepest = max((len(self._turns[other].scope) for other in around), default=0)
        latest = self._latest({self._of_turn[other] for other in around if len(self._turns[other].scope) == deepest})
        for before in latest:
            later = [each for each in self._links.next[before] if each > at]
            if later and min(later) > end:
                # The main conversation asks what to think of several answers to its prompt.
                is_sampled = self._links.leaders[self._main] == self._links.leaders[before] and self._main in latest
                return self._main if is_sampled else before
        own = (each for each in latest if self._found[self._of_turn[each]].kind in ("main", "compacted"))
        return next(own, latest[0] if deepest else None)
