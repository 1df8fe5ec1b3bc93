"""Rewards that are no numbers, missing, or another for the same answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from otel_rollout.catalog.step_figures import disputed_of
from otel_rollout.catalog.step_signals import JudgedStep, has_invalid_reward, is_unrewarded
from otel_rollout.look.findings.check import Check, Measure, Threshold
from otel_rollout.look.findings.finding import Severity


def _invalid_in(step: JudgedStep) -> Iterable[Measure]:
    yield Measure.share(step.signals.invalid_rewards, step.trajectories)


def _missing_in(steps: Sequence[JudgedStep]) -> Iterator[tuple[JudgedStep, Measure]]:
    # A loop that never gives a reward isn't asked for one.
    if any(step.rewarded for step in steps):
        for step in steps:
            yield step, Measure.share(step.signals.unrewarded, step.signals.rewardable)


def _noisy_in(step: JudgedStep) -> Iterable[Measure]:
    yield Measure.share(step.signals.disputed, step.signals.twins)


CHECKS = (
    Check(
        name="invalid_rewards",
        severity=Severity.ERROR,
        threshold=Threshold(
            0.0, "share of a step's trajectories", "a reward is a finite number: any other is reported"
        ),
        least=1,
        sentence=lambda found: (
            f"the reward of {found.number:,} of {found.total:,} trajectories is NaN or infinite: they count as having "
            "none, and one of them in a group makes the advantages of all NaN"
        ),
        advice="look at what the reward function divides by, and at the answers that it was given; bound its result",
        evidence=lambda step, _: (each for each in step.trajectories if has_invalid_reward(each)),
        in_step=_invalid_in,
    ),
    Check(
        name="missing_rewards",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.05,
            "share of a step's trajectories that ended, without errors, cancelled ones and those that training left "
            "out",
            "single ones are lost with their process; above it a reward function doesn't answer, in a run that has "
            "rewards",
        ),
        least=16,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} trajectories ended without an error, and have no reward"
        ),
        advice="see if the reward function returned None or was not called; a reward that is known later is given by "
        "`annotate` of the trajectory's handle",
        evidence=lambda step, _: (each for each in step.trajectories if is_unrewarded(each)),
        in_run=_missing_in,
        is_final=True,
    ),
    Check(
        name="noisy_rewards",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.1,
            "share of the trajectories with the same turns as another rollout of their prompt",
            "one answer deserves one reward; above it equal answers differ by more than a quarter of the range of "
            "rewards",
        ),
        least=16,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} trajectories with the same turns as a sibling have another "
            "reward than it: training learns noise"
        ),
        advice="give one of these answers to the reward function several times: is it a judge that samples, a test "
        "that is flaky, or a race?",
        evidence=lambda step, _: disputed_of(step.trajectories)[1],
        in_step=_noisy_in,
    ),
)
