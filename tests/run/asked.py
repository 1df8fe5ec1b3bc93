"""Groups and trajectories of a run by the number of their step."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

from otel_rollout.catalog import GroupSummary, Run, StepSummary
from otel_rollout.cli.main import main
from otel_rollout.errors import NoTracesError
from otel_rollout.facts import TrajectorySummary


def steps_of(run: Run, step: int | None, validate: bool = False, experiment: str | None = None) -> list[StepSummary]:
    """Return the summaries of a step, of each experiment and run."""
    found = run.steps({step})
    return [each for each in found if each.validate == validate and experiment in (None, each.experiment_name)]


def groups_of(run: Run, step: int | None, validate: bool = False, experiment: str | None = None) -> list[GroupSummary]:
    """Return the groups of a step."""
    return [group for each in steps_of(run, step, validate, experiment) for group in run.groups(each)]


def summaries_of(run: Run, step: int | None, validate: bool = False) -> list[TrajectorySummary]:
    """Return the trajectories of a step."""
    return [summary for each in steps_of(run, step, validate) for summary in run.summaries(each)]


def count_folder(folder: Path) -> SimpleNamespace:
    """Return the counts of `otel-rollout stats --json`.

    Raises:
        NoTracesError: The folder has no traces.
    """
    printed = io.BytesIO()
    with redirect_stdout(io.TextIOWrapper(printed, write_through=True)):
        code = main(["stats", str(folder), "--json"])
        if code != 0:
            raise NoTracesError(f"exit code {code}")
        return SimpleNamespace(**json.loads(printed.getvalue()))
