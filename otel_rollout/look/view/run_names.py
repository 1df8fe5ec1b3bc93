"""The folder of each run, if several runs of one experiment are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from otel_rollout.catalog import Run
from otel_rollout.catalog.step_summary import StepSummary

__all__ = ["RunNames"]


class RunNames:
    """Finds the folders of runs.

    Args:
        run: The run, of all folders.
        folders: The trace folders.
    """

    def __init__(self, run: Run, folders: Sequence[Path]) -> None:
        self._run = run
        self._folders = folders
        self._places: dict[str, str | None] = {}

    def learn(self, steps: Sequence[StepSummary]) -> None:
        """Find the folders of the runs of steps.

        Args:
            steps: All steps; those without an id are of the only run of their experiment.
        """
        for step in steps:
            if step.run_id is not None and len(self._folders) > 1 and step.run_id not in self._places:
                # A folder may be removed meanwhile.
                with suppress(LookupError, OSError):
                    self._places[step.run_id] = self._place(step)

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
