"""The run that each step belongs to, if several runs of one experiment are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from otel_rollout.catalog.step_summary import StepSummary

__all__ = ["with_run_ids"]


def with_run_ids(steps: Sequence[StepSummary]) -> list[StepSummary]:
    """Give steps that only one of several runs has that run's id, so that a run's steps are one series.

    Args:
        steps: All steps; those with an id are of runs that have the same rollouts.
    """
    known: dict[str | None, set[str]] = {}
    for step in steps:
        if step.run_id is not None:
            known.setdefault(step.experiment_name, set()).add(step.run_id)
    return [
        replace(step, run_id=step.sole_run_id)
        if step.run_id is None and step.sole_run_id in known.get(step.experiment_name, ())
        else step
        for step in steps
    ]
