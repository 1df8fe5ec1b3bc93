"""The trajectories that are running, with the op that each is in; read by delivery threads."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from operator import attrgetter
from time import time_ns
from typing import Any, Final, NamedTuple

from otel_rollout import semconv
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.snapshot import Snapshot
from otel_rollout.record.trajectory_state import TrajectoryState

MAX_TRAJECTORIES: Final = 16_384
"""Beyond this the oldest are forgotten, which may never end: each costs the delivery thread microseconds every time."""


class OpenOp(NamedTuple):
    """An op that has started and not ended.

    Args:
        start_time: Its start, in nanoseconds since 1970.
        input: Its input, not redacted; as a text once it is for a reader. None if it has none.
    """

    name: str
    kind: str
    start_time: int
    input: Snapshot | str | None = None


class OpenTrajectory(NamedTuple):
    """A trajectory that has started and not ended.

    Args:
        trace_id: 32 hexadecimal digits.
        tags: Its tags, by attribute key; not redacted.
        start_time: Its start, in nanoseconds since 1970.
        ops: The number of open ops.
    """

    trace_id: str
    name: str
    tags: Mapping[str, Any]
    start_time: int
    op: OpenOp | None
    ops: int


class OpenTrajectories:
    """Tracks the running trajectories of a pipeline, without keeping any alive that nothing else refers to."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, weakref.ref[TrajectoryState]] = OrderedDict()

    def started(self, trajectory: TrajectoryState) -> None:
        """Note the start of a trajectory; from any thread, without a lock."""
        key = id(trajectory)
        # Forgotten with its object: most exporters never ask.
        self._known[key] = weakref.ref(trajectory, partial(self._known.pop, key))
        if len(self._known) > MAX_TRAJECTORIES:
            self._known.popitem(last=False)

    def ended(self, trajectory: TrajectoryState) -> None:
        """Note the end of a trajectory."""
        self._known.pop(id(trajectory), None)

    def after_fork(self) -> None:
        """Leave the parent's trajectories to the parent."""
        self._known.clear()

    def running_for(self, seconds: float) -> list[OpenTrajectory]:
        """Return the trajectories that run for longer than `seconds`, the longest first."""
        now = time_ns()
        limit = now - int(seconds * 1e9)
        found = []
        # In one step, as other threads change it.
        for known in list(self._known.values()):
            trajectory = known()
            read = None if trajectory is None else _read(trajectory, now, limit)
            if read is not None:
                found.append(read)
        return sorted(found, key=attrgetter("start_time"))


def _read(trajectory: TrajectoryState, now: int, limit: int) -> OpenTrajectory | None:
    """Return a trajectory that has started before `limit`, in nanoseconds since 1970, or None."""
    root: RolloutSpan | None = trajectory.root
    # A start in the future: the clock was set back, and nobody knows how long it runs.
    if root is None or not root.is_recording() or limit < root.start_time <= now:
        return None
    # In the order of their starts, also if the clock was set back. An alarm keeps an ended span from being forgotten.
    spans: list[RolloutSpan] = [span for span in list(trajectory.open_ops) if span.is_recording()]
    op = None
    if spans:
        last = spans[-1]
        op = OpenOp(last.name, str(last.attributes.get(semconv.SPAN_KIND, "")), min(last.start_time, now), last.input)
    return OpenTrajectory(
        f"{root.context.trace_id:032x}", root.name, trajectory.tags, min(root.start_time, now), op, len(spans)
    )
