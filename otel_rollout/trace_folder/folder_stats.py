"""The counts of a trace folder and of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from os import PathLike

from otel_rollout.trace_folder.reader import ReadProblem, RecordedTrajectory, read
from otel_rollout.trace_folder.trace_files import find_trace_files

__all__ = ["FolderStats", "StepSummary", "count_folder", "summarise_steps"]


@dataclass(frozen=True)
class StepSummary:
    """The counts of one step's trajectories, or of its validation's.

    Args:
        step: The step; None for trajectories without one.
        validate: Whether this is the step's validation.
        trajectories: The number of trajectories.
        samples: The number of prompts.
        mean_reward: The mean of the known rewards; None if there are none.
        errors: The trajectories that ended in an error.
        rootless: The trajectories without a root: they are running, or their process ended before they did.
        spans: The number of spans.
        bytes: Their size as OTLP JSON.
        stored_bytes: Their size on disk, without the index.
    """

    step: int | None
    validate: bool
    trajectories: int
    samples: int
    mean_reward: float | None
    errors: int
    rootless: int
    spans: int
    bytes: int
    stored_bytes: int


def summarise_steps(trajectories: Iterable[RecordedTrajectory]) -> Iterator[StepSummary]:
    """Yield a summary for each step, with one step's trajectories in memory; they come in the order of `read`."""
    for (step, validate), group in groupby(trajectories, lambda each: (each.step, each.validate)):
        yield _summarise(step, validate=validate, trajectories=list(group))


def _summarise(step: int | None, *, validate: bool, trajectories: list[RecordedTrajectory]) -> StepSummary:
    rewards = [each.reward for each in trajectories if each.reward is not None]
    return StepSummary(
        step=step,
        validate=validate,
        trajectories=len(trajectories),
        samples=len(
            {(each.experiment_name, str(each.sample_index)) for each in trajectories if each.sample_index is not None}
        ),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        errors=sum(each.failed for each in trajectories),
        rootless=sum(not each.has_root for each in trajectories),
        spans=sum(each.span_count for each in trajectories),
        bytes=sum(each.size_bytes for each in trajectories),
        stored_bytes=sum(each.stored_bytes for each in trajectories),
    )


@dataclass(frozen=True)
class FolderStats:
    """The counts of a trace folder.

    Args:
        folder: The folder.
        trajectories: The number of trajectories.
        rootless: The trajectories without a root.
        errors: The trajectories that ended in an error.
        spans: The number of spans.
        bytes: Their size as OTLP JSON.
        disk_bytes: The size of all files, with indexes and journals.
        files: The number of files that hold spans.
        workers: The number of processes that wrote them.
        files_being_written: The files that a process holds open.
        problems: The number of `ReadProblem`s by their `what`.
        steps: The counts of each step.
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
    """Count a trace folder by its indexes; files without one are read.

    Args:
        folder: The folder.
        on_problem: Called for everything that can't be read, which is counted in any case.

    Raises:
        NoTracesError: The folder doesn't exist or holds no traces.
    """
    problems: Counter[str] = Counter()

    def note(problem: ReadProblem) -> None:
        problems[problem.what] += 1
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
        problems=dict(problems),
        steps=steps,
    )
