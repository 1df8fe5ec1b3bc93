"""Odd runs in which nothing is wrong, the half that was looked at once, when `diagnose` was finished."""

from __future__ import annotations

import random

from tests.runs.kind import healthy
from tests.runs.policy import Settings, healthy_run, text_of
from tests.runs.recorded_run import Call, Run


@healthy
def one_step(rng: random.Random) -> Run:
    """Only the first step is there."""
    return healthy_run(rng, Settings(steps=1))


@healthy
def validation_between(rng: random.Random) -> Run:
    """Every other step has a validation pass with one rollout of each of sixty other prompts, at a lower reward."""
    run = healthy_run(rng)
    passes = healthy_run(rng, Settings(steps=4, prompts=60, rollouts=1, pool=60, start=0.25, end=0.4))
    for rollout in passes.rollouts:
        rollout.step *= 2
        rollout.sample += 5000
        rollout.validate = True
    run.rollouts += passes.rollouts
    return run


@healthy
def longer_and_better(rng: random.Random) -> Run:
    """Answers become twice as long, and the reward doubles."""
    run = healthy_run(rng, Settings(start=0.3, end=0.65))
    for rollout in run.rollouts:
        for turn in rollout.turns:
            turn.tokens = round(turn.tokens * (1 + (rollout.step - 1) / 7))
            turn.seconds = turn.tokens / 55
            turn.text = text_of(rng, turn.tokens)
    return run


@healthy
def concise_and_better(rng: random.Random) -> Run:
    """Answers become a third shorter, each its own, and the reward rises."""
    run = healthy_run(rng, Settings(start=0.4, end=0.65))
    for rollout in run.rollouts:
        for turn in rollout.turns:
            turn.tokens = round(turn.tokens * (1 - 0.33 * (rollout.step - 1) / 7))
            turn.seconds = turn.tokens / 55
            turn.text = text_of(rng, turn.tokens)
    return run


@healthy
def rewards_to_a_hundred(rng: random.Random) -> Run:
    """Rewards are points between 0 and 100."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        rollout.reward = min(100.0, max(0.0, 45 * (rollout.reward or 0.0) + rng.gauss(30, 12)))
    return run


@healthy
def many_turns(rng: random.Random) -> Run:
    """Each trajectory has ten to twenty turns, with a call of a tool in each."""
    return healthy_run(rng, Settings(turns=18, prompts=8, tokens=90))


@healthy
def no_tools(rng: random.Random) -> Run:
    """Each trajectory is one answer."""
    return healthy_run(rng, Settings(turns=1))


@healthy
def late_training(rng: random.Random) -> Run:
    """Most rollouts are right, and a third of the groups is solved; the rest still teaches."""
    return healthy_run(rng, Settings(start=0.72, end=0.8))


@healthy
def early_training(rng: random.Random) -> Run:
    """Few rollouts are right, and a third of the groups is not solved yet."""
    return healthy_run(rng, Settings(start=0.18, end=0.26))


@healthy
def slow_from_the_start(rng: random.Random) -> Run:
    """Environments take a minute for each trajectory, in every step."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        rollout.wait = rng.uniform(50, 70)
    return run


@healthy
def first_step_warms_up(rng: random.Random) -> Run:
    """The engine compiles in the first step, which takes five times as long."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        if rollout.step == 1:
            for turn in rollout.turns:
                turn.seconds *= 5
    return run


@healthy
def new_prompts_each_step(rng: random.Random) -> Run:
    """No prompt comes twice, and the mean reward goes up and down with the luck of the draw."""
    return healthy_run(rng, Settings(steps=10, prompts=8, pool=80, start=0.45, end=0.47))


@healthy
def steps_jump(rng: random.Random) -> Run:
    """The trainer was resumed from a later checkpoint of its own: steps 1 to 4, then 101 to 104."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        rollout.step += 96 * (rollout.step > 4)
    return run


@healthy
def overlapping_steps(rng: random.Random) -> Run:
    """Asynchronous training: the next step's rollouts start before the last ones have ended, one step stale at most."""
    run = healthy_run(rng)
    run.gap = -3.0
    for rollout in run.rollouts:
        rollout.begins = rng.uniform(0, 12)
        rollout.attributes["rollout.staleness"] = rng.randint(0, 1)
    return run


@healthy
def searches_without_hits(rng: random.Random) -> Run:
    """A fifth of the searches finds nothing and says so, in every step, as the tasks are hard."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        for turn in rollout.turns:
            turn.calls = [
                Call("search", call.arguments, [], None, call.seconds) if rng.random() < 0.2 else call
                for call in turn.calls
            ]
    return run
