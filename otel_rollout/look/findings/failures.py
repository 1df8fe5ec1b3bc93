"""Checks of failures that the model didn't cause, and of failures without a known cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from otel_rollout.catalog.failure_class import FAILURE_CLASSES, MODEL, UNKNOWN
from otel_rollout.catalog.step_signals import JudgedStep, is_punished
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold
from otel_rollout.look.findings.finding import Severity

_CAUSES: Final = {
    "tool": "a tool failed, and no later call of it succeeded",
    "environment": "a connection, a process, a machine or the start failed",
    "engine": "the inference engine failed",
    "reward": "the reward function failed",
    "timeout": "time ran out",
}


def _failures_in(step: JudgedStep) -> Iterator[Measure]:
    for name in FAILURE_CLASSES:
        if name in _CAUSES:
            yield Measure.share(step.signals.failures.get(name, 0), step.trajectories, name)


def _failures_evidence(step: StepContents, subject: str) -> Iterator[TrajectorySummary]:
    return (each for each in step.trajectories if step.failure_of(each) == subject)


def _punished_in(step: JudgedStep) -> Iterable[Measure]:
    punished = step.signals.punished
    classes = ", ".join(f"{name} {punished[name]:,}" for name in FAILURE_CLASSES if name in punished)
    yield Measure.share(sum(punished.values()), step.trajectories, detail=classes)


def _punished_evidence(step: StepContents, _subject: str) -> Iterator[TrajectorySummary]:
    worst = step.worst_reward
    return (each for each in step.trajectories if is_punished(step.failure_of(each), each, worst))


def _unknown_in(step: JudgedStep) -> Iterable[Measure]:
    failures = step.signals.failures
    yield Measure.share(failures.get(UNKNOWN, 0), sum(failures.values()) - failures.get(MODEL, 0))


def _unknown_evidence(step: StepContents, _subject: str) -> Iterator[TrajectorySummary]:
    return _failures_evidence(step, UNKNOWN)


CHECKS = (
    Check(
        name="failures",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.1,
            "share of a step's trajectories, for each class but model and unknown",
            "single requests and sandboxes fail in every large step; above it a service or a limit is at fault",
        ),
        least=16,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} trajectories failed because {_CAUSES[found.subject]}"
        ),
        advice="open one: its error names the exception and its place; retry such trajectories, and leave them out "
        "of the loss",
        evidence=_failures_evidence,
        in_step=_failures_in,
    ),
    Check(
        name="punished_failures",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.05,
            "share of a step's trajectories",
            "single ones drown in the noise of a batch; above it the policy learns from failures that it did not make",
        ),
        least=16,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} trajectories have the worst reward for a failure that is not the "
            f"model's{found.clause}"
        ),
        advice="give such trajectories no reward, and mask them or roll them out again",
        evidence=_punished_evidence,
        in_step=_punished_in,
        in_validation=True,
    ),
    Check(
        name="unknown_failures",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.5,
            "share of a step's failures that are not the model's",
            "above it the classes of failure show less than they hide",
        ),
        least=10,
        sentence=lambda found: (
            f"the spans of {found.number:,} of {found.total:,} failed trajectories don't tell where they failed"
        ),
        advice="put `rollout_trace_op` with its `kind` on tools, the reward function and the engine's call, so that an "
        "exception has its place",
        evidence=_unknown_evidence,
        in_step=_unknown_in,
    ),
)
