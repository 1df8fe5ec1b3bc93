"""What the commands that read a trace folder share: the trajectories, and a word on what could not be read."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from otel_rollout.analysis.trace_tree import printable
from otel_rollout.cli.trajectory_filters import filters_of
from otel_rollout.errors import MissingExtraError
from otel_rollout.trace_folder.reader import ReadProblem, RecordedTrajectory, read

__all__ = ["ProblemLog", "in_order_of_prompts", "require_rich", "selected"]


class ProblemLog:
    """Counts what could not be read, and says so at the end."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Path]] = Counter()

    def note(self, problem: ReadProblem) -> None:
        """Count a problem; the `on_problem` of `read`."""
        self._counts[problem.what, problem.path] += 1

    def print(self) -> None:
        """Print a line for each file with problems on standard error."""
        for (what, path), count in self._counts.items():
            print(printable(f"{count} {what}{'' if count == 1 else 's'} skipped in {path}"), file=sys.stderr)


def selected(arguments: argparse.Namespace, problems: ProblemLog) -> Iterator[RecordedTrajectory]:
    """Return the trajectories of the command line's folder that its filters let through."""
    return read(arguments.folder, **filters_of(arguments), on_problem=problems.note)


def require_rich() -> None:
    """Say how to install what tables and trees are drawn with, where it is missing.

    Raises:
        MissingExtraError: rich is not installed.
    """
    if importlib.util.find_spec("rich") is None:
        raise MissingExtraError("this needs rich: pip install 'otel-rollout[cli]' (--json works without)")


def in_order_of_prompts(trajectories: Iterable[RecordedTrajectory]) -> list[RecordedTrajectory]:
    """Return trajectories in the order of step, prompt and rollout."""
    return sorted(
        trajectories,
        key=lambda each: (
            each.step is None,
            each.step or 0,
            each.validate,
            str(each.experiment_name or ""),
            _sortable(each.sample_index),
            _sortable(each.rollout_n),
            each.start_time,
        ),
    )


def _sortable(value: object) -> tuple[int, float, str]:
    """Return what sorts numbers by value, before texts, before nothing."""
    if value is None:
        return 2, 0, ""
    # Somebody else's trace may have anything here.
    return (0, value, "") if isinstance(value, (int, float)) else (1, 0, str(value))
