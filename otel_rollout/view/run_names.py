"""The run that each step belongs to, and the folder of each run, if several runs of one experiment are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from otel_rollout.analysis.step_summary import StepSummary
from otel_rollout.run.rollout_run import Run

__all__ = ["RunNames"]


class RunNames:
    """Gives steps that only one of several runs has that run's id, so that a run's steps are one series.

    Args:
        run: The run, of all folders.
        folders: The trace folders.
    """

    def __init__(self, run: Run, folders: Sequence[Path]) -> None:
        self._run = run
        self._folders = folders
        self._places: dict[str, str | None] = {}

    def named(self, steps: Sequence[StepSummary]) -> list[StepSummary]:
        """Return steps with the ids of their runs.

        Args:
            steps: All steps; those with an id are of runs that have the same rollouts.
        """
        known: dict[str | None, set[str]] = {}
        for step in steps:
            if step.run_id is not None:
                known.setdefault(step.experiment_name, set()).add(step.run_id)
                if len(self._folders) > 1 and step.run_id not in self._places:
                    # A folder may be removed meanwhile.
                    with suppress(LookupError, OSError):
                        self._places[step.run_id] = self._place(step)
        return [
            replace(step, run_id=step.sole_run_id)
            if step.run_id is None and step.sole_run_id in known.get(step.experiment_name, ())
            else step
            for step in steps
        ]

    def folders(self) -> Mapping[str, str]:
        """Return the folder of each run that has one of its own."""
        known = dict(self._places)
        places = list(known.values())
        return {run: place for run, place in known.items() if place is not None and places.count(place) == 1}

    def _place(self, step: StepSummary) -> str | None:
        """Return the folder of a run by one of its trajectories."""
        first = self._run.summaries(step.step, step.validate, step.experiment_name, step.run_id)[0]
        file, _ = self._run.trajectory(first.trace_id).parts[0]
        return next((str(folder) for folder in self._folders if folder in file.path.parents), None)
