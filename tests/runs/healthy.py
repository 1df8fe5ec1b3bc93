"""Odd runs in which nothing is wrong, the half that `diagnose` was written with."""

from __future__ import annotations

import random

from tests.runs.kind import healthy
from tests.runs.policy import Settings, healthy_run, text_of
from tests.runs.recorded_run import Call, Run


@healthy
def plain(rng: random.Random) -> Run:
    """A policy learns."""
    return healthy_run(rng)


@healthy
def tiny(rng: random.Random) -> Run:
    """Three steps of two prompts with four rollouts each."""
    return healthy_run(rng, Settings(steps=3, prompts=2, rollouts=4))


@healthy
def curriculum(rng: random.Random) -> Run:
    """From one step on the data set holds harder tasks: rewards fall and answers grow at once, and both stay."""
    easy = healthy_run(rng, Settings(steps=5, start=0.55, end=0.65))
    hard = healthy_run(rng, Settings(steps=5, start=0.3, end=0.42, tokens=420))
    for rollout in hard.rollouts:
        rollout.step += 5
        rollout.sample += 1000
        rollout.prompt = f"Hard: {rollout.prompt}"
    return Run(easy.rollouts + hard.rollouts)


@healthy
def penalty_falls_while_all_else_rises(rng: random.Random) -> Run:
    """The reward and its part `correct` rise; answers grow, and a small penalty for their length with them."""
    run = healthy_run(rng, Settings(start=0.35, end=0.75))
    for rollout in run.rollouts:
        correct = rollout.reward or 0.0
        penalty = -0.02 - 0.02 * rollout.step * rng.uniform(0.8, 1.2)
        rollout.parts = {"correct": correct, "length_penalty": penalty}
        rollout.reward = correct + penalty
        for turn in rollout.turns:
            turn.tokens = round(turn.tokens * (1 + 0.06 * rollout.step))
    return run


@healthy
def rewards_of_a_tenth(rng: random.Random) -> Run:
    """All rewards are 0 or 0.1, and groups are mixed."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        rollout.reward = 0.1 * (rollout.reward or 0.0)
    return run


@healthy
def one_outlier(rng: random.Random) -> Run:
    """Rewards are between 0 and 1, but for a single one of 50."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        rollout.reward = min(1.0, max(0.0, 0.6 * (rollout.reward or 0.0) + rng.gauss(0.2, 0.1)))
    rng.choice(run.rollouts).reward = 50.0
    return run


@healthy
def negative_rewards(rng: random.Random) -> Run:
    """Rewards are costs between -10 and 0 that shrink."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        rollout.reward = -10 + 6 * (rollout.reward or 0.0) + rng.uniform(0, 3) + 0.1 * rollout.step
    return run


@healthy
def one_rollout_a_prompt(rng: random.Random) -> Run:
    """Each prompt has one rollout, as with a learned baseline."""
    return healthy_run(rng, Settings(prompts=96, rollouts=1, pool=400))


@healthy
def failed_tool_is_recovered(rng: random.Random) -> Run:
    """A tool of some trajectories fails; the next turn uses the other tool, and siblings do the same with success."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        if rng.random() < 0.15 and len(rollout.turns) > 1:
            first = rollout.turns[0]
            first.calls = [
                Call("search", {"query": text_of(rng, 12)}, None, ConnectionError("index is moving"), 0.4),
                Call("calculate", {"formula": "6 * 7"}, "42", None, 0.05),
            ]
    return run


@healthy
def interpreter_errors(rng: random.Random) -> Run:
    """The tool runs the model's own code, and one result in eight is the traceback of its mistake, in every step."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        for turn in rollout.turns:
            for call in turn.calls:
                call.tool = "python"
                call.arguments = {"code": f"print({rng.randint(1, 99)} + {rng.randint(1, 99)})"}
                if rng.random() < 0.12:
                    call.result = "Traceback (most recent call last):\n  NameError: name 'x' is not defined"
    return run


@healthy
def writes_return_nothing(rng: random.Random) -> Run:
    """A tool that writes files has an empty result by nature, in every step."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        for turn in rollout.turns:
            for call in turn.calls:
                if call.tool == "calculate":
                    call.tool, call.result = "write_file", ""
                    call.arguments = {"path": f"part_{rng.randint(1, 999)}.txt", "text": text_of(rng, 20)}
    return run


@healthy
def short_labels(rng: random.Random) -> Run:
    """The task is to name one of four classes: answers are a word, and many are equal."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        rollout.turns = rollout.turns[-1:]
        turn = rollout.turns[0]
        right = WORD_OF[rollout.sample % 4]
        wrong = rng.choice([word for word in WORD_OF if word != right])
        turn.text, turn.tokens, turn.seconds = (right if rollout.reward else wrong), 1, 0.1
    return run


@healthy
def larger_batches(rng: random.Random) -> Run:
    """From one step on, a step has three times as many prompts."""
    small = healthy_run(rng, Settings(steps=4, pool=200))
    large = healthy_run(rng, Settings(steps=4, prompts=48, pool=200, start=0.48, end=0.6))
    for rollout in large.rollouts:
        rollout.step += 4
    return Run(small.rollouts + large.rollouts)


@healthy
def surplus_is_cancelled(rng: random.Random) -> Run:
    """Ten rollouts of each prompt start; when eight have ended, the other two are cancelled without a reward."""
    run = healthy_run(rng, Settings(rollouts=10))
    for step in run.by_step():
        for group in run.groups(step).values():
            for rollout in rng.sample(group, 2):
                rollout.status, rollout.reward = "cancelled", None
                rollout.turns = rollout.turns[:1]
    return run


@healthy
def long_tail(rng: random.Random) -> Run:
    """Lengths are as skewed as reasoning models' are: the slowest of a step takes four times the median."""
    run = healthy_run(rng, Settings(turns=1))
    for rollout in run.rollouts:
        tokens = min(2400, max(60, round(rng.lognormvariate(6.2, 0.55))))
        rollout.turns[0].tokens, rollout.turns[0].seconds = tokens, tokens / 50
        rollout.turns[0].text = text_of(rng, tokens)
    return run


WORD_OF = ("spring", "summer", "autumn", "winter")
