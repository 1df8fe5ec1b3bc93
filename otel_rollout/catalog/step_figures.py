"""Figures of a step that a change over steps shows in: sizes of groups, speed, prompts, equal answers, their form."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from otel_rollout.facts.amounts import is_same_reward, mean_of
from otel_rollout.facts.table import TrajectorySummary

MAX_PROMPTS: Final = 2048
"""The prompts with the lowest hashes are kept, so that steps keep the same ones."""
LENGTH_REASONS: Final = frozenset({"length", "max_tokens", "max_length", "model_length", "max_output_tokens"})
"""Finish reasons of an engine that reached its limit of tokens."""
UNTRAINED: Final = frozenset({"stale", "filtered", "failed", "surplus"})
"""Fates without training: such a trajectory needs no reward."""

_SLOWEST: Final = 20
"""One in so many is left out of the speed and the wall time: a straggler is no slow step."""
_FORM_WORDS: Final = 8
_NUMBERS: Final = re.compile(r"[0-9]+(?:[.,][0-9]+)*")
_DISPUTE: Final = 0.25
"""The part of the range of rewards that equal trajectories may differ by."""

PromptFigures = tuple[int, float | None, float | None]
"""A prompt's number of rollouts with a reward, their mean reward, and the mean output tokens."""


class Speed(NamedTuple):
    """The engine's speed in one step, without the slowest twentieth.

    Args:
        tokens: Output tokens.
        seconds: Seconds in generations, summed over trajectories.
    """

    tokens: float = 0.0
    seconds: float = 0.0


class Form(NamedTuple):
    """The form that most answers of a step share.

    Args:
        text: Eight words in a row, or a whole answer of fewer; empty without one.
        answers: The trajectories that have it.
        mean: Their mean reward; None if it is unknown.
        other_mean: The mean reward of the others.
    """

    text: str = ""
    answers: int = 0
    mean: float | None = None
    other_mean: float | None = None


def prompt_key(summary: TrajectorySummary) -> str | None:
    """Return a key by which steps recognise a prompt; None without a number of the sample.

    Its first line is a part: a loop may number the prompts of each step from 0.
    """
    if summary.sample_index is None:
        return None
    return f"{crc32(f'{summary.sample_index} {summary.prompt}'.encode('utf-8', 'surrogatepass')):08x}"


def figures_of_prompts(summaries: Iterable[TrajectorySummary]) -> dict[str, PromptFigures]:
    """Return the figures of each prompt, by its key."""
    found: dict[str, list[TrajectorySummary]] = defaultdict(list)
    for each in summaries:
        if (key := prompt_key(each)) is not None:
            found[key].append(each)
    return {key: _of_prompt(found[key]) for key in sorted(found)[:MAX_PROMPTS]}


def _of_prompt(rollouts: Sequence[TrajectorySummary]) -> PromptFigures:
    rewards = [each.reward for each in rollouts if each.reward is not None]
    return len(rewards), mean_of_known(rewards), mean_of_known(each.output_tokens for each in rollouts)


def mean_of_known(amounts: Iterable[float | None]) -> float | None:
    """Return the mean of the amounts that are known; None if none is."""
    known = [amount for amount in amounts if amount is not None]
    return mean_of(known) if known else None


def group_sizes(summaries: Iterable[TrajectorySummary]) -> dict[str, int]:
    """Return the number of groups by their number of rollouts, as text."""
    sizes = Counter(each.sample_index for each in summaries if each.sample_index is not None)
    return {str(size): number for size, number in sorted(Counter(sizes.values()).items())}


def is_cut_off(summary: TrajectorySummary) -> bool:
    """Return True if a trajectory was truncated, or its last generation reached the limit of tokens."""
    return summary.status == "truncated" or (summary.status == "completed" and summary.finish_reason in LENGTH_REASONS)


def is_rewardable(summary: TrajectorySummary) -> bool:
    """Return True if training needs a reward of a trajectory: it ended, not in an error, and nobody left it out."""
    return summary.has_root and summary.status not in ("error", "cancelled") and summary.fate not in UNTRAINED


def speed_of(summaries: Iterable[TrajectorySummary]) -> Speed:
    """Return the engine's speed."""
    known = sorted(
        ((each.llm_seconds, each.output_tokens) for each in summaries if each.output_tokens and each.llm_seconds > 0),
        key=lambda pair: pair[0] / pair[1],
    )
    kept = known[: len(known) - len(known) // _SLOWEST]
    return Speed(float(sum(tokens for _, tokens in kept)), sum(seconds for seconds, _ in kept))


def wall_seconds(summaries: Iterable[TrajectorySummary]) -> float:
    """Return the seconds until all but a twentieth of the trajectories had ended, and all but one at least.

    Those that were cancelled don't count.
    """
    awaited = [each for each in summaries if each.status != "cancelled"]
    if not awaited:
        return 0.0
    ends = sorted(each.end_time for each in awaited)
    last = ends[-1 - max(1, len(ends) // _SLOWEST)] if len(ends) > 1 else ends[-1]
    return max(0.0, (last - min(each.start_time for each in awaited)) / 1e9)


def disputed_of(
    summaries: Iterable[TrajectorySummary],
) -> tuple[list[TrajectorySummary], list[TrajectorySummary]]:
    """Return the trajectories with the same turns as a sibling, and the ones whose reward differs from its."""
    known = [each for each in summaries if each.reward is not None and each.sample_index is not None]
    rewards = [each.reward or 0.0 for each in known] or [0.0]
    scale = max(rewards) - min(rewards)
    equal: dict[tuple[object, ...], list[TrajectorySummary]] = defaultdict(list)
    for each in known:
        if each.turn_hashes and all(each.turn_hashes):
            equal[each.sample_index, each.prompt, each.status, each.turn_hashes].append(each)
    twins, disputed = [], []
    for same in equal.values():
        if len(same) > 1:
            twins += same
            rewards = [each.reward or 0.0 for each in same]
            spread = max(rewards) - min(rewards)
            if spread > _DISPUTE * scale and not is_same_reward(spread, 0.0):
                disputed += same
    return twins, disputed


def form_of(summaries: Sequence[TrajectorySummary]) -> Form:
    """Return the form that most answers share; a form of one prompt doesn't count."""
    prompts: dict[str, set[object]] = defaultdict(set)
    counts: Counter[str] = Counter()
    pieces = [_pieces(each.answer) for each in summaries]
    for each, found in zip(summaries, pieces, strict=True):
        counts.update(found)
        for piece in found:
            prompts[piece].add(each.sample_index)
    shared = [(number, piece) for piece, number in counts.items() if len(prompts[piece]) > 1]
    if not shared:
        return Form()
    number, text = max(shared)
    of = [(text in found, each.reward) for each, found in zip(summaries, pieces, strict=True)]
    means = (mean_of_known(reward for has_text, reward in of if has_text is having) for having in (True, False))
    return Form(text, number, *means)


def has_form(summary: TrajectorySummary, text: str) -> bool:
    """Return True if a trajectory's answer has a form."""
    return text in _pieces(summary.answer)


def _pieces(answer: str) -> frozenset[str]:
    words = _NUMBERS.sub("#", answer.lower()).split()
    if len(words) < _FORM_WORDS:
        # In an answer of few words the number matters.
        return frozenset({" ".join(answer.lower().split())} if words else ())
    return frozenset(" ".join(words[at : at + _FORM_WORDS]) for at in range(len(words) - _FORM_WORDS + 1))
