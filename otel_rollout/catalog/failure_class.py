"""Classifies failures by exception type, span kind and status: model, tool, environment, engine, reward or time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from otel_rollout.facts.amounts import is_same_reward
from otel_rollout.facts.figures import SpanError
from otel_rollout.facts.table import TrajectorySummary

MODEL: Final = "model"
TOOL: Final = "tool"
ENVIRONMENT: Final = "environment"
ENGINE: Final = "engine"
REWARD: Final = "reward"
TIMEOUT: Final = "timeout"
UNKNOWN: Final = "unknown"

FAILURE_CLASSES: Final = (MODEL, TOOL, ENVIRONMENT, ENGINE, REWARD, TIMEOUT, UNKNOWN)
"""The classes, in the order in which they are listed."""

UNRESOLVED: Final = "unresolved"
BLAMES: Final[Mapping[str, tuple[str, ...]]] = {
    MODEL: (MODEL,),
    ENVIRONMENT: (ENVIRONMENT, ENGINE, REWARD, TIMEOUT),
    UNRESOLVED: (TOOL, UNKNOWN),
}
"""The classes by who is to blame: a tool fails for what the model wrote, or by itself, which no span shows."""

_OF_KIND: Final = {"LLM": ENGINE, "TOOL": TOOL, "EVALUATOR": REWARD}
_ENVIRONMENT_TYPES: Final = re.compile(
    "Connect|Disconnected|Protocol|BrokenPipe|IncompleteRead|MaxRetry|gaierror|Actor(Died|Unavailable)|RayActor"
    "|Worker(Crashed|Died)|ChildProcess|ProcessLookup|Container|Memory|^(API|Client)?(OS|Read|Write)?Error$"
)
"""Exceptions of connections, processes and machines, by their names: not of what a tool was asked to do."""
_TIMEOUT_TYPES: Final = frozenset({"DeadlineExceeded", "TimeLimitExceeded", "TimeLimitExceededError"})
_ABORTED: Final = frozenset({"abort", "aborted", "error"})
"""Finish reasons of an engine that gave a request up."""


Survived: TypeAlias = frozenset[tuple[str, str]]
"""Failures of tools that cost no reward: the tool's name and the exception's class."""


def failure_class(
    summary: TrajectorySummary,
    worst_reward: float | None = None,
    survived: Survived = frozenset(),
    *,
    has_turns: bool = True,
) -> str | None:
    """Return the class of a trajectory's failure; None if it didn't fail, or has no root yet.

    It failed if it ended in an error, was truncated, was cancelled and has a reward all the same, or has the worst
    reward of its step. One that was cancelled without a reward is left out of training: that is no failure when a run
    stops, or has enough rollouts.

    Args:
        summary: The trajectory.
        worst_reward: The lowest reward of its step; None if all rewards are the same, or none is known.
        survived: The failures that are not to blame, since others have them and good rewards.
        has_turns: False if no trajectory of its step has a turn: then generations are not traced.
    """
    if not summary.has_root:
        return None
    if summary.status == "error" or (summary.status is None and summary.error_type is not None):
        return _of_exception(summary, has_turns=has_turns)
    if summary.status == "cancelled":
        return None if summary.reward is None else TIMEOUT
    has_lost_reward = summary.reward is None and any(error.kind == "EVALUATOR" for error in summary.errors)
    if summary.status == "truncated" or is_worst(summary, worst_reward) or has_lost_reward:
        return _of_end(summary, survived, has_turns=has_turns)
    return None


def survived_failures(summaries: Sequence[TrajectorySummary], worst_reward: float | None) -> Survived:
    """Return the failures of tools that leave half the usual chance, or more, of more than the worst reward.

    Args:
        summaries: The trajectories of a step.
        worst_reward: The lowest reward of the step.
    """
    ended = [each for each in summaries if each.reward is not None and each.status == "completed"]
    well: dict[tuple[str, str], list[bool]] = {}
    for each in ended:
        for failure in {(error.name, error.type) for error in _left(each)}:
            well.setdefault(failure, []).append(not is_worst(each, worst_reward))
    usual = sum(not is_worst(each, worst_reward) for each in ended)
    found = set()
    for failure, results in well.items():
        others, of_others = len(ended) - len(results), usual - sum(results)
        # A single good one may be luck.
        if sum(results) > 1 and 2 * sum(results) * others >= of_others * len(results):
            found.add(failure)
    return frozenset(found)


def is_worst(summary: TrajectorySummary, worst_reward: float | None) -> bool:
    """Return True if a trajectory has the worst reward of its step."""
    return (
        worst_reward is not None
        and summary.reward is not None
        and (summary.reward <= worst_reward or is_same_reward(summary.reward, worst_reward))
    )


def _left(summary: TrajectorySummary) -> list[SpanError]:
    """Return the failures of tools, and of anything before the first turn, that nothing mended."""
    return [each for each in summary.errors if not each.is_mended and (each.kind == "TOOL" or _is_early(each))]


def _is_early(error: SpanError) -> bool:
    """Return True if a failure was there before the model wrote anything."""
    return error.is_first and error.kind not in ("EVALUATOR", "LLM")


def _of_exception(summary: TrajectorySummary, *, has_turns: bool) -> str:
    """Return the class of the exception that the root ended with, by the innermost span that ended with it."""
    ended_with = _class_name(summary.error_type or "")
    same = [each for each in summary.errors if _class_name(each.type) == ended_with]
    if has_turns and any(map(_is_early, same)):
        return _of_type(ended_with) or ENVIRONMENT
    sources = [each for each in same if each.kind in _OF_KIND]
    if sources:
        return _of_error(sources[-1])
    return _of_type(ended_with) or UNKNOWN


def _of_end(summary: TrajectorySummary, survived: Survived, *, has_turns: bool) -> str:
    """Return the class of a failure that no exception ended."""
    for error in summary.errors:
        if error.kind == "EVALUATOR" and not error.is_mended:
            return _of_error(error)
    if summary.finish_reason in _ABORTED:
        return ENGINE
    left = [each for each in _left(summary) if (each.name, each.type) not in survived]
    early = next((each for each in left if has_turns and _is_early(each)), None)
    if early is not None:
        return _of_type(_class_name(early.type)) or ENVIRONMENT
    if summary.unknown_tool_calls or summary.unparsed_tool_calls:
        return MODEL
    left = [each for each in left if each.kind == "TOOL"]
    # A trajectory that was cut off had no turn left to mend one failed call.
    return _of_error(left[-1]) if len(left) > (summary.status == "truncated") else MODEL


def _of_error(error: SpanError) -> str:
    name = _class_name(error.type)
    of_type = _of_type(name)
    if of_type == TIMEOUT or (of_type and error.kind == "TOOL"):
        return of_type
    return _OF_KIND[error.kind]


def _of_type(name: str) -> str | None:
    if name in _TIMEOUT_TYPES or "Timeout" in name:
        return TIMEOUT
    return ENVIRONMENT if _ENVIRONMENT_TYPES.search(name) else None


def _class_name(exception_type: str) -> str:
    return exception_type.rpartition(".")[2]
