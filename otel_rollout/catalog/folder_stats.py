"""The counts of a trace folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from otel_rollout.catalog.filling import OnProblem, OnProgress
from otel_rollout.catalog.rollout_run import Run
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.folder.stored_file import ReadProblem
from otel_rollout.folder.trace_files import find_trace_files


@dataclass(frozen=True)
class FolderStats:
    """The counts of a trace folder.

    Args:
        folder: The folder.
        trajectories: The number of trajectories.
        rootless: The trajectories without a root.
        errors: The trajectories that ended in an error.
        spans: The number of spans.
        redacted: The secrets that redaction replaced.
        bytes: Their size as OTLP.
        disk_bytes: The size of all files, with indexes and journals.
        files: The number of files that hold spans.
        workers: The number of processes that wrote them.
        files_being_written: The files that a process holds open.
        problems: The number of `ReadProblem`s by their `what`.
        steps: The summary of each step of each experiment.
    """

    folder: str
    trajectories: int
    rootless: int
    errors: int
    spans: int
    redacted: int
    bytes: int
    disk_bytes: int
    files: int
    workers: int
    files_being_written: int
    problems: dict[str, int]
    steps: Sequence[StepSummary]


def count_folder(
    folder: str | PathLike[str],
    *,
    on_problem: OnProblem | None = None,
    on_progress: OnProgress | None = None,
    experiment: str | None = None,
    run: str | None = None,
    has_inferred: bool = True,
) -> FolderStats:
    """Count a trace folder by its steps' summaries.

    Args:
        folder: The folder, or a single file.
        on_problem: Called for everything that can't be read, which is counted in any case.
        on_progress: See `Run`.
        experiment: Count only the steps of this experiment, and all files of the folder.
        run: Count the steps of the run whose id begins so.
        has_inferred: False if nobody asks for the facts that are inferred.

    Raises:
        NoTracesError: The folder doesn't exist or holds no traces.
    """
    problems: Counter[str] = Counter()

    def note(problem: ReadProblem) -> None:
        problems[problem.what] += 1
        if on_problem is not None:
            on_problem(problem)

    recorded = Run([Path(folder)], note, on_progress, experiment=experiment, run=run)
    if has_inferred:
        recorded.infer()
    steps = recorded.steps()
    files = find_trace_files(folder)
    return FolderStats(
        folder=str(folder),
        trajectories=sum(step.trajectories for step in steps),
        rootless=sum(step.rootless for step in steps),
        errors=sum(step.errors for step in steps),
        spans=sum(step.spans for step in steps),
        redacted=sum(step.redacted for step in steps),
        bytes=sum(step.bytes for step in steps),
        disk_bytes=sum(file.disk_bytes() for file in files),
        files=len(files),
        workers=len({file.worker for file in files}),
        files_being_written=sum(file.is_being_written() for file in files),
        problems=dict(problems),
        steps=steps,
    )
