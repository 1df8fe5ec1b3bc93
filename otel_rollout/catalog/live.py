"""Trajectories that run, or were left by processes that died, from the files that the processes write."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import orjson

from otel_rollout.facts.json_types import from_json
from otel_rollout.files.file_lock import is_being_written, open_to_read
from otel_rollout.folder.layout import OPEN, is_frame_file, is_running_file, worker_of
from otel_rollout.folder.op_durations import MAX_CHARACTERS, OpDurations
from otel_rollout.text.plain_text import counted

SECONDS_WITHOUT_A_SIGN: Final = 15.0
"""A process that has not written for so long counts as dead, unless it is seen to be gone before."""
MAX_FILE_BYTES: Final = 2**24
MAX_INPUT: Final = 4096
BETWEEN_OPS: Final = "between ops"
_P99: Final = 0.99
_TOLD: Final = ("trace_id", "name", "sample_index", "rollout_n", "validate", "experiment_name", "start_time", "ops")


@dataclass(frozen=True, slots=True)
class RunningTrajectory:
    """A trajectory that has started and not ended; None is unknown.

    Args:
        trace_id: 32 hexadecimal digits.
        name: The root's name.
        step: The training step.
        sample_index: The prompt in the dataset.
        rollout_n: The number of the rollout of the prompt.
        validate: True if it is part of a validation pass.
        experiment_name: The experiment.
        run_id: The run of its process.
        start_time: Nanoseconds since the epoch, by the clock of its host.
        seconds: The seconds that it has run; of a dead process, that it ran.
        op: The op that it is in; None between ops.
        op_kind: The op's OpenInference kind.
        op_seconds: The seconds that the op has run.
        op_input: The beginning of the op's input, as JSON; empty if it is unknown, or not among the 64 longest.
        op_p99: The seconds that 99% of the ended ops of this name took at most; None if there is none.
        ops: The number of its open ops.
        worker: Its process: `<host>-<pid>-<4 hexadecimal digits>`.
        host: The host of its process.
        is_alive: False if its process has ended, or gives no sign of life.
        silent_seconds: The seconds since the last sign of life of its process.
    """

    trace_id: str
    name: str
    step: int | None
    sample_index: int | str | None
    rollout_n: int | str | None
    validate: bool
    experiment_name: str | None
    run_id: str | None
    start_time: int
    seconds: float
    op: str | None
    op_kind: str
    op_seconds: float | None
    op_input: str
    op_p99: float | None
    ops: int
    worker: str
    host: str
    is_alive: bool
    silent_seconds: float

    @property
    def is_late(self) -> bool:
        """True if its op runs for longer than 99% of the ended ones of its name."""
        return self.op_seconds is not None and self.op_p99 is not None and self.op_seconds > self.op_p99


@dataclass(frozen=True, slots=True)
class StepWait:
    """A step that waits for trajectories.

    Args:
        step: The step; None for trajectories without one.
        validate: True if it is the step's validation.
        experiment_name: The experiment.
        running: The number of its running trajectories.
        ended: The number of those that have ended.
        ops: The number of running trajectories by op.
        longest: The longest-running of them.
    """

    step: int | None
    validate: bool
    experiment_name: str | None
    running: int
    ended: int
    ops: Mapping[str, int]
    longest: RunningTrajectory


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The running trajectories of trace folders.

    Args:
        trajectories: The trajectories, of living processes first, then the longest-running.
        open: The number of running trajectories, with those beyond the bound of a file.
        waits: The steps that wait for a living process, the latest first.
        silent_workers: Processes that write traces and report no running trajectory: they only receive ended spans, or
            run nothing for longer than a few seconds.
    """

    trajectories: Sequence[RunningTrajectory]
    open: int
    waits: Sequence[StepWait]
    silent_workers: Sequence[str]

    @property
    def why_none(self) -> str:
        """The reason why no trajectory is shown."""
        if self.silent_workers:
            return (
                f"{counted(len(self.silent_workers), 'process')} here told of ended spans alone: trainers tell of "
                "trajectories once they run for longer than 3 s, receivers of none"
            )
        return "nothing runs here for longer than 3 s; only the exporter `file` tells of running trajectories"


CountEnded: TypeAlias = Callable[[int | None, bool, str | None], int]
"""Returns the number of an experiment's trajectories in a step, or in its validation, that have ended."""


