"""Trace folders for the tests of data frames and exports."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.trace_folder.recordings import make_trajectory

SECRET = '"the key is [redacted], and [redacted]"'


def steps(numbers: Iterable[int | None], rollouts: int = 2, **given) -> list[list]:
    """Return the trajectories of steps, whose rewards are the numbers of the rollouts."""
    return [
        make_trajectory(step, 0, rollout, reward=float(rollout), **given)
        for step in numbers
        for rollout in range(rollouts)
    ]


def damage(folder: Path) -> None:
    """Break the last frame of a folder's only file, whose index stays whole."""
    [path] = folder.rglob("*.otlp.zst")
    data = bytearray(path.read_bytes())
    data[-20:] = bytes(20)
    path.write_bytes(data)
