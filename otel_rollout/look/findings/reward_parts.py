"""Parts of the reward that are hacked: one rises while another falls, or one takes the reward over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.facts.amounts import deviation_of, mean_of
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold, percent, ranked
from otel_rollout.look.findings.finding import Severity
from otel_rollout.look.findings.over_steps import Change, change_of

_FALL: Final = 0.1
"""The part of its size that a reward part must lose to have fallen."""
_MAIN: Final = 0.5
"""The size of a part, by the largest one's, from which on it is wanted: a fall of it counts while the reward rises."""
_LEAST_WEIGHT: Final = 0.01
"""The weight of a part in the reward, in standard deviations, from which on it is paid."""
_RISE_OF_SHARE: Final = 0.25
"""The rise of a part's share of the reward that counts as taking over."""


def _changes(steps: Sequence[JudgedStep]) -> dict[str, Change]:
    names = sorted({name for step in steps for name in step.reward_parts})
    found = ((name, change_of(steps, partial(_part, name), partial(_error, name))) for name in names)
    return {name: change for name, change in found if change is not None}


def _part(name: str, step: JudgedStep) -> float | None:
    return step.reward_parts.get(name)


def _error(name: str, step: JudgedStep) -> float:
    return step.signals.part_errors.get(name, 0.0)


def _size(change: Change) -> float:
    return max(abs(change.first), abs(change.last))


def _traded(steps: Sequence[JudgedStep]) -> Iterator[Measure]:
    changes = _changes(steps)
    falling = {
        name: change for name, change in changes.items() if change.first - change.last > _FALL * _size(change) > 0
    }
    largest = max(map(_size, changes.values()), default=0.0)
    if not falling or not largest:
        return
    loser, fall = max(falling.items(), key=lambda each: each[1].first - each[1].last)
    rewards = change_of(steps, lambda step: step.reward_mean)
    most = max(abs(change.first) for change in changes.values())
    if rewards is not None and rewards.last >= rewards.first and fall.first < _MAIN * most:
        # A small part, or a penalty, is given up for a wanted one.
        return
    for name, change in changes.items():
        rise = change.last - change.first
        if rise > 0:
            detail = (
                f"from {change.first:.3g} to {change.last:.3g} while {loser} falls "
                f"from {fall.first:.3g} to {fall.last:.3g}"
            )
            value = min(rise, fall.first - fall.last) / largest
            yield Measure(
                change.trajectories,
                change.trajectories,
                value,
                name,
                detail,
                loser,
                change.steps,
                change.onset,
                error=max(change.error, fall.error) / largest,
            )


def _are_paid(step: StepContents, found: Measure) -> bool:
    """Return False if one of the two parts is no gain: a penalty, or a number that the reward doesn't depend on.

    It fits the rewards of the step's trajectories by both parts, and looks at their weights.
    """
    names = (found.subject, found.rival)
    known = [each for each in step.trajectories if each.reward is not None and each.reward_parts.keys() >= set(names)]
    rises, falls = ([each.reward_parts[name] for each in known] for name in names)
    rewards = [each.reward or 0.0 for each in known]
    if not known or deviation_of(rewards) == 0:
        return True
    both, of_riser, of_loser = _likeness(rises, falls), _likeness(rises, rewards), _likeness(falls, rewards)
    rest = 1 - both * both
    # Parts that always go together can't be distinguished.
    return rest < _LEAST_WEIGHT or all(
        deviation_of(part) == 0 or (own - other * both) / rest > _LEAST_WEIGHT
        for part, own, other in ((rises, of_riser, of_loser), (falls, of_loser, of_riser))
    )


def _likeness(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the correlation of two amounts; 0 if one of them is the same everywhere."""
    spread, other_spread = deviation_of(first), deviation_of(second)
    if not spread or not other_spread:
        return 0.0
    mean, other_mean = mean_of(first), mean_of(second)
    # Divided first: the product of two large amounts is infinite.
    pairs = zip(first, second, strict=True)
    return mean_of([(one - mean) / spread * ((other - other_mean) / other_spread) for one, other in pairs])


def _dominant(steps: Sequence[JudgedStep]) -> Iterator[Measure]:
    changes = _changes(steps)
    first, last = (sum(abs(getattr(change, end)) for change in changes.values()) for end in ("first", "last"))
    if len(changes) < 2 or not first or not last:
        return
    for name, change in changes.items():
        # A penalty that the policy learns to avoid leaves the others alone, which is no fault.
        others = max(first - abs(change.first), last - abs(change.last))
        before, after = abs(change.first) / first, abs(change.last) / (abs(change.last) + others)
        if after - before >= _RISE_OF_SHARE:
            detail = f"from {percent(before)} to {percent(after)}"
            rest_error = math.hypot(*(other.last_error for key, other in changes.items() if key != name))
            own = abs(change.last)
            yield Measure(
                change.trajectories,
                change.trajectories,
                after,
                name,
                detail,
                compared=change.steps,
                onset=change.onset,
                error=math.hypot(others * change.last_error, own * rest_error) / (own + others) ** 2,
            )


def _evidence(step: StepContents, part: str) -> list[TrajectorySummary]:
    known = [each.reward_parts[part] for each in step.trajectories if part in each.reward_parts]
    lowest = min(known, default=0.0)
    return ranked(
        step.trajectories, lambda each: each.reward_parts[part] - lowest + 1e-9 if part in each.reward_parts else 0
    )


CHECKS = (
    Check(
        name="reward_part_traded",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.1,
            "the smaller of one part's rise and another's fall, from the first third of the steps to the last, by "
            "the largest part",
            "parts drift by a few percent with the prompts; above it the policy gives one up for another, the mark "
            "of a hacked reward",
        ),
        least=16,
        sentence=lambda found: f"the reward's part {found.name} rises {found.detail}",
        advice="read trajectories that have most of it: do they deserve it? Bound the part, or give it only with "
        "the other",
        evidence=_evidence,
        over_steps=_traded,
        is_confirmed=_are_paid,
    ),
    Check(
        name="reward_part_dominates",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.9,
            "share of a part in the sum of all parts' means in the last third of the steps, with the others no smaller "
            "than in the first, if it rose by 0.25 or more",
            "above it the other parts hardly change which rollout is better, though they once did",
        ),
        least=16,
        sentence=lambda found: (
            f"the part {found.name} went {found.detail} of the reward: the others hardly count any more"
        ),
        advice="bound the part, or weigh the others more",
        evidence=_evidence,
        over_steps=_dominant,
    ),
)
