"""Steps that wait for their last trajectories."""

from __future__ import annotations

from collections.abc import Iterable

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold, percent
from otel_rollout.look.findings.finding import Severity

_MANY = 20


def _in_step(step: JudgedStep) -> Iterable[Measure]:
    share = step.last_5_percent_share
    # Nothing waits for the trajectories without a step.
    if share is not None and step.step is not None:
        most = "95%" if step.trajectories >= _MANY else "all but one"
        detail = (
            f"{percent(share)} of the time went by after {most} of the trajectories that were not cancelled had ended"
        )
        yield Measure(max(1, step.trajectories // 20), step.trajectories, share, detail=detail)


def _evidence(step: StepContents, _subject: str) -> list[TrajectorySummary]:
    """Return the trajectories that end in the second half of the wait, the last one first."""
    awaited = sorted(
        (each for each in step.trajectories if each.status != "cancelled"), key=lambda each: -each.end_time
    )
    if not awaited:
        return []
    last, begun = awaited[0].end_time, awaited[min(max(1, len(awaited) // 20), len(awaited) - 1)].end_time
    return [each for each in awaited if each.end_time > (last + begun) // 2]


CHECKS = (
    Check(
        name="stragglers",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.6,
            "share of a step's wall time after 95% of its trajectories had ended (of fewer than 20: all but "
            "one), without cancelled ones",
            "lengths are skewed, and a tail of a third is common; above it most of the time serves a "
            "twentieth of the batch",
        ),
        least=8,
        sentence=lambda found: f"a step waits for its last trajectories{found.clause}",
        advice="see where they wait: a tool without a timeout, a busy replica, or very long answers; bound it, or "
        "train without "
        "waiting (partial or asynchronous rollout)",
        evidence=_evidence,
        in_step=_in_step,
        in_validation=False,
    ),
)
