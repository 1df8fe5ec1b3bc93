"""The conversations of a trajectory by what its messages repeat, where neither scopes nor marks nor prompts decide.

A turn continues the conversation whose history its prompt extends, also if the history was edited in place, or has lost
its oldest messages. Another prompt begins a conversation: a fork, if it shares the beginning of a history with what the
model generated; a compacted one, if it replaces a history that is not returned to; else a sub-agent's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from otel_rollout.facts.compact_spans import Scope, Turn
from otel_rollout.facts.exact_conversations import MAX_CONVERSATIONS, Found, Kind
from otel_rollout.facts.histories import ASSISTANT, NO_HISTORY, TOOL, Histories, common

_LATEST: Final = 32
"""The most turns with one history that a turn is compared with."""
_CANDIDATES: Final = 16
_SHRUNK: Final = 0.75
"""A history that has less than this part of its messages left was replaced."""
_MORE: Final = 16
"""The characters by which a prompt of one text grows at least."""
_HEAD: Final = 32
_TAIL: Final = 16
"""System prompts that begin with the same characters, or end so and are as long, are versions of one."""
_LONG: Final = 4
"""A shorter history is not compacted."""
_Thread: TypeAlias = tuple[str, str | Scope]


def infer_conversations(turns: Sequence[Turn], messages: Histories) -> list[Found]:
    """Return the conversations of a trajectory, in the order of their first turns.

    Args:
        turns: Its turns, by start.
        messages: Their messages.
    """
    return _Finder(turns, messages).find() if turns else []


class _Finder:
    """Finds the conversations of a trajectory's turns; a history is known by a hash, its key."""

    def __init__(self, turns: Sequence[Turn], messages: Histories) -> None:
        self._turns = turns
        self._histories = [messages.of_span.get(turn.row.span_id, NO_HISTORY) for turn in turns]
        self._asked: list[list[int]] = []
        """The codes of each prompt."""
        self._codes: list[list[int]] = []
        """The codes of each prompt and its answer."""
        self._keys: list[list[int]] = []
        """By number of messages, the key of the beginning of each prompt with its answer."""
        self._links: list[int | None] = []
        """The earlier turn whose history each prompt extends."""
        self._shared: list[int] = []
        """The number of messages that both have."""
        self._leaders: list[int] = []
        """The first turn with the same prompt after the same history."""
        self._depth = min(len(turn.scope) for turn in turns)
        """The number of agents around the main conversation."""
        self._link_all()
        self._next: list[list[int]] = [[] for _ in turns]
        """The turns that extend each one."""
        for later, link in enumerate(self._links):
            if link is not None and self._leaders[later] == later:
                self._next[link].append(later)
        self._ends = list(range(len(turns)))
        """The last of the turns that extend each one."""
        for at in reversed(self._ends):
            self._ends[at] = max([at, *(self._ends[later] for later in self._next[at])])
        samples: dict[int, list[int]] = {}
        for at, leader in enumerate(self._leaders):
            samples.setdefault(leader, []).append(at)
        self._chosen = {leader: self._choose(same) for leader, same in samples.items()}
        """The answer to each prompt that its conversation goes on with, by the first turn with the prompt."""
        outermost = next(at for at, turn in enumerate(turns) if len(turn.scope) == self._depth)
        self._main = self._chosen[self._leaders[outermost]]
        """A turn of the main conversation."""
        self._at = {turn.number: at for at, turn in enumerate(turns)}
        self._found: list[Found] = []
        self._of_turn: list[Found] = []
        self._through: dict[int, int] = {}
        """By key, the last turn whose history begins so."""

    def _link_all(self) -> None:
        asked_at: dict[int, list[int]] = {}
        answered_at: dict[int, list[int]] = {}
        last: dict[_Thread, int] = {}
        for at, (turn, history) in enumerate(zip(self._turns, self._histories, strict=True)):
            codes, before = history.codes, last.get(_thread_of(turn))
            link, shared, leader = None, 0, at
            if history.is_added and before is not None:
                link, shared = before, len(self._codes[before])
                codes = [*self._codes[before], *codes]
            keys = _keys_of(codes)
            self._asked.append(codes)
            if not history.is_added:
                same = [each for each in asked_at.get(keys[-1], ())[-_LATEST:] if codes and self._is_same(each, at)]
                if same:
                    leader = self._leaders[same[-1]]
                    link, shared = self._links[leader], self._shared[leader]
                else:
                    link, shared = self._find_link(at, keys, asked_at, answered_at)
            self._links.append(link)
            self._shared.append(shared)
            self._leaders.append(leader)
            last[_thread_of(turn)] = at
            self._codes.append([*codes, *history.answers[:1]])
            self._keys.append(_keys_of(self._codes[-1]))
            if codes:
                asked_at.setdefault(keys[-1], []).append(at)
            # An agent that speaks first is given a system prompt, and no message.
            for answer in history.answers if codes or history.system else ():
                answered_at.setdefault(hash((keys[-1], answer)), []).append(at)

    def _find_link(
        self, at: int, keys: Sequence[int], asked_at: dict[int, list[int]], answered_at: dict[int, list[int]]
    ) -> tuple[int | None, int]:
        for length in range(len(keys) - 1, 0, -1):
            for known in (answered_at, {} if length == len(keys) - 1 else asked_at):
                for other in reversed(known.get(keys[length], ())[-_LATEST:]):
                    # One that may be continued: with the same messages until there.
                    is_one = self._is_one_agent(other, at) or self._is_spoken(at, length)
                    if is_one and not self._is_apart(other, at):
                        return other, length
        return None, 0

    def _is_apart(self, other: int, at: int) -> bool:
        """Return True if two turns have different ids of conversations."""
        one, two = self._turns[other].prompt.conversation, self._turns[at].prompt.conversation
        return one != two and bool(one and two)

    def _is_one_agent(self, other: int, at: int) -> bool:
        """Return True if the system prompts are the same, or versions of one, as with the date in them."""
        one, two = self._histories[other].system, self._histories[at].system
        is_as_long = abs(len(one) - len(two)) <= _TAIL
        is_version = one[:_HEAD] == two[:_HEAD] or (is_as_long and one[-_TAIL:] == two[-_TAIL:])
        return one == two or (is_version and bool(one and two))

    def _is_answered(self, at: int) -> bool:
        """Return True if a turn has an answer, and did not fail."""
        return bool(self._histories[at].answers) and not self._turns[at].is_failed

    def _is_spoken(self, at: int, length: int) -> bool:
        """Return True if the model said one of the first messages of a turn's prompt."""
        return any(code & 7 == ASSISTANT for code in self._asked[at][:length])

    def _is_same(self, other: int, at: int) -> bool:
        """Return True if two turns with one prompt are answers to it, and not agents with the same task."""
        if not self._is_one_agent(other, at) or self._is_apart(other, at):
            return False
        one, two = self._turns[other].scope, self._turns[at].scope
        # Agents with one task are no attempts at it, unless nothing is around them.
        return one == two or len(one) == len(two) == self._depth

    def _choose(self, samples: Sequence[int]) -> int:
        """Return the first of several turns with one prompt that is continued; else the first that has an answer."""
        continued = [at for at in samples if any(later > at for later in self._next[at])]
        return (continued or [at for at in samples if self._is_answered(at)] or samples)[0]

    def _is_best(self, at: int, before: int) -> bool:
        """Return True if, of the turns that extend an earlier one, this one goes on with its conversation."""
        rivals, after = self._next[before], len(self._codes[before])
        results = [each for each in rivals if len(self._asked[each]) == after + 1 and self._asked[each][-1] & 7 == TOOL]
        if len(results) > 1:
            # Several results of one call: the last one is the caller's, who gave its own history to agents before.
            return results[-1] == self._leaders[at]

        def rank(later: int) -> tuple[bool, bool, int]:
            is_inside = len(self._turns[later].scope) > len(self._turns[before].scope)
            return not is_inside, self._histories[later].system == self._histories[before].system, -later

        return max(rivals, key=rank) == self._leaders[at]

    def find(self) -> list[Found]:
        """Return the conversations."""
        last: dict[str | Scope, int] = {}
        for at, turn in enumerate(self._turns):
            request, scope = turn.prompt.request, turn.scope
            if len(self._found) >= MAX_CONVERSATIONS and self._links[at] is None:
                # It would be compared with all turns before.
                self._begin(at, "fork" if self._leaders[at] < at else "subagent", None)
            else:
                self._place(at, last.get(request, last.get(scope)))
            self._through.update(dict.fromkeys(self._keys[at], at))
            last[request or scope] = last[scope] = at
        main = self._main_conversation()
        for each in self._found:
            if each is main:
                each.kind, each.origin = "main", None
                continue
            parent = main if each.origin is None else self._of_turn[self._at[each.origin.number]]
            each.parent = parent if parent.start < each.start else main
            each.parent_turn = next(reversed(each.above), None)
            # One with the main one's prompt, which goes on with another answer.
            each.kind = "fork" if each.kind == "main" else each.kind
        return sorted(self._found, key=lambda each: each.start)

    def _main_conversation(self) -> Found:
        """Return the conversation that the others serve: the first one with the least agents around it.

        One turn before it, of a guard or a router for example, is no conversation that others serve.
        """
        main = self._of_turn[self._main]
        start = self._at[main.start]
        if len(main.turns) > 1 or self._next[start] or self._histories[start].is_calling:
            return main
        for each in self._found:
            is_as_far_out = len(each.turns[0].scope) == len(main.turns[0].scope)
            if each.kind == "subagent" and len(each.turns) > 1 and is_as_far_out and each.start > main.start:
                for other in self._found:
                    if other.origin is not None and self._of_turn[self._at[other.origin.number]] is main:
                        other.origin = each.turns[0]
                main.kind, main.origin = "subagent", each.turns[0]
                return each
        return main

    def _place(self, at: int, before: int | None) -> None:
        """Place a turn.

        Args:
            at: The turn.
            before: The last one of its request, else the last one in the same spans.
        """
        link, leader = self._links[at], self._leaders[at]
        chosen, asked = self._chosen[leader], self._asked[at]
        is_compacted = self._turns[at].prompt.is_compacted
        if not asked and not self._histories[at].answers and not is_compacted:
            # Without messages.
            if before is None or self._is_apart(before, at):
                self._begin(at, "subagent", self._caller(at))
            else:
                self._add(at, self._of_turn[before])
        elif is_compacted and (latest := self._latest_beside(at)):
            self._begin(at, "compacted", next((each for each in latest if self._is_one_agent(each, at)), latest[0]))
        elif at != chosen and self._is_answered(at) and (leader < at or link is not None):
            # The conversation goes on with another answer to the same prompt.
            self._begin(at, "fork", chosen if chosen < at or link is None else link)
        elif leader < at and link is None:
            self._go_on(at, leader)
        elif link is not None and self._is_of_other_agent(at, link):
            self._place_with_agent(at, link)
        elif link is not None and self._is_best(at, link):
            self._add(at, self._of_turn[link])
        elif self._is_edited(at):
            pass
        elif link is not None and self._is_spoken(at, self._shared[at]):
            is_deeper = len(self._turns[at].scope) > len(self._turns[link].scope)
            self._begin(at, "subagent" if is_deeper or not self._is_one_agent(link, at) else "fork", link)
        else:
            self._begin_other(at)

    def _go_on(self, at: int, leader: int) -> None:
        """Go on with the conversation that began with the same prompt; an answer that is left is a fork of it."""
        found = self._of_turn[leader]
        if at == self._chosen[leader] and self._is_answered(leader) and len(found.turns) == 1:
            found.turns = []
            self._begin(leader, "fork", at)
            self._of_turn[leader] = self._of_turn.pop()
        self._add(at, found)

    def _is_of_other_agent(self, at: int, before: int) -> bool:
        """Return True if a turn has an earlier one's history, and another agent's system prompt."""
        has_systems = self._histories[before].system and self._histories[at].system
        return bool(has_systems) and not self._is_one_agent(before, at)

    def _place_with_agent(self, at: int, link: int) -> None:
        """Place a turn with the history that agents hand to each other: with its agent's turns in it."""
        keys = set(_keys_of(self._asked[at]))
        for before in self._latest():
            if self._is_one_agent(before, at) and self._keys[before][-1] in keys:
                self._add(at, self._of_turn[before])
                return
        self._begin(at, "subagent", link)

    def _add(self, at: int, found: Found) -> None:
        found.turns.append(self._turns[at])
        self._of_turn.append(found)

    def _begin(self, at: int, kind: Kind, origin: int | None) -> None:
        if len(self._found) >= MAX_CONVERSATIONS:
            self._found[-1].others[kind] += 1
        else:
            self._found.append(Found(kind, None if origin is None else self._turns[origin]))
        self._add(at, self._found[-1])

    def _latest(self, pool: Iterable[Found] | None = None) -> list[int]:
        """Return the last turn of each conversation until now, the latest first."""
        found = self._found if pool is None else pool
        return sorted((self._at[each.turns[-1].number] for each in found), reverse=True)

    def _latest_beside(self, at: int) -> list[int]:
        """Return the last turn of each conversation in the same spans as a turn, the latest first."""
        return [each for each in self._latest() if self._turns[each].scope == self._turns[at].scope]

    def _is_edited(self, at: int) -> bool:
        """Place a turn whose history is an earlier one that was edited, shortened or compacted; False if it is none."""
        scope, codes = self._turns[at].scope, self._asked[at]
        edited: list[tuple[bool, int, int]] = []
        for before in sorted(self._latest()[:_CANDIDATES], key=lambda each: self._turns[each].scope != scope):
            has_system = bool(self._histories[at].system)
            if len(scope) > len(self._turns[before].scope) or self._is_apart(before, at):
                continue
            if has_system != bool(self._histories[before].system):
                continue
            if self._is_longer_text(at, before):
                self._add(at, self._of_turn[before])
                return True
            old = self._codes[before]
            shared = common(old, codes)
            once = {code for code in old[shared:] if old.count(code) == 1}
            # A repeated action is evidence only in the place of the last answer.
            is_answered = shared < len(old) and bool(self._histories[before].answers)
            is_kept = is_answered and codes[len(old) - 1 : len(old)] == old[-1:]
            if is_kept or not once.isdisjoint(codes[shared:]):
                edited.append((self._turns[before].scope == scope, len(set(old) & set(codes)), before))
        if not edited:
            return False
        before = max(edited)[-1]
        old = self._codes[before]
        rest, known = codes[common(old, codes) :], set(old)
        is_inserted = rest[0] not in known and len(codes) < len(old)
        if is_inserted or len(codes) < _SHRUNK * len(old):
            self._begin(at, "compacted", before)
        else:
            self._add(at, self._of_turn[before])
        return True

    def _is_longer_text(self, at: int, before: int) -> bool:
        """Return True if a prompt of one message is an earlier one with more at its end, and that isn't continued."""
        old, new = self._histories[before].text, self._histories[at].text
        is_longer = bool(old) and len(new) >= len(old) + _MORE and new.startswith(old)
        return is_longer and self._is_one_agent(before, at) and not self._is_returned_to(before, at)

    def _begin_other(self, at: int) -> None:
        """Begin a conversation with a prompt that extends no history."""
        scope, asked = self._turns[at].scope, self._asked[at]
        if self._leaders[at] == self._leaders[self._main]:
            self._begin(at, "main", None)
            return
        beside = [other for other in range(at) if self._turns[other].scope == scope]
        pool = {self._of_turn[other] for other in beside}
        keys = _keys_of(asked)
        shared = next(length for length in range(len(asked), -1, -1) if not length or keys[length] in self._through)
        owner = self._through[keys[shared]] if shared else None
        if owner is not None and self._of_turn[owner] in pool and self._is_one_agent(owner, at):
            if self._is_spoken(at, shared) or shared == len(asked):
                self._begin(at, "fork", owner)
                return
            pool = {self._of_turn[owner]}
        else:
            shared = 0
        same = next((each for each in self._latest(pool) if self._is_one_agent(each, at)), None)
        if same is None or self._is_apart(same, at):
            self._begin(at, "subagent", self._caller(at))
        elif shared == 0 and self._of_turn[same].kind == "subagent" and beside[-1] != same:
            # Its caller went on meanwhile, or another agent.
            self._begin(at, "subagent", self._caller(at))
        elif not self._is_returned_to(same, at) and self._is_replacement(at, same):
            self._begin(at, "compacted", same)
        elif shared:
            self._begin(at, "fork", same)
        else:
            self._begin(at, "subagent", self._caller(at))

    def _is_returned_to(self, before: int, at: int) -> bool:
        """Return True if a conversation goes on after a turn that is not its own."""
        return any(later > at for later in self._next[before])

    def _is_replacement(self, at: int, before: int) -> bool:
        """Return True if a prompt replaces a history, and is no agent's task."""
        # Workers that are asked the same way one after the other call no tool, as a rule.
        is_worker = self._of_turn[before].kind == "subagent" and not self._turns[at].scope
        return len(self._codes[before]) >= _LONG and (not is_worker or self._histories[before].is_calling)

    def _caller(self, at: int) -> int | None:
        """Return a turn of the conversation that a sub-agent's work is done for; None for the main one."""
        scope, end = self._turns[at].scope, self._ends[at]
        around = [other for other in range(at) if scope[: len(self._turns[other].scope)] == self._turns[other].scope]
        deepest = max((len(self._turns[other].scope) for other in around), default=0)
        latest = self._latest({self._of_turn[other] for other in around if len(self._turns[other].scope) == deepest})
        for before in latest:
            later = [each for each in self._next[before] if each > at]
            if later and min(later) > end:
                # The main conversation asks what to think of several answers to its prompt.
                is_sampled = self._leaders[self._main] == self._leaders[before] and self._main in latest
                return self._main if is_sampled else before
        own = (each for each in latest if self._of_turn[each].kind in ("main", "compacted"))
        return next(own, latest[0] if deepest else None)


def _thread_of(turn: Turn) -> _Thread:
    """Return the key that turns without their history in the prompt share with those before."""
    return turn.prompt.conversation, turn.prompt.request or turn.scope


def _keys_of(codes: Sequence[int]) -> list[int]:
    """Return a hash of the first messages, for each number of them."""
    return list(accumulate(codes, lambda key, code: hash((key, code)), initial=0))
