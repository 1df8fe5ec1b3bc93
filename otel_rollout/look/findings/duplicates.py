"""Rollouts of a prompt with the same text: in a step, and more and more of them over steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold, percent
from otel_rollout.look.findings.finding import Severity
from otel_rollout.look.findings.over_steps import change_of, error_of_share

LEAST_TOKENS: Final = 16


def _share(step: JudgedStep) -> float:
    return step.duplicates / step.trajectories if step.trajectories else 0.0


def _in_step(step: JudgedStep) -> Iterable[Measure]:
    # A label or a number has few forms: many rollouts coincide by chance.
    if step.tokens is None or step.tokens.p50 >= LEAST_TOKENS:
        yield Measure.share(step.duplicates, step.trajectories)


def _over_steps(steps: Sequence[JudgedStep]) -> Iterator[Measure]:
    change = change_of(
        steps,
        lambda step: _share(step) if step.comparable_groups else None,
        lambda step: error_of_share(step.duplicates, step.trajectories),
    )
    if change is not None:
        detail = f"from {percent(change.first)} to {percent(change.last)}"
        number = sum(step.duplicates for step in change.last_steps)
        value = change.last - change.first
        yield Measure(
            number,
            change.trajectories,
            value,
            detail=detail,
            compared=change.steps,
            onset=change.onset,
            error=change.error,
        )


def _evidence(step: StepContents, _subject: str) -> list[TrajectorySummary]:
    """Return a duplicate of each group, the groups with the most first."""
    return [found[0] for found in sorted(map(_repeated, step.groups), key=len, reverse=True) if found]


def _repeated(group: Iterable[TrajectorySummary]) -> list[TrajectorySummary]:
    said: set[tuple[str, ...]] = set()
    found = []
    for each in group:
        # A turn that isn't recorded is like none.
        if each.turn_hashes and all(each.turn_hashes):
            if each.turn_hashes in said:
                found.append(each)
            said.add(each.turn_hashes)
    return found


CHECKS = (
    Check(
        name="duplicates",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.3,
            f"share of a step's trajectories, if half of them have {LEAST_TOKENS} output tokens or more",
            "shorter answers repeat by chance; above it a third of the sampling buys nothing",
        ),
        least=16,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} trajectories say in each turn what an earlier rollout of their "
            "prompt says"
        ),
        advice="check the sampling: a temperature of 0, or one seed for all rollouts of a prompt, or the engine's "
        "cache of answers",
        evidence=_evidence,
        in_step=_in_step,
        in_validation=False,
    ),
    Check(
        name="mode_collapse",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.3,
            "rise of the share of duplicates, from the first third of the steps to the last",
            "a policy that learns grows surer; above it exploration ends before the reward does",
        ),
        least=16,
        sentence=lambda found: (
            f"rollouts that repeat an earlier one of their prompt went {found.detail} of all: the policy collapses "
            "into one answer"
        ),
        advice="raise the temperature or the entropy bonus, raise the KL penalty, or lower the learning rate",
        evidence=_evidence,
        over_steps=_over_steps,
    ),
)
