"""Made-up runs as summaries, without a folder: thousands of trajectories in a second."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from otel_rollout.catalog import GroupSummary, JudgedStep, StepSummary, catalog_of, groups, signals_of, steps
from otel_rollout.facts import ToolCounts, TrajectorySummary

SECOND = 10**9


@dataclass(frozen=True)
class Shape:
    """The size of a run and its policy.

    Args:
        steps: Training steps.
        prompts: Prompts of a step.
        rollouts: Rollouts of a prompt.
        pool: Prompts of the dataset; steps draw from it in turn.
        gain: The log odds of a solution that the policy has more.
        tokens: Median output tokens.
        slow: The factor of all durations.
        noisy_steps: The deviation of a factor of durations that all trajectories of a step share.
        failures: The share of failed tool calls.
    """

    steps: int = 8
    prompts: int = 12
    rollouts: int = 6
    pool: int = 48
    gain: float = 0.0
    tokens: float = 220.0
    slow: float = 1.0
    noisy_steps: float = 0.2
    failures: float = 0.02


class MadeRun:
    """A run of summaries, with the methods of `Run` that a comparison calls."""

    def __init__(self, summaries: Sequence[TrajectorySummary]) -> None:
        self._summaries = summaries

    def steps(self) -> list[StepSummary]:
        """Return the steps."""
        with closing(catalog_of(self._summaries)) as connection:
            return steps(connection)

    def summaries(self, step: StepSummary) -> list[TrajectorySummary]:
        """Return the trajectories of a step."""
        return [each for each in self._summaries if (each.step, each.validate) == (step.step, step.validate)]

    listed = summaries

    def groups(self, step: StepSummary) -> list[GroupSummary]:
        """Return the groups of a step."""
        with closing(catalog_of(self.summaries(step))) as connection:
            return groups(connection)

    def open_steps(self) -> set[tuple[int | None, bool]]:
        """Return the steps with open spans: none."""
        return set()

    def of_living(self, _: object) -> list[StepSummary]:
        """Return the steps that a process is writing: none."""
        return []

    def judged(self, steps: Sequence[StepSummary]) -> list[JudgedStep]:
        """Return steps with their signs of trouble."""
        return [
            JudgedStep(**vars(each), signals=signals_of(self.summaries(each)), looked_at=each.trajectories)
            for each in steps
        ]


def made_run(data: int, seed: int, shape: Shape | None = None, first_prompt: int = 0) -> list[TrajectorySummary]:
    """Return the trajectories of a run.

    Args:
        data: The seed of the prompts' difficulties.
        seed: The seed of everything else.
        shape: Its size.
        first_prompt: The number of the first prompt of the dataset.
    """
    chosen = shape or Shape()
    of_data, rng = random.Random(data), random.Random(f"{data} {seed}")
    skills = [of_data.gauss(0, 1.1) for _ in range(chosen.pool)]
    found = []
    for step in range(1, chosen.steps + 1):
        level = chosen.gain - 0.6 + step / chosen.steps
        factor = chosen.slow * math.exp(rng.gauss(0, chosen.noisy_steps))
        for number in range((step - 1) * chosen.prompts, step * chosen.prompts):
            sample = number % chosen.pool
            chance = 1 / (1 + math.exp(-level - skills[sample]))
            for rollout in range(chosen.rollouts):
                key = step, first_prompt + sample, rollout
                found.append(_trajectory(rng, key, chosen, factor, solved=rng.random() < chance))
    return found


def _trajectory(
    rng: random.Random, key: tuple[int, int, int], shape: Shape, factor: float, *, solved: bool
) -> TrajectorySummary:
    step, sample, rollout = key
    turns = rng.randint(1, 3)
    tokens = sum(round(rng.lognormvariate(math.log(shape.tokens), 0.35)) for _ in range(turns))
    seconds = factor * tokens / 55
    start = step * 10_000 * SECOND
    errors = sum(rng.random() < shape.failures for _ in range(turns))
    return TrajectorySummary(
        trace_id=f"{rng.getrandbits(128):032x}",
        step=step,
        sample_index=sample,
        rollout_n=rollout,
        start_time=start,
        end_time=start + round(seconds * SECOND),
        has_root=True,
        status="error" if rng.random() < 0.01 else "completed",
        reward=float(solved),
        spans=2 * turns + 1,
        turns=turns,
        output_tokens=tokens,
        llm_seconds=seconds,
        tools={"search": ToolCounts(turns, errors)},
        prompt=f"task {sample}",
        turn_hashes=tuple(f"{rng.getrandbits(32):08x}" for _ in range(turns)),
    )
