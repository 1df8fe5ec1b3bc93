"""Kinds of runs, and the truth of a run of one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.runs.recorded_run import Rollout, Run

Key = tuple[int, int, int]


@dataclass
class Truth:
    """What is wrong with a run.

    Args:
        problem: The problem's name, a key of `CHECKS_OF`.
        onset: The first step that has it; None if it is in no step alone.
        affected: The trajectories that have it: step, sample and number.
    """

    problem: str
    onset: int | None = None
    affected: set[Key] = field(default_factory=set)


class MadeRun(NamedTuple):
    """A run and its truth; None for a healthy one."""

    run: Run
    truth: Truth | None


Maker = Callable[[random.Random], MadeRun]

UNHEALTHY: dict[str, Maker] = {}
HEALTHY: dict[str, Maker] = {}


def unhealthy(maker: Maker) -> Maker:
    """Register a kind under its function's name."""
    UNHEALTHY[maker.__name__] = maker
    return maker


def healthy(maker: Callable[[random.Random], Run]) -> Callable[[random.Random], Run]:
    """Register a healthy kind under its function's name."""
    HEALTHY[maker.__name__] = lambda rng: MadeRun(maker(rng), None)
    return maker


def keys(rollouts: Iterable[Rollout]) -> set[Key]:
    """Return the keys of trajectories."""
    return {rollout.key for rollout in rollouts}


def from_step(run: Run, onset: int) -> list[Rollout]:
    """Return the training trajectories from a step on."""
    return [rollout for rollout in run.rollouts if rollout.step >= onset and not rollout.validate]
