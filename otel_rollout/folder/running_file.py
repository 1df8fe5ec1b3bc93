"""The file in which a process reports its running trajectories with their ops; replaced as a whole each time."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import Final

import orjson

from otel_rollout import semconv
from otel_rollout.files.file_modes import make_folder, open_private
from otel_rollout.folder.layout import NEW, OPEN, RUNNING
from otel_rollout.folder.op_durations import MAX_CHARACTERS, OpDurations
from otel_rollout.record import runtime
from otel_rollout.record.open_trajectories import OpenTrajectory
from otel_rollout.text.sanitize import replace_surrogates

MAX_TRAJECTORIES: Final = 4096
"""If there are more, the longest-running are written."""


class RunningFile:
    """One worker's file; it exists while a trajectory runs for longer than a few seconds, and after a crash.

    Args:
        folder: The trace folder.
        worker: The worker's name.
    """

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = folder / OPEN / f"{worker}{RUNNING}"
        self._folder = folder
        self._exists = False

    def write(self, trajectories: Sequence[OpenTrajectory], durations: OpDurations) -> None:
        """Replace the file; remove it if nothing runs.

        Args:
            trajectories: The running trajectories, the longest first.
            durations: The durations of ended ops.

        Raises:
            OSError: The disk did not take it.
        """
        if not trajectories:
            self.remove()
            return
        content = {
            "beat": time_ns(),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "run_id": None if runtime.resource is None else _plain(runtime.resource.attributes.get(semconv.RUN_ID)),
            "open": len(trajectories),
            "trajectories": [_as_dict(each) for each in trajectories[:MAX_TRAJECTORIES]],
            "durations": durations.as_json(),
        }
        make_folder(self.path.parent, self._folder)
        new = self.path.with_name(f".{self.path.name}{NEW}")
        data = orjson.dumps(content)
        try:
            with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.write(data)
            new.replace(self.path)
        except OSError:
            with suppress(OSError):
                new.unlink()
            raise
        self._exists = True

    def remove(self) -> None:
        """Remove the file; idempotent."""
        if self._exists:
            self._exists = False
            with suppress(OSError):
                self.path.unlink()


def _as_dict(trajectory: OpenTrajectory) -> dict[str, object]:
    tags, op = trajectory.tags, trajectory.op
    return {
        "trace_id": trajectory.trace_id,
        "name": _plain(trajectory.name),
        "step": _plain(tags.get(semconv.STEP)),
        "sample_index": _plain(tags.get(semconv.SAMPLE_INDEX)),
        "rollout_n": _plain(tags.get(semconv.ROLLOUT_N)),
        "validate": tags.get(semconv.VALIDATE) is True,
        "experiment_name": _plain(tags.get(semconv.EXPERIMENT_NAME)),
        "start_time": trajectory.start_time,
        "ops": trajectory.ops,
        "op": None
        if op is None
        else {**{key: _plain(value) for key, value in op._asdict().items()}, "input": op.input},
    }


def _plain(value: object) -> object:
    """Return a value that JSON has: a text is shortened, and has no lone surrogates."""
    return replace_surrogates(value[:MAX_CHARACTERS]) if isinstance(value, str) else value
