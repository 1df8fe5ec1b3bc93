"""Rewards that fall over the steps of a run, on the prompts that were there before, and prompts that are forgotten."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from otel_rollout.catalog import reward_scale
from otel_rollout.catalog.reward_scale import Scale
from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.amounts import error_of_mean, mean_of
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold
from otel_rollout.look.findings.finding import Severity
from otel_rollout.look.findings.over_steps import LEAST_STEPS, comparable_steps

_LEAST_PROMPTS: Final = 8
"""The fewest prompts that two parts of a run are compared by."""
_SURE: Final = 3.0
"""The standard errors that a fall must have."""
_NEW_PROMPTS: Final = 0.5
"""The part of its level that the reward may keep on other prompts: those may be harder."""
_CHANGED_DATA: Final = 0.2
"""The same if prompts came again until then: the run has other data now, harder ones by intention."""
FAILS: Final = 16
"""The rollouts in a row that must fail until a prompt is forgotten."""
_FAILED: Final = 0.05
_SOLVED: Final = 0.5


def scale_of(steps: Sequence[StepSummary]) -> Scale | None:
    """Return the scale of the rewards of a run's steps; None if there is none, or all rewards are one."""
    found = reward_scale.scale_of((step.reward_lowest, step.reward_highest) for step in steps)
    return found if found is not None and 0 < found.size < math.inf else None


def reward_change(before: Sequence[JudgedStep], after: Sequence[JudgedStep]) -> tuple[float, float, bool]:
    """Return the change of the mean reward, its standard error, and True if it is of prompts that both have."""
    earlier, later = (_means(part) for part in (before, after))
    changes = [later[key] - earlier[key] for key in earlier.keys() & later.keys()]
    if len(changes) >= _LEAST_PROMPTS:
        return mean_of(changes), error_of_mean(changes), True
    (old, old_error), (new, new_error) = (_level(part) for part in (before, after))
    return new - old, math.hypot(old_error, new_error), False


def _means(steps: Sequence[JudgedStep]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for step in steps:
        for key, (_, reward, _) in step.signals.prompts.items():
            if reward is not None:
                found.setdefault(key, []).append(reward)
    return {key: mean_of(rewards) for key, rewards in found.items()}


def _recur(steps: Sequence[JudgedStep]) -> bool:
    """Return True if a prompt is in two of the steps."""
    keys = [key for step in steps for key in step.signals.prompts]
    return len(set(keys)) < len(keys)


def _level(steps: Sequence[JudgedStep]) -> tuple[float, float]:
    """Return the mean reward of steps and its standard error; the rollouts of a prompt count as one."""
    means = [step.reward_mean or 0.0 for step in steps]
    errors = [(step.reward_std or 0.0) / math.sqrt(max(1, step.groups or step.rewarded)) for step in steps]
    return mean_of(means), math.hypot(*errors) / len(steps)


def _falls_in(run: Sequence[JudgedStep]) -> Iterator[tuple[JudgedStep, Measure]]:
    steps = [step for step in comparable_steps(run) if step.reward_mean is not None]
    scale = scale_of(steps)
    if len(steps) < LEAST_STEPS or scale is None:
        return
    means = [step.reward_mean or 0.0 for step in steps]
    at = max(range(2, len(steps)), key=lambda cut: _weight(means, cut))
    before, after = steps[:at], steps[at:]
    change, error, is_same = reward_change(before, after)
    old, new = mean_of(means[:at]), mean_of(means[at:])
    left = _CHANGED_DATA if _recur(before) else _NEW_PROMPTS
    if -change < _SURE * error or (not is_same and scale.place(new) > left * scale.place(old)):
        return
    of = "on prompts that were there before" if is_same else "on prompts that were not there before"
    detail = f"from {old:.3g} to {new:.3g} from step {after[0].step} on, {of}"
    for step in after:
        yield step, Measure(step.rewarded, step.rewarded, -change / scale.size, detail=detail, error=error / scale.size)


def _weight(means: Sequence[float], cut: int) -> float:
    fall = mean_of(means[:cut]) - mean_of(means[cut:])
    return fall * abs(fall) * cut * (len(means) - cut)


def _falls_evidence(step: StepContents, _subject: str) -> Iterator[TrajectorySummary]:
    known = [each for each in step.trajectories if each.reward is not None]
    yield from sorted(known, key=lambda each: each.reward or 0.0)


def _forgotten_in(run: Sequence[JudgedStep]) -> Iterator[tuple[JudgedStep, Measure]]:
    steps = [step for step in run if step.step is not None]
    scale = scale_of(steps)
    solved: set[str] = set()
    fails: dict[str, int] = {}
    for step in steps if scale is not None else ():
        known = {key: figures for key, figures in step.signals.prompts.items() if figures[1] is not None}
        earlier = solved & known.keys()
        for key, (rollouts, reward, _) in known.items():
            place = scale.place(reward or 0.0) if scale else 0.0
            fails[key] = fails.get(key, 0) + rollouts if place <= _FAILED else 0
            if place >= _SOLVED:
                solved.add(key)
        forgotten = frozenset(key for key in earlier if fails[key] >= FAILS)
        # Each of these prompts is forgotten beyond doubt.
        yield step, Measure.share(len(forgotten), len(earlier))._replace(prompts=forgotten, sample=0)


CHECKS = (
    Check(
        name="forgotten_prompts",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.1,
            "share of a step's prompts that an earlier step solved by half or more",
            f"a prompt whose last {FAILS} rollouts or more all failed, and that was solved before, is not bad luck",
        ),
        least=8,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} prompts that were solved before fail in each rollout since"
        ),
        advice="compare a rollout of now with one that solved it; lower the learning rate, raise the KL penalty, or "
        "mix such prompts in more often",
        evidence=_falls_evidence,
        in_run=_forgotten_in,
        in_validation=False,
    ),
    Check(
        name="reward_falls",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.15,
            "fall of the mean reward from the steps before to the steps after, by the range of rewards",
            "steps differ by their prompts, and so prompts that both have are compared if there are any; above it the "
            "policy, or what judges it, became worse",
        ),
        least=16,
        sentence=lambda found: f"the mean reward falls {found.detail}",
        advice="see what changed at that step: the reward function, a tool, the weights; if nothing did, go back to a "
        "checkpoint before it with a lower learning rate",
        evidence=_falls_evidence,
        in_run=_falls_in,
        in_validation=False,
    ),
)
