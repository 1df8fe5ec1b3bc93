"""The two sides of a trajectory: the policy, and a simulated user, whose conversations are found apart.

Marks decide (`rollout.role`). Without one, two conversations are two sides if the answers of each are the user's words
in the other; then the side that is trained, or has token ids or versions of weights, is the policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from otel_rollout import semconv
from otel_rollout.facts.conversation_finder import Found, find_conversations
from otel_rollout.facts.histories import USER as USER_CODE
from otel_rollout.facts.histories import Histories
from otel_rollout.facts.turn_links import Turn

_EXCHANGES: Final = 2
"""The answers of one side that the other must have as the user's: an agent that asks another once is no simulator."""
_MAX_COMPARED: Final = 16
"""The first conversations that are compared with each other."""


class Sides(NamedTuple):
    """The conversations of both sides.

    Args:
        found: The conversations, in the order of their first turns; a simulated user's are of the kind `user`.
        users: The spans of a simulated user's turns.
        is_guessed: True if the policy was recognised by its training data, and not by a mark.
        is_undecided: True if two sides speak, and nothing shows which one is the policy.
    """

    found: list[Found]
    users: frozenset[int] = frozenset()
    is_guessed: bool = False
    is_undecided: bool = False


def find_sides(turns: Sequence[Turn], histories: Histories) -> Sides:
    """Return the conversations of a trajectory."""
    roles = [_role_of(turn, histories) for turn in turns]
    if semconv.USER in roles:
        return _apart(turns, histories, [role == semconv.USER for role in roles])
    found = find_conversations(turns, histories)
    if len(found) < 2 or any(roles):
        return Sides(found)
    for one, other in _facing(found, turns, histories):
        is_one, is_other = (_is_trained(found[each], turns, histories) for each in (one, other))
        if is_one is not is_other:
            user = other if is_one else one
            own = {turn for at in _family(found, user) for turn in found[at].turns}
            return _apart(turns, histories, [at in own for at in range(len(turns))])._replace(is_guessed=True)
        # Agents that are both marked as training data are two policies.
        agents = [{agent for turn in found[each].turns for agent in turns[turn].scope} for each in (one, other)]
        is_play = all(any(mark.is_trained for mark in map(histories.agents.get, each) if mark) for each in agents)
        return Sides(found, is_undecided=not is_play)
    return Sides(found)


def _role_of(turn: Turn, histories: Histories) -> str:
    """Return the role of a turn, or of the innermost marked agent around it; empty without a mark."""
    return next((mark.role for mark in histories.marks(turn.span_id, turn.scope) if mark.role), "")


def _is_trained(found: Found, turns: Sequence[Turn], histories: Histories) -> bool:
    own = [turns[at] for at in found.turns]
    return any(mark.is_trained for turn in own for mark in histories.marks(turn.span_id, turn.scope))


def _facing(found: Sequence[Found], turns: Sequence[Turn], histories: Histories) -> Iterator[tuple[int, int]]:
    """Yield the pairs of conversations whose answers are the user's words in each other.

    A sub-agent inside a scope of its own is none, unless it is trained, and its caller isn't.
    """
    first = [at for at, each in enumerate(found) if each.kind in ("main", "subagent")][:_MAX_COMPARED]
    said, heard = {}, {}
    for at in first:
        known = [history for turn in found[at].turns if (history := turns[turn].history) is not None]
        said[at] = {code >> 3 for history in known for code in history.answers}
        nodes = {node for history in known for node in histories.path(history.asked)}
        heard[at] = {code >> 3 for node in nodes if (code := histories.codes[node]) & 7 == USER_CODE}
    for place, one in enumerate(first):
        for other in first[place + 1 :]:
            there, back = len(said[one] & heard[other]), len(said[other] & heard[one])
            if min(there, back) == 0 or max(there, back) < _EXCHANGES:
                continue
            outer, inner = sorted((one, other), key=lambda at: len(turns[found[at].turns[0]].scope))
            is_deeper = len(turns[found[outer].turns[0]].scope) < len(turns[found[inner].turns[0]].scope)
            if not is_deeper or (
                _is_trained(found[inner], turns, histories) and not _is_trained(found[outer], turns, histories)
            ):
                yield one, other


def _family(found: Sequence[Found], first: int) -> set[int]:
    """Return a conversation, and the forks and compactions that come from it."""
    family = {first}
    for at, each in enumerate(found):
        if each.parent in family and each.kind in ("fork", "compacted"):
            family.add(at)
    return family


def _apart(turns: Sequence[Turn], histories: Histories, is_user: Sequence[bool]) -> Sides:
    """Return the conversations of both sides, each found without the other's turns."""
    found: list[Found] = []
    for side in (False, True):
        places = [at for at, of_user in enumerate(is_user) if of_user is side]
        before = len(found)
        found += find_conversations([turns[at] for at in places], histories)
        for each in found[before:]:
            each.kind = "user" if side else each.kind
            each.turns = [places[turn] for turn in each.turns]
            each.parent = None if each.parent is None else before + each.parent
            each.parent_turn = None if each.parent_turn is None else places[each.parent_turn]
    main = next((at for at, each in enumerate(found) if each.kind == "main"), None)
    for each in found:
        if main is not None and each.kind == "user" and each.parent is None:
            each.parent = main
            each.parent_turn = max((turn for turn in found[main].turns if turn < each.turns[0]), default=None)
    order = sorted(range(len(found)), key=lambda at: found[at].turns[0])
    numbers = {at: number for number, at in enumerate(order)}
    for each in found:
        each.parent = None if each.parent is None else numbers[each.parent]
    users = frozenset(turn.span_id for turn, of_user in zip(turns, is_user, strict=True) if of_user)
    return Sides([found[at] for at in order], users)
