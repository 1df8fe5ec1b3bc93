"""Findings in a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from otel_rollout.catalog.rollout_run import Run
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.diagnosis import Diagnosis, diagnose, last_steps

__all__ = ["diagnose_run", "running_steps"]


def running_steps(run: Run, known: Sequence[StepSummary]) -> list[StepSummary]:
    """Return the steps that have running trajectories while a process writes: asynchronous training has several.

    Args:
        run: The run.
        known: All of its steps.
    """
    is_open = run.open_steps()
    last = last_steps(known)
    return [step for step in known if step in last or (step.step, step.validate) in is_open]


def diagnose_run(
    run: Run,
    steps: Sequence[StepSummary],
    *,
    thresholds: Mapping[str, float] | None = None,
    against: Sequence[StepSummary] | None = None,
    folder: str | None = None,
    running: Sequence[StepSummary] = (),
) -> Diagnosis:
    """Run all checks over steps of a run; the arguments are the same as for `diagnose`."""

    def load(step: StepSummary) -> list[TrajectorySummary]:
        found = run.summaries(step.step, step.validate, step.experiment_name, step.run_id)
        return [each for each in found if each.experiment_name == step.experiment_name]

    return diagnose(steps, load, thresholds=thresholds, against=against, folder=folder, running=running)
