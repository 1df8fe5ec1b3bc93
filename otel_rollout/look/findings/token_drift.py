"""Turns whose prompt doesn't extend the turn before: training sees other tokens than the model wrote."""

from __future__ import annotations

from collections.abc import Iterable

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.look.findings.check import Check, Measure, Threshold, ranked
from otel_rollout.look.findings.finding import Severity


def _in_step(step: JudgedStep) -> Iterable[Measure]:
    yield Measure.share(step.prefix_breaks, step.trajectories)


CHECKS = (
    Check(
        name="prefix_breaks",
        severity=Severity.ERROR,
        threshold=Threshold(
            0.05,
            "share of a step's trajectories",
            "a correct agent loop has none, but one that shortens long contexts has some; above it the loss is "
            "off-policy in silence",
        ),
        least=1,
        sentence=lambda found: (
            f"in {found.number:,} of {found.total:,} trajectories a turn's prompt doesn't extend the turn before: "
            "what is "
            "trained on is not what the model saw"
        ),
        advice="append token ids instead of encoding the conversation again, and check that the chat template keeps "
        "earlier "
        "reasoning",
        evidence=lambda step, _: ranked(step.trajectories, lambda each: each.prefix_breaks),
        in_step=_in_step,
        in_validation=False,
    ),
)
