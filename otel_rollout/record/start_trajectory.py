"""Trajectories without a `with` block: they are open until `end`, or until `shutdown` ends them."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import Any, Final

from otel_rollout.guard.log_once import warn_once
from otel_rollout.record.trajectory import Trajectory

_open: Final[OrderedDict[int, Trajectory]] = OrderedDict()
"""The trajectories that `start_trajectory` has started and nobody has ended."""
MAX_OPEN: Final = 32_768
"""Some 100 MB."""


def start_trajectory(
    sample_index: Any = None,
    step: Any = None,
    rollout_n: Any = None,
    name: str = "rollout_trace",
    validate: bool = False,
    trace: bool = True,
    *,
    start_time: int | None = None,
) -> Trajectory:
    """Start a trajectory that no `with` block holds, for a loop that generates in batches, and for importers.

    Nothing becomes current: `Trajectory.record` adds its spans, `Trajectory.end` ends it. `shutdown` ends what is still
    open, as `cancelled`.

    Args:
        sample_index: As `rollout_trace_attr` takes it, like those after it.
        step: The training step.
        rollout_n: The index of this rollout among the n of its prompt.
        name: The root span's name.
        validate: True in a validation pass.
        trace: False traces nothing of it.
        start_time: Its start in nanoseconds since 1970; now if None.
    """
    trajectory = Trajectory(sample_index, step, rollout_n, name, validate, trace)
    trajectory._start_alone(start_time, _open)  # noqa: SLF001 - of this room
    if len(_open) > MAX_OPEN:
        warn_once("too many open trajectories", "%d trajectories were started and not ended: end() them", MAX_OPEN)
        with suppress(KeyError, StopIteration):
            _open[next(iter(_open))].end(status="cancelled")
    return trajectory


def end_open() -> None:
    """End what `start_trajectory` has started, as `cancelled`."""
    for trajectory in list(_open.values()):
        trajectory.end(status="cancelled")


def forget_open() -> None:
    """Leave what is open to the parent, in a forked child."""
    _open.clear()
