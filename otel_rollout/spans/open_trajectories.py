"""The trajectories that are running, with the op that each is in; read by delivery threads."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import partial
from operator import attrgetter
from time import time_ns
from typing import Any, NamedTuple

from opentelemetry.trace import Span

from otel_rollout import semconv
from otel_rollout.spans.trajectory_state import TrajectoryState

__all__ = ["OpenOp", "OpenTrajectories", "OpenTrajectory"]

_start_of = attrgetter("start_time")


class OpenOp(NamedTuple):
    """An op that has started and not ended.

    Args:
        name: Its name.
        kind: Its OpenInference kind; empty if it has none.
        start_time: Its start, in nanoseconds since 1970.
    """

    name: str
    kind: str
    start_time: int


class OpenTrajectory(NamedTuple):
    """A trajectory that has started and not ended.

    Args:
        trace_id: 32 hexadecimal digits.
        name: The root's name.
        tags: Its tags, by attribute key; not redacted.
        start_time: Its start, in nanoseconds since 1970.
        op: The innermost op that is open, the one that started last; None between ops.
        ops: The number of open ops.
    """

    trace_id: str
    name: str
    tags: Mapping[str, Any]
    start_time: int
    op: OpenOp | None
    ops: int


class OpenTrajectories:
    """Knows the running trajectories of a pipeline, without keeping any alive that nothing else refers to."""

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[TrajectoryState]] = {}

    def started(self, trajectory: TrajectoryState) -> None:
        """Note the start of a trajectory; from any thread, without a lock."""
        key = id(trajectory)
        # Forgotten with its object: most exporters never ask.
        self._known[key] = weakref.ref(trajectory, partial(self._known.pop, key))

    def ended(self, trajectory: TrajectoryState) -> None:
        """Note the end of a trajectory."""
        self._known.pop(id(trajectory), None)

    def after_fork(self) -> None:
        """Leave the parent's trajectories to the parent."""
        self._known.clear()

    def running_for(self, seconds: float) -> list[OpenTrajectory]:
        """Return the trajectories that run for longer than `seconds`, the longest first."""
        limit = time_ns() - int(seconds * 1e9)
        found = []
        # In one step, as other threads change it.
        for known in list(self._known.values()):
            trajectory = known()
            if trajectory is None:
                continue
            root = trajectory.root
            # Spans of a provider that is not the SDK's may have no times.
            start = getattr(root, "start_time", None)
            if type(start) is int and start <= limit:
                found.append(_read(trajectory, root, start))
        return sorted(found, key=_start_of)


def _read(trajectory: TrajectoryState, root: Span, start: int) -> OpenTrajectory:
    ops = [op for op in map(_op_of, list(trajectory.open_ops.values())) if op is not None]
    return OpenTrajectory(
        f"{root.get_span_context().trace_id:032x}",
        str(getattr(root, "name", "")),
        trajectory.tags,
        start,
        max(ops, key=_start_of) if ops else None,
        len(ops),
    )


def _op_of(span: Span) -> OpenOp | None:
    start, attributes = getattr(span, "start_time", None), getattr(span, "attributes", None) or {}
    if type(start) is not int:
        return None
    return OpenOp(str(getattr(span, "name", "")), str(attributes.get(semconv.SPAN_KIND, "")), start)
