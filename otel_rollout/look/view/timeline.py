"""A step's timeline: a lane per trajectory, made of its summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from otel_rollout.facts.shapes import places_of
from otel_rollout.facts.table import TrajectorySummary

__all__ = ["timeline"]

KINDS: Final = {"LLM": 0, "TOOL": 1, "EVALUATOR": 2}
OTHER: Final = 3
FIELDS: Final = 5
"""The numbers of a segment: kind, start, duration, name, status."""


def timeline(summaries: Sequence[TrajectorySummary]) -> dict[str, Any]:
    """Return the lanes of a step, sorted by end; times are microseconds from the step's start.

    Args:
        summaries: The step's trajectories.
    """
    start = min((each.start_time for each in summaries), default=0)
    end = max((each.end_time for each in summaries), default=0)
    names: dict[str, int] = {}
    lanes = [
        {
            "trace_id": each.trace_id,
            "sample_index": each.sample_index,
            "rollout_n": each.rollout_n,
            "status": each.status,
            "reward": each.reward,
            "has_root": each.has_root,
            "start": (each.start_time - start) // 1000,
            "end": (each.end_time - start) // 1000,
            "segments": _segments(each, (each.start_time - start) // 1000, names),
        }
        for each in sorted(summaries, key=lambda each: each.end_time)
    ]
    return {"start_time": str(start), "end_time": str(end), "names": list(names), "lanes": lanes}


def _segments(summary: TrajectorySummary, start: int, names: dict[str, int]) -> list[int]:
    places, lasted = places_of(summary.shape), (summary.end_time - summary.start_time) // 1000
    parents = {parent for _, _, _, _, _, parent in places}
    segments: list[int] = []
    for at, (name, kind, offset, duration, status, parent) in enumerate(places):
        # Leave out spans after the root, which aren't the trajectory's time.
        if offset > lasted:
            continue
        number = KINDS.get(kind, OTHER)
        # A span with children shows by them; the time between them is waiting.
        if number == OTHER:
            if at in parents or parent < 0:
                continue
        elif parent >= 0 and places[parent][1] == kind:
            continue
        segments += (number, start + offset, duration, names.setdefault(name, len(names)), status)
    return segments
