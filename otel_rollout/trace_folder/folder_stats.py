"""The counts of a trace folder and of its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from os import PathLike

from otel_rollout.trace_folder.reader import ReadProblem, RecordedTrajectory, read
from otel_rollout.trace_folder.trace_files import find_trace_files

__all__ = ["FolderStats", "StepSummary", "count_folder", "split_runs", "summarise_steps"]


@dataclass(frozen=True)
class StepSummary:
    """The counts of an experiment's trajectories in one step, or in its validation.

    Args:
        step: The step; None for trajectories without one.
        validate: Whether this is the step's validation.
        experiment_name: The experiment given to `init`.
        run_id: The run, if several runs of the experiment have the same trajectories in this step; else None.
        trajectories: The number of trajectories.
        samples: The number of prompts.
        mean_reward: The mean of the known rewards; None if there are none.
        errors: The trajectories that ended in an error.
        truncated: The trajectories that were cut off.
        cancelled: The trajectories that were cancelled.
        rootless: The trajectories without a root: they are running, or their process ended before they did.
        spans: The number of spans.
        bytes: Their size as OTLP JSON.
        stored_bytes: Their size on disk, without the index.
    """

    step: int | None
    validate: bool
    experiment_name: str | None
    run_id: str | None
    trajectories: int
    samples: int
    mean_reward: float | None
    errors: int
    truncated: int
    cancelled: int
    rootless: int
    spans: int
    bytes: int
    stored_bytes: int


def summarise_steps(trajectories: Iterable[RecordedTrajectory]) -> Iterator[StepSummary]:
    """Yield a summary for each step of each experiment, with one step's trajectories in memory.

    Args:
        trajectories: They come in the order of `read`.
    """
    for (step, validate), group in groupby(trajectories, lambda each: (each.step, each.validate)):
        experiments: dict[str | None, list[RecordedTrajectory]] = {}
        for each in group:
            experiments.setdefault(each.experiment_name, []).append(each)
        for experiment in sorted(experiments, key=lambda name: str(name or "")):
            for run_id, found in split_runs(experiments[experiment]):
                yield _summarise(step, validate, experiment, run_id, found)


def split_runs(
    trajectories: Sequence[RecordedTrajectory],
) -> list[tuple[str | None, Sequence[RecordedTrajectory]]]:
    """Return the trajectories of each run of one experiment, in the order of their starts, with the run's id.

    Processes that share no `OTEL_ROLLOUT_RUN_ID` have an id each; together they are one run, with the id None, unless
    two of them have a rollout of the same number of the same prompt.

    Args:
        trajectories: Those of one experiment in one step, or in its validation.
    """
    runs: dict[str | None, list[RecordedTrajectory]] = {}
    for each in trajectories:
        runs.setdefault(each.run_id, []).append(each)
    if len(runs) > 1:
        rollouts = [{_rollout_of(each) for each in found} - {None} for found in runs.values()]
        if len(set().union(*rollouts)) < sum(map(len, rollouts)):
            return sorted(runs.items(), key=lambda run: min(each.start_time for each in run[1]))
    return [(None, trajectories)]


def _rollout_of(trajectory: RecordedTrajectory) -> tuple[str, str] | None:
    if trajectory.sample_index is None or trajectory.rollout_n is None:
        return None
    return str(trajectory.sample_index), str(trajectory.rollout_n)


def _summarise(
    step: int | None,
    validate: bool,
    experiment_name: str | None,
    run_id: str | None,
    trajectories: Sequence[RecordedTrajectory],
) -> StepSummary:
    rewards = [each.reward for each in trajectories if each.reward is not None]
    statuses = Counter(each.status for each in trajectories)
    return StepSummary(
        step=step,
        validate=validate,
        experiment_name=experiment_name,
        run_id=run_id,
        trajectories=len(trajectories),
        samples=len({str(each.sample_index) for each in trajectories if each.sample_index is not None}),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        errors=sum(each.failed for each in trajectories),
        truncated=statuses["truncated"],
        cancelled=statuses["cancelled"],
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
        steps: The counts of each step of each experiment.
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
