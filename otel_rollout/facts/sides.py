"""The two sides of a trajectory: the policy, and a simulated user, whose conversations are found apart.

Marks decide (`rollout.role`). Without one, two conversations are two sides if the answers of each are the user's words
in the other; then the side that is trained, or has token ids or versions of weights, is the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_rollout import semconv
from otel_rollout.facts.exact_conversations import Found, Turn, exact_conversations
from otel_rollout.facts.prompts import Prompts

if TYPE_CHECKING:
    from otel_rollout.facts.histories import Histories

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
        is_inferred: True if the messages were compared, since scopes, marks and the texts of prompts did not decide.
    """

    found: list[Found]
    users: frozenset[int] = frozenset()
    is_guessed: bool = False
    is_undecided: bool = False
    is_inferred: bool = False


def find_sides(turns: Sequence[Turn], prompts: Prompts, read: Callable[[], Histories] | None = None) -> Sides | None:
    """Return the conversations of a trajectory; None if their messages are needed, and can't be had.

    Args:
        turns: Its turns, by start.
        prompts: The marks on its spans.
        read: Returns their messages.
    """
    roles = _roles_of(turns, prompts)
    is_user = [role == semconv.USER for role in roles]
    sides = _apart(turns, is_user, exact_conversations)
    if sides is not None and (any(roles) or not _is_served(sides.found, turns, prompts)):
        return sides
    return None if read is None else _infer(turns, roles, prompts, read())._replace(is_inferred=True)


def marked_sides(turns: Sequence[Turn], prompts: Prompts) -> Sides | None:
    """Return the turns of marked users, without conversations; None if the messages may show more users.

    Args:
        turns: The turns, by start.
        prompts: The marks on their spans.
    """
    roles = _roles_of(turns, prompts)
    # A user is guessed if only its turns aren't trained.
    are_trained = {any(mark.is_trained for mark in prompts.marks(turn.span_id, turn.scope)) for turn in turns}
    if len(are_trained) > 1 and not any(roles):
        return None
    users = (turn.span_id for turn, role in zip(turns, roles, strict=True) if role == semconv.USER)
    return Sides([], frozenset(users))


def _roles_of(turns: Sequence[Turn], prompts: Prompts) -> list[str]:
    return [next((mark.role for mark in prompts.marks(turn.span_id, turn.scope) if mark.role), "") for turn in turns]


def _is_served(found: Sequence[Found], turns: Sequence[Turn], prompts: Prompts) -> bool:
    """Return True if a sub-agent is trained, and its caller isn't: that may be a simulated user."""
    if len(found) < 2 or _is_trained(found[0], turns, prompts):
        return False
    return any(each.kind == "subagent" and _is_trained(each, turns, prompts) for each in found)


def _infer(turns: Sequence[Turn], roles: Sequence[str], prompts: Prompts, histories: Histories) -> Sides:
    # Loaded by readers alone.
    from otel_rollout.facts.inferred_conversations import infer_conversations

    def find(turns: Sequence[Turn]) -> list[Found]:
        return infer_conversations(turns, histories)

    if semconv.USER in roles:
        return _apart(turns, [role == semconv.USER for role in roles], find) or Sides([])
    found = find(turns)
    if len(found) < 2 or any(roles):
        return Sides(found)
    for one, other in _facing(found, turns, prompts, histories):
        is_one, is_other = (_is_trained(found[each], turns, prompts) for each in (one, other))
        if is_one is not is_other:
            user = other if is_one else one
            own = {turn for at in _family(found, user) for turn in found[at].turns}
            sides = _apart(turns, [at in own for at in range(len(turns))], find) or Sides([])
            return sides._replace(is_guessed=True)
        # Agents that are both marked as training data are two policies.
        agents = [{agent for turn in found[each].turns for agent in turns[turn].scope} for each in (one, other)]
        is_play = all(any(mark.is_trained for mark in map(prompts.agents.get, each) if mark) for each in agents)
        return Sides(found, is_undecided=not is_play)
    return Sides(found)


def _is_trained(found: Found, turns: Sequence[Turn], prompts: Prompts) -> bool:
    own = [turns[at] for at in found.turns]
    return any(mark.is_trained for turn in own for mark in prompts.marks(turn.span_id, turn.scope))


def _facing(
    found: Sequence[Found], turns: Sequence[Turn], prompts: Prompts, histories: Histories
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of conversations whose answers are the user's words in each other.

    A sub-agent inside a scope of its own is none, unless it is trained, and its caller isn't.
    """
    from otel_rollout.facts.histories import USER

    first = [at for at, each in enumerate(found) if each.kind in ("main", "subagent")][:_MAX_COMPARED]
    said, heard = {}, {}
    for at in first:
        ids = [turns[turn].span_id for turn in found[at].turns]
        known = [history for span_id in ids if (history := histories.of_span.get(span_id)) is not None]
        said[at] = {code >> 3 for history in known for code in history.answers}
        heard[at] = {code >> 3 for history in known for code in history.codes if code & 7 == USER}
    for place, one in enumerate(first):
        for other in first[place + 1 :]:
            there, back = len(said[one] & heard[other]), len(said[other] & heard[one])
            if min(there, back) == 0 or max(there, back) < _EXCHANGES:
                continue
            outer, inner = sorted((one, other), key=lambda at: len(turns[found[at].turns[0]].scope))
            is_deeper = len(turns[found[outer].turns[0]].scope) < len(turns[found[inner].turns[0]].scope)
            if not is_deeper or (
                _is_trained(found[inner], turns, prompts) and not _is_trained(found[outer], turns, prompts)
            ):
                yield one, other


def _family(found: Sequence[Found], first: int) -> set[int]:
    """Return a conversation, and the forks and compactions that come from it."""
    family = {first}
    for at, each in enumerate(found):
        if each.parent in family and each.kind in ("fork", "compacted"):
            family.add(at)
    return family


def _apart(
    turns: Sequence[Turn], is_user: Sequence[bool], find: Callable[[Sequence[Turn]], list[Found] | None]
) -> Sides | None:
    """Return the conversations of both sides, each found without the other's turns; None if one can't be."""
    found: list[Found] = []
    for side in (False, True):
        places = [at for at, of_user in enumerate(is_user) if of_user is side]
        own = find([turns[at] for at in places])
        if own is None:
            return None
        for each in own:
            each.kind = "user" if side else each.kind
            each.turns = [places[turn] for turn in each.turns]
            each.origin = None if each.origin is None else places[each.origin]
            each.parent = None if each.parent is None else len(found) + each.parent
            each.parent_turn = None if each.parent_turn is None else places[each.parent_turn]
        found += own
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
