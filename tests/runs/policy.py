"""A made-up policy that learns: the healthy run that every kind starts from."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from tests.runs.recorded_run import Call, Rollout, Run, Turn

_TEXT = (
    "bees river stone market orbit ledger lantern copper willow frost engine harbor pepper violin glacier meadow "
    "quartz saddle timber velvet walnut zephyr anchor basil cedar dune ember falcon garnet hazel iris jasper kelp "
    "lichen maple nectar onyx pine quill reed sable thistle umber vine wren yarrow apple birch clay delta elm fern"
)
WORDS = tuple(_TEXT.split())


@dataclass
class Settings:
    """The size of a run and its policy.

    Args:
        steps: Training steps.
        prompts: Prompts of a step.
        rollouts: Rollouts of a prompt.
        pool: Prompts of the dataset; steps draw from it in turn.
        tokens: Median tokens of an answer.
        turns: Turns of a trajectory, at most.
        tokens_a_second: The engine's speed for one trajectory.
        start: The share of solved rollouts of the median prompt in the first step.
        end: The same in the last step.
    """

    steps: int = 8
    prompts: int = 16
    rollouts: int = 8
    pool: int = 48
    tokens: int = 220
    turns: int = 3
    tokens_a_second: float = 55.0
    start: float = 0.35
    end: float = 0.6


def text_of(rng: random.Random, tokens: int) -> str:
    """Return a text of its own, a word for three tokens."""
    return " ".join(rng.choice(WORDS) for _ in range(max(2, min(tokens // 3, 80))))


def healthy_run(rng: random.Random, settings: Settings | None = None) -> Run:
    """Return a run in which nothing is wrong."""
    chosen = settings or Settings()
    skills = [rng.gauss(0, 1.1) for _ in range(chosen.pool)]
    tasks = [f"Task {number}: {text_of(rng, 40)}?" for number in range(chosen.pool)]
    rollouts: list[Rollout] = []
    for step in range(1, chosen.steps + 1):
        progress = (step - 1) / max(1, chosen.steps - 1)
        level = chosen.start + (chosen.end - chosen.start) * progress
        first = (step - 1) * chosen.prompts
        for sample in (number % chosen.pool for number in range(first, first + chosen.prompts)):
            chance = 1 / (1 + math.exp(-(math.log(level / (1 - level)) + skills[sample])))
            rollouts += [
                _rollout(rng, chosen, (step, sample, number), tasks[sample], solved=rng.random() < chance)
                for number in range(chosen.rollouts)
            ]
    return Run(rollouts)


def _rollout(rng: random.Random, settings: Settings, key: tuple[int, int, int], task: str, *, solved: bool) -> Rollout:
    count = rng.randint(1, settings.turns)
    turns = []
    for number in range(count):
        tokens = max(8, round(rng.lognormvariate(math.log(settings.tokens), 0.35)))
        turn = Turn(text_of(rng, tokens), tokens, tokens / (settings.tokens_a_second * rng.uniform(0.85, 1.15)))
        if number < count - 1:
            turn.finish = "tool_calls"
            turn.calls = [_call(rng)]
        turns.append(turn)
    step, sample, rollout = key
    return Rollout(step, sample, rollout, task, turns, float(solved), begins=rng.uniform(0, 0.5))


def _call(rng: random.Random) -> Call:
    if rng.random() < 0.5:
        return Call(
            "search", {"query": text_of(rng, 12)}, f"3 pages on {text_of(rng, 30)}", None, rng.uniform(0.1, 0.6)
        )
    result = str(rng.randint(10, 10**6))
    return Call("calculate", {"formula": f"{rng.randint(2, 999)} * {rng.randint(2, 999)}"}, result, None, 0.05)
