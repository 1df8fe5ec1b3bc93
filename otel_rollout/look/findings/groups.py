"""Groups without signal: all rollouts of a prompt have the step's best reward, or its worst."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold
from otel_rollout.look.findings.finding import Severity


def _make(kind: str, threshold: Threshold, advice: str) -> Check:
    def in_step(step: StepSummary) -> Iterable[Measure]:
        lowest, highest = step.reward_lowest, step.reward_highest
        detail = f"{lowest:.3g} is the only reward" if lowest is not None and lowest == highest else ""
        yield Measure.share(step.zero_variance.get(kind, 0), step.comparable_groups, detail=detail)

    def evidence(step: StepContents, _subject: str) -> Iterator[TrajectorySummary]:
        for group in step.groups:
            if group.zero_variance == kind:
                yield step.by_trace_id[group.trace_ids[0]]

    return Check(
        name=f"groups_all_{kind}",
        severity=Severity.WARNING,
        threshold=threshold,
        least=8,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} groups have the {kind} reward in every rollout and train nothing "
            f"where rollouts are compared with their group, as in GRPO{found.clause}"
        ),
        advice=advice,
        evidence=evidence,
        in_step=in_step,
        in_validation=False,
    )


CHECKS = (
    _make(
        "worst",
        Threshold(
            0.5,
            "share of a step's groups",
            "below it most groups still train; above it a wrong label, a broken verifier or too hard a data set is "
            "likelier",
        ),
        "look at one: is the label right, does the verifier accept a right answer, is the prompt solvable in the turns "
        "given? Then filter such prompts out, or draw more rollouts of them",
    ),
    _make(
        "best",
        Threshold(
            0.8,
            "share of a step's groups",
            "towards the end of a training most prompts are solved; above it, five groups are paid for one that trains",
        ),
        "filter solved prompts out (verl: `filter_groups`), or take harder ones",
    ),
)
