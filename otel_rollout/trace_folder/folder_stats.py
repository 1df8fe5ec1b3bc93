"""What a trace folder holds, in numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike

from otel_rollout.trace_folder.reader import ReadProblem, read
from otel_rollout.trace_folder.step_summary import StepSummary, summarise_steps
from otel_rollout.trace_folder.trace_files import find_trace_files

__all__ = ["FolderStats", "count_folder"]


@dataclass(frozen=True)
class FolderStats:
    """The numbers of a trace folder.

    Args:
        folder: The folder.
        trajectories: How many trajectories.
        rootless: How many of them have no root.
        errors: How many ended in an error.
        spans: How many spans.
        bytes: The bytes of OTLP JSON that they are.
        disk_bytes: The bytes of all files, with indexes and journals.
        files: How many files hold spans.
        workers: How many processes wrote them.
        files_being_written: How many of these files a process holds open.
        problems: How often something could not be read, by what it was.
        steps: The same for each step.
    """

    folder: str
    trajectories: int
    rootless: int
    errors: int
    spans: int
    bytes: int
    disk_bytes: int
    files: int
    workers: int
    files_being_written: int
    problems: dict[str, int]
    steps: list[StepSummary]


def count_folder(
    folder: str | PathLike[str], *, on_problem: Callable[[ReadProblem], None] | None = None
) -> FolderStats:
    """Count a trace folder; reads indexes, and whole files only where they have none.

    Args:
        folder: The folder.
        on_problem: Is told of what could not be read; it is counted in any case.

    Raises:
        NoTracesError: The folder doesn't exist or holds no traces.
    """
    problems: dict[str, int] = {}

    def note(problem: ReadProblem) -> None:
        problems[problem.what] = problems.get(problem.what, 0) + 1
        if on_problem is not None:
            on_problem(problem)

    steps = list(summarise_steps(read(folder, on_problem=note)))
    files = find_trace_files(folder)
    return FolderStats(
        folder=str(folder),
        trajectories=sum(step.trajectories for step in steps),
        rootless=sum(step.rootless for step in steps),
        errors=sum(step.errors for step in steps),
        spans=sum(step.spans for step in steps),
        bytes=sum(step.bytes for step in steps),
        disk_bytes=sum(file.disk_bytes() for file in files),
        files=len(files),
        workers=len({file.worker for file in files}),
        files_being_written=sum(file.is_being_written() for file in files),
        problems=problems,
        steps=steps,
    )