def read_live(
    folders: Sequence[str | os.PathLike[str]],
    count_ended: CountEnded,
    *,
    experiment: str | None = None,
    takes_run: Callable[[str | None], bool] | None = None,
) -> LiveRun:
    """Return the running trajectories that the files in `open/` of trace folders report.

    Args:
        folders: The trace folders; those that don't exist are left out.
        count_ended: Counts the ended trajectories of a step that waits for others.
        experiment: Only trajectories of this experiment.
        takes_run: Lets trajectories through by the run id of their process; None for all.
    """
    durations = OpDurations()
    files: dict[str, tuple[Mapping[str, Any], float]] = {}
    writing: list[str] = []
    for folder in folders:
        with suppress(OSError):
            for path in sorted((Path(folder) / OPEN).iterdir()):
                if is_running_file(path.name):
                    with suppress(OSError, ValueError):
                        files[worker_of(path)] = _read(path)
                elif is_frame_file(path.name) and is_being_written(path):
                    writing.append(worker_of(path))
    # A network disk may have another time than this host.
    now = max([time.time(), *(modified for _, modified in files.values())])
    for content, _ in files.values():
        durations.merge({name: each for name, each in content["durations"].items() if isinstance(each, dict)})
    trajectories = [each for worker, file in files.items() for each in _trajectories(worker, *file, now, durations)]
    trajectories.sort(key=lambda each: (not each.is_alive, -each.seconds))
    count = sum(content["open"] for content, _ in files.values())
    if experiment is not None or takes_run is not None:
        trajectories = [
            each
            for each in trajectories
            if experiment in (None, each.experiment_name) and (takes_run is None or takes_run(each.run_id))
        ]
        count = len(trajectories)
    silent = [worker for worker in writing if worker not in files]
    return LiveRun(trajectories, count, _waits(trajectories, count_ended), silent)


def _read(path: Path) -> tuple[Mapping[str, Any], float]:
    """Return a file's content and the time of its last change.

    Raises:
        OSError: It is gone, or can't be read.
        ValueError: It has another form.
    """
    with os.fdopen(open_to_read(path), "rb") as file:
        data, modified = file.read(MAX_FILE_BYTES), os.fstat(file.fileno()).st_mtime
    content = orjson.loads(data)
    kinds = {"beat": int, "host": str, "pid": int, "open": int, "trajectories": list, "durations": dict}
    if not isinstance(content, dict) or any(type(content.get(key)) is not kind for key, kind in kinds.items()):
        raise ValueError("another form")
    return content, modified


def _trajectories(
    worker: str, content: Mapping[str, Any], modified: float, now: float, durations: OpDurations
) -> Iterator[RunningTrajectory]:
    silent = max(0.0, now - modified)
    is_alive = silent < SECONDS_WITHOUT_A_SIGN and not _is_gone(content["host"], content["pid"])
    # By the clock of its own host until the last sign of life.
    seen = content["beat"] + (int(silent * 1e9) if is_alive else 0)
    for each in content["trajectories"]:
        # One of another form, as other programs write, is left out.
        with suppress(LookupError, TypeError, ValueError):
            op = each["op"]
            found = {
                **{name: each[name] for name in _TOLD},
                "step": each["step"] if type(each["step"]) is int else None,
                "run_id": content.get("run_id"),
                "seconds": (seen - each["start_time"]) / 1e9,
                "op": op and op["name"],
                "op_kind": op["kind"] if op else "",
                "op_seconds": op and (seen - op["start_time"]) / 1e9,
                "op_input": ((op or {}).get("input") or "")[:MAX_INPUT],
                "op_p99": op and durations.percentile(op["name"], _P99),
                "worker": worker,
                "host": content["host"],
                "is_alive": is_alive,
                "silent_seconds": silent,
            }
            yield from_json(RunningTrajectory, found)


def _is_gone(host: str, process: int) -> bool:
    """Return True if a process of this host is known to have ended."""
    if host == os.uname().nodename and process > 0:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            # It is another user's, or the number is none of a process.
            return False
    return False


def _waits(trajectories: Sequence[RunningTrajectory], count_ended: CountEnded) -> Sequence[StepWait]:
    steps: dict[tuple[int | None, bool, str | None], list[RunningTrajectory]] = {}
    for each in trajectories:
        if each.is_alive:
            steps.setdefault((each.step, each.validate, each.experiment_name), []).append(each)
    waits = []
    for (step, validate, experiment), running in steps.items():
        by_count = dict(Counter(each.op or BETWEEN_OPS for each in running).most_common())
        # The file of what runs has the beginning of a long name.
        is_whole = experiment is not None and len(experiment) < MAX_CHARACTERS
        ended = count_ended(step, validate, experiment if is_whole else None)
        waits.append(StepWait(step, validate, experiment, len(running), ended, by_count, running[0]))
    return sorted(
        waits, key=lambda wait: (wait.step is None, -(wait.step or 0), wait.validate, wait.experiment_name or "")
    )
