"""A step's timeline in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.

A process of the format is a worker, and a thread of it a trajectory; ops that run side by side are rows of their own.

Source: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU (Trace Event Format).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from otel_rollout.facts.shapes import SpanShape
from otel_rollout.facts.table import TrajectorySummary

UNKNOWN_WORKER: Final = "unknown process"
ERROR: Final = 2
MAX_ROUNDING: Final = 2
"""Microseconds by which a span may outlast its parent: both ends are rounded."""
_COLORS: Final = {"LLM": "thread_state_running", "TOOL": "thread_state_iowait", "EVALUATOR": "good"}
_ERROR_COLOR: Final = "terrible"


class _Place(NamedTuple):
    """A span's row, and its microseconds."""

    row: int
    duration: int


def trace_events(
    trajectories: Iterable[tuple[TrajectorySummary, Callable[[], Sequence[SpanShape]]]],
) -> Iterator[dict[str, Any]]:
    """Yield the events of trajectories; times are microseconds from the start of the first.

    Args:
        trajectories: The trajectories of a step, each with what returns its spans: all of them take much memory.
    """
    ordered = sorted(trajectories, key=lambda pair: (pair[0].worker, pair[0].start_time))
    start = min((each.start_time for each, _ in ordered), default=0)
    workers: dict[str, int] = {}
    row = 0
    for each, shapes in ordered:
        worker = each.worker or each.service_name or UNKNOWN_WORKER
        if worker not in workers:
            workers[worker] = len(workers) + 1
            yield _named("process_name", workers[worker], 0, worker)
        process, offset = workers[worker], (each.start_time - start) // 1000
        shape = shapes()
        places = _rows_of(shape)
        count = max((place.row for place in places), default=0) + 1
        for level in range(count):
            yield _named("thread_name", process, row + level + 1, _title(each, level))
        for position, (span, place) in enumerate(zip(shape, places, strict=True)):
            place = place._replace(row=row + place.row + 1)  # noqa: PLW2901 - among those of all trajectories
            yield _slice(each, span, process, place, offset, is_first=position == 0)
        row += count


def _title(each: TrajectorySummary, level: int) -> str:
    title = f"sample {each.sample_index} rollout {each.rollout_n}"
    if each.sample_index is None:
        title = each.name or each.trace_id
    return f"{title} ({level + 1})" if level else title


def _rows_of(shape: Sequence[SpanShape]) -> list[_Place]:
    """Return the row of each span: the first in which it nests, as Perfetto requires of a row's slices."""
    rows: list[list[int]] = []
    found = []
    for span in shape:
        level, end = 0, span.offset + span.duration
        while True:
            if level == len(rows):
                rows.append([])
            # The ends of the slices that are open at this time, the innermost last.
            open_ends = rows[level]
            while open_ends and open_ends[-1] <= span.offset:
                open_ends.pop()
            if not open_ends or end <= open_ends[-1] + MAX_ROUNDING:
                end = min([end, *open_ends[-1:]])
                open_ends.append(end)
                found.append(_Place(level, end - span.offset))
                break
            level += 1
    return found


def _slice(
    each: TrajectorySummary, span: SpanShape, process: int, place: _Place, offset: int, *, is_first: bool
) -> dict[str, Any]:
    arguments: dict[str, Any] = {"kind": span.kind, "status": "error" if span.status == ERROR else "ok"}
    if is_first:
        arguments |= {
            "trace_id": each.trace_id,
            "status": each.status,
            "reward": each.reward,
            "output_tokens": each.output_tokens,
        }
    event: dict[str, Any] = {
        "ph": "X",
        "name": span.name,
        "cat": span.kind or "other",
        "pid": process,
        "tid": place.row,
        "ts": offset + span.offset,
        "dur": place.duration,
        "args": arguments,
    }
    color = _ERROR_COLOR if span.status == ERROR else _COLORS.get(span.kind)
    return event if color is None else {**event, "cname": color}


def _named(kind: str, process: int, row: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": process, "tid": row, "name": kind, "args": {"name": name}}
