"""The two sides of a trajectory: the policy, and a simulated user, whose conversations are found apart.

Marks decide (`rollout.role`). Without one, two conversations are two sides if the answers of each are the user's words
in the other; then the side that is trained, or has token ids or versions of weights, is the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from otel_rollout import semconv
from otel_rollout.facts.compact_spans import Turn
from otel_rollout.facts.exact_conversations import Found, exact_conversations

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


def find_sides(turns: Sequence[Turn], read: Callable[[], Histories] | None = None) -> Sides | None:
    """Return the conversations of a trajectory; None if their messages are needed, and can't be had.

    Args:
        turns: Its turns, by start.
        read: Returns their messages.
    """
    sides = _apart(turns, _marked(turns), exact_conversations)
    if sides is not None and (any(turn.role for turn in turns) or not _is_served(sides.found)):
        return sides
    return None if read is None else _infer(turns, read())._replace(is_inferred=True)


def marked_sides(turns: Sequence[Turn]) -> Sides | None:
    """Return the turns of marked users, without conversations; None if the messages may show more users.

    Args:
        turns: The turns, by start.
    """
    # A user is guessed if only its turns aren't trained.
    if len({turn.is_trained for turn in turns}) > 1 and not any(turn.role for turn in turns):
        return None
    return Sides([], _marked(turns))


def _marked(turns: Sequence[Turn]) -> frozenset[int]:
    return frozenset(turn.row.span_id for turn in turns if turn.role == semconv.USER)


def _is_served(found: Sequence[Found]) -> bool:
    """Return True if a sub-agent is trained, and its caller isn't: that may be a simulated user."""
    return (
        len(found) > 1
        and not found[0].is_trained
        and any(each.kind == "subagent" and each.is_trained for each in found)
    )


def _infer(turns: Sequence[Turn], histories: Histories) -> Sides:
    # Loaded by readers alone.
    from otel_rollout.facts.inferred_conversations import infer_conversations

    def find(turns: Sequence[Turn]) -> list[Found]:
        return infer_conversations(turns, histories)

    if users := _marked(turns):
        return _apart(turns, users, find) or Sides([])
    found = find(turns)
    pair = None if len(found) < 2 or any(turn.role for turn in turns) else _facing(found, histories)
    if pair is None:
        return Sides(found)
    one, other = pair
    if one.is_trained is not other.is_trained:
        family = {other if one.is_trained else one}
        for each in found:
            # Its forks and compactions, which come later.
            if each.parent in family and each.kind in ("fork", "compacted"):
                family.add(each)
        users = frozenset(turn.row.span_id for each in family for turn in each.turns)
        return (_apart(turns, users, find) or Sides([]))._replace(is_guessed=True)
    # Agents that are both marked as training data are two policies.
    is_play = all(any(mark.is_trained for turn in each.turns for mark in turn.marks[1:]) for each in pair)
    return Sides(found, is_undecided=not is_play)


def _facing(found: Sequence[Found], histories: Histories) -> tuple[Found, Found] | None:
    """Return the first two conversations whose answers are the user's words in each other; None if there are none.

    A sub-agent inside a scope of its own is none, unless it is trained, and its caller isn't.
    """
    from otel_rollout.facts.histories import USER

    said, heard = {}, {}
    first = [each for each in found if each.kind in ("main", "subagent")][:_MAX_COMPARED]
    for each in first:
        known = [histories.of_span[turn.row.span_id] for turn in each.turns if turn.row.span_id in histories.of_span]
        said[each] = {code >> 3 for history in known for code in history.answers}
        heard[each] = {code >> 3 for history in known for code in history.codes if code & 7 == USER}
    for pair in combinations(first, 2):
        outer, inner = sorted(pair, key=lambda each: len(each.turns[0].scope))
        there, back = len(said[outer] & heard[inner]), len(said[inner] & heard[outer])
        is_beside = len(outer.turns[0].scope) == len(inner.turns[0].scope)
        can_be = is_beside or (inner.is_trained and not outer.is_trained)
        if can_be and min(there, back) and max(there, back) >= _EXCHANGES:
            return pair
    return None


def _apart(
    turns: Sequence[Turn], users: frozenset[int], find: Callable[[Sequence[Turn]], list[Found] | None]
) -> Sides | None:
    """Return the conversations of both sides, each found without the other's turns; None if one can't be."""
    own = find([turn for turn in turns if turn.row.span_id not in users])
    others = find([turn for turn in turns if turn.row.span_id in users])
    if own is None or others is None:
        return None
    for each in others:
        each.kind = "user"
        if own and each.parent is None:
            each.parent = next(each for each in own if each.kind == "main")
            each.parent_turn = next(reversed(each.above), None)
    return Sides(sorted([*own, *others], key=lambda each: each.start), users)
