"""The handle of a trajectory: a text by which any process names it, and the latest trajectories by their identity."""

from __future__ import annotations

import json
import re
from collections import deque
from typing import Any, Final, NamedTuple

from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from otel_rollout import semconv
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.attribute_values import read_sample_index, read_scalar, read_whole_tag
from otel_rollout.record.readers import SCALARS
from otel_rollout.record.trajectory_state import TrajectoryState

MAX_HANDLE_CHARACTERS: Final = 16 * 1024
MAX_REMEMBERED: Final = 32_768
"""Trajectories that can be found, in some 20 MB."""
MAX_ATTEMPTS: Final = 8
"""Trajectories of one identity that can be found."""

_is_traceparent: Final = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})").fullmatch
_TAGS: Final = frozenset(semconv.TAGS)
_load: Final = json.JSONDecoder().decode


class Place(NamedTuple):
    """The place of a trajectory.

    Args:
        run: The run, if `OTEL_ROLLOUT_RUN_ID` gives all its processes one.
    """

    root: SpanContext
    tags: dict[str, Any]
    run: str | None

    @property
    def handle(self) -> str:
        """The place as a text."""
        root = self.root
        handle: dict[str, Any] = {
            "traceparent": f"00-{root.trace_id:032x}-{root.span_id:016x}-{int(root.trace_flags) & 0xFF:02x}",
            "tags": self.tags,
        }
        if self.run is not None:
            handle["run"] = self.run
        return json.dumps(handle, separators=(",", ":"))


class HasHandle:
    """The types that `annotate` takes as a trajectory, besides a text."""

    __slots__ = ()

    _state: TrajectoryState | None
    """The state while it runs in this process."""

    @property
    def handle(self) -> str:
        """The handle; empty if it isn't traced."""
        raise NotImplementedError


def tags_of(step: Any, sample_index: Any, rollout_n: Any, *, validate: Any, experiment_name: str) -> dict[str, Any]:
    """Return the tags, by attribute key; what is None has none."""
    tags: dict[str, Any] = {}
    if step is not None:
        tags[semconv.STEP] = read_whole_tag("step", step)
    if sample_index is not None:
        tags[semconv.SAMPLE_INDEX] = read_sample_index(sample_index)
    if rollout_n is not None:
        tags[semconv.ROLLOUT_N] = read_whole_tag("rollout_n", rollout_n)
    plain = read_scalar(validate)
    tags[semconv.VALIDATE] = type(plain) in SCALARS and bool(plain)
    tags[semconv.EXPERIMENT_NAME] = experiment_name
    return tags


def ended(span: SpanContext) -> NonRecordingSpan:
    """Return a span that has ended, or is in another process, as a parent that exporters don't wait for."""
    if not span.is_remote:
        span = SpanContext(span.trace_id, span.span_id, True, span.trace_flags, span.trace_state)
    return NonRecordingSpan(span)


def place_of(handle: str) -> Place | None:
    """Return the place that a handle names; None if it is no handle."""
    if len(handle) > MAX_HANDLE_CHARACTERS:
        return None
    try:
        given = _load(handle)
    except (ValueError, RecursionError) as error:
        if is_programs(error):
            raise
        return None
    if type(given) is not dict or not given.keys() <= {"traceparent", "tags", "run"}:
        return None
    ids = _is_traceparent(str(given.get("traceparent")))
    tags, run = given.get("tags"), given.get("run")
    if ids is None or type(tags) is not dict or not tags.keys() <= _TAGS:
        return None
    if any(type(value) not in SCALARS for value in tags.values()) or not (run is None or type(run) is str):
        return None
    root = SpanContext(int(ids[1], 16), int(ids[2], 16), is_remote=True, trace_flags=TraceFlags(int(ids[3], 16)))
    return Place(root, tags, run) if root.is_valid else None


_latest: Final[dict[tuple[Any, ...], tuple[Place, ...]]] = {}
"""By the values of all tags."""
_order: Final[deque[tuple[Any, ...]]] = deque()
"""The tags for each of its trajectories, the oldest first."""


def remember(place: Place) -> None:
    """Make a trajectory of this process findable by its identity."""
    if semconv.SAMPLE_INDEX not in place.tags:
        return
    identity = _values(place.tags)
    _order.append(identity)
    _latest[identity] = (*_latest.get(identity, ()), place)[-MAX_ATTEMPTS:]
    if len(_order) > MAX_REMEMBERED:
        oldest = _order.popleft()
        rest = _latest.pop(oldest, ())[1:]
        if rest:
            _latest[oldest] = rest


def latest(tags: dict[str, Any]) -> tuple[Place, ...]:
    """Return this process's trajectories with these tags, in the order of their starts."""
    return _latest.get(_values(tags), ())


def forget() -> None:
    """Forget all trajectories."""
    _latest.clear()
    _order.clear()


def _values(tags: dict[str, Any]) -> tuple[Any, ...]:
    return tuple([tags.get(key) for key in semconv.TAGS])
