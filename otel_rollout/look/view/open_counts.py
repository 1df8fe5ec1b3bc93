"""The numbers of open trajectories, by step: enough for the pages that lead to Live."""

from __future__ import annotations

from typing import Any

from otel_rollout.catalog import LiveRun

__all__ = ["open_counts"]


def open_counts(live: LiveRun) -> dict[str, Any]:
    """Return the number of open trajectories, and of those left by a process that ended or is silent.

    Args:
        live: The open trajectories; of very many in one process, those that run longest are counted by step.
    """
    steps: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in live.trajectories:
        key = each.step, each.validate, each.experiment_name
        names = dict(zip(("step", "validate", "experiment_name"), key, strict=True))
        counts = steps.setdefault(key, {**names, "open": 0, "left": 0})
        counts["open"] += 1
        counts["left"] += not each.is_alive
    return {"open": live.open, "left": sum(each["left"] for each in steps.values()), "steps": list(steps.values())}
