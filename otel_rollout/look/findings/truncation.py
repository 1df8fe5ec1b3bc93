"""Truncated trajectories, and what they cost in reward."""

from __future__ import annotations

from collections.abc import Iterable

from otel_rollout.catalog.step_figures import is_cut_off
from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold, ranked
from otel_rollout.look.findings.finding import Severity


def _in_step(step: JudgedStep) -> Iterable[Measure]:
    truncated, whole = step.signals.truncated_reward_mean, step.signals.whole_reward_mean
    detail = ""
    if truncated is not None and whole is not None and step.reward_lowest != step.reward_highest:
        cost = (whole - truncated) * step.signals.cut_off / step.trajectories
        worst = step.truncated_with_worst_reward
        detail = (
            f"{worst:,} of {step.signals.cut_off:,} have the worst reward; their mean reward is {truncated:.3g} and "
            f"that of the others {whole:.3g}"
        )
        if cost > 0:
            detail += f", which costs the step {cost:.2g} of its mean reward"
    yield Measure.share(step.signals.cut_off, step.trajectories, detail=detail)


def _evidence(step: StepContents, _subject: str) -> list[TrajectorySummary]:
    return ranked(
        step.trajectories,
        lambda each: is_cut_off(each) * (1 + (each.reward is not None and each.reward == step.worst_reward)),
    )


CHECKS = (
    Check(
        name="truncated",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.15,
            "share of a step's trajectories",
            "a few percent are usual, and some reach the limit by rambling; above it the limit, not the policy, "
            "decides rewards",
        ),
        least=16,
        sentence=lambda found: f"{found.number:,} of {found.total:,} trajectories were cut off{found.clause}",
        advice="raise the limit of tokens or turns, mask truncated trajectories out of the loss, or shape their "
        "reward by "
        "length, as a 0 for an unfinished answer teaches to be short",
        evidence=_evidence,
        in_step=_in_step,
    ),
)
