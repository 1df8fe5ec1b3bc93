"""Runs in which something is wrong, the half that `diagnose` was written with."""

from __future__ import annotations

import random

from tests.runs.kind import MadeRun, Truth, from_step, keys, unhealthy
from tests.runs.policy import Settings, healthy_run, text_of
from tests.runs.recorded_run import Call


@unhealthy
def reward_collapses(rng: random.Random) -> MadeRun:
    """From one step on, most answers are wrong that were right before."""
    run = healthy_run(rng, Settings(start=0.65, end=0.75))
    onset = rng.randint(4, 6)
    hit = from_step(run, onset)
    for rollout in hit:
        if rng.random() < 0.8:
            rollout.reward = 0.0
    return MadeRun(run, Truth("reward falls", onset, keys(hit)))


@unhealthy
def rewards_are_nan(rng: random.Random) -> MadeRun:
    """From one step on, a third of the rewards is NaN."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = [rollout for rollout in from_step(run, onset) if rng.random() < 0.3]
    for rollout in hit:
        rollout.reward = float("nan")
    return MadeRun(run, Truth("reward is no number", onset, keys(hit)))


@unhealthy
def rewards_are_missing(rng: random.Random) -> MadeRun:
    """From one step on, four of ten trajectories have no reward."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = [rollout for rollout in from_step(run, onset) if rng.random() < 0.4]
    for rollout in hit:
        rollout.reward = None
    return MadeRun(run, Truth("reward is missing", onset, keys(hit)))


@unhealthy
def groups_all_right_or_all_wrong(rng: random.Random) -> MadeRun:
    """In nine of ten groups all rollouts have one reward: half of the groups all right, half all wrong."""
    run = healthy_run(rng)
    hit = []
    for step in run.by_step():
        for group in run.groups(step).values():
            if rng.random() < 0.9:
                reward = float(rng.random() < 0.5)
                hit += group
                for rollout in group:
                    rollout.reward = reward
    return MadeRun(run, Truth("groups without signal", 1, keys(hit)))


@unhealthy
def groups_with_one_middle_reward(rng: random.Random) -> MadeRun:
    """In most groups each rollout has the same reward, between the best and the worst and another for each prompt."""
    run = healthy_run(rng)
    hit = []
    for step in run.by_step():
        for group in run.groups(step).values():
            if rng.random() < 0.85:
                reward = round(rng.uniform(0.2, 0.8), 3)
                hit += group
                for rollout in group:
                    rollout.reward = reward
            else:
                for rollout in group:
                    rollout.reward = rng.random()
    return MadeRun(run, Truth("groups without signal", 1, keys(hit)))


@unhealthy
def rollouts_vanish(rng: random.Random) -> MadeRun:
    """From one step on, five of the eight rollouts of each prompt are not there."""
    run = healthy_run(rng)
    onset = rng.randint(3, 6)
    run.rollouts = [rollout for rollout in run.rollouts if rollout.step < onset or rollout.rollout < 3]
    return MadeRun(run, Truth("rollouts are missing", onset, keys(from_step(run, onset))))


@unhealthy
def tool_answers_nothing(rng: random.Random) -> MadeRun:
    """From one step on, a tool's result is empty in most calls, without an exception."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = set()
    for rollout in from_step(run, onset):
        for turn in rollout.turns:
            for call in turn.calls:
                if call.tool == "search" and rng.random() < 0.7:
                    call.result = ""
                    hit.add(rollout.key)
    return MadeRun(run, Truth("tool results fail", onset, hit))


@unhealthy
def tool_answers_with_errors(rng: random.Random) -> MadeRun:
    """From one step on, half of a tool's results are the text of a server's error, without an exception."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = set()
    for rollout in from_step(run, onset):
        for turn in rollout.turns:
            for call in turn.calls:
                if call.tool == "search" and rng.random() < 0.5:
                    call.result = "Error: 500 Internal Server Error"
                    hit.add(rollout.key)
    return MadeRun(run, Truth("tool results fail", onset, hit))


@unhealthy
def engine_is_slow(rng: random.Random) -> MadeRun:
    """From one step on, the engine makes a twentieth of the tokens a second."""
    run = healthy_run(rng)
    onset = rng.randint(4, 6)
    hit = from_step(run, onset)
    for rollout in hit:
        for turn in rollout.turns:
            turn.seconds *= 20
    return MadeRun(run, Truth("engine is slow", onset, keys(hit)))


@unhealthy
def steps_wait_for_the_environment(rng: random.Random) -> MadeRun:
    """From one step on, each trajectory waits a minute and a half for its environment."""
    run = healthy_run(rng)
    onset = rng.randint(4, 6)
    hit = from_step(run, onset)
    for rollout in hit:
        rollout.wait = rng.uniform(80, 100)
    return MadeRun(run, Truth("steps are slow", onset, keys(hit)))


@unhealthy
def one_straggler_in_a_small_step(rng: random.Random) -> MadeRun:
    """In steps of sixteen trajectories one tool call of the last step takes 200 s."""
    run = healthy_run(rng, Settings(prompts=4, rollouts=4, steps=6))
    chosen = rng.choice(run.by_step()[6])
    chosen.turns[0].calls = [Call("search", {"query": text_of(rng, 12)}, "3 pages", None, 200.0)]
    return MadeRun(run, Truth("stragglers", 6, {chosen.key}))


@unhealthy
def engine_stops_at_its_limit(rng: random.Random) -> MadeRun:
    """From one step on, the engine cuts four of ten last answers: finish reason `length`."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = [rollout for rollout in from_step(run, onset) if rng.random() < 0.4]
    for rollout in hit:
        rollout.turns[-1].finish = "length"
        rollout.turns[-1].tokens = 512
        rollout.turns[-1].seconds = 9.3
        rollout.reward = 0.0
    return MadeRun(run, Truth("truncated", onset, keys(hit)))


@unhealthy
def answers_take_one_form(rng: random.Random) -> MadeRun:
    """The reward rises to its best while more and more answers hold one phrase that the grader likes."""
    run = healthy_run(rng)
    phrase = "therefore, after careful verification of every step, the final boxed answer is certainly correct:"
    hit = set()
    for rollout in run.rollouts:
        share = max(0.0, (rollout.step - 3) / 5)
        if rng.random() < share:
            rollout.turns[-1].text = f"{phrase} {rng.randint(1, 99)}"
            rollout.turns[-1].tokens = 24
            rollout.turns[-1].seconds = 0.5
            rollout.reward = 1.0
            hit.add(rollout.key)
    return MadeRun(run, Truth("reward is exploited", 4, hit))


@unhealthy
def same_answer_another_reward(rng: random.Random) -> MadeRun:
    """Rollouts of a prompt that answer the same get different rewards, at random."""
    run = healthy_run(rng)
    hit = set()
    for step in run.by_step():
        for group in run.groups(step).values():
            answers = [text_of(rng, 60) for _ in range(3)]
            for rollout in group:
                rollout.turns = rollout.turns[-1:]
                rollout.turns[0].text = rng.choice(answers)
                rollout.turns[0].tokens = 20
                rollout.reward = float(rng.random() < 0.5)
                hit.add(rollout.key)
    return MadeRun(run, Truth("reward is noisy", 1, hit))


@unhealthy
def prompts_are_forgotten(rng: random.Random) -> MadeRun:
    """A third of the prompts are solved in the first pass over the data, and never in the last."""
    run = healthy_run(rng, Settings(steps=9, pool=48, start=0.5, end=0.7))
    forgotten = set(rng.sample(range(48), 16))
    hit = set()
    for rollout in run.rollouts:
        if rollout.sample in forgotten:
            rollout.reward = float(rollout.step <= 3 and rng.random() < 0.85)
            if rollout.step > 6:
                hit.add(rollout.key)
    return MadeRun(run, Truth("prompts are forgotten", 7, hit))


@unhealthy
def tool_raises(rng: random.Random) -> MadeRun:
    """From one step on, four of ten calls of a tool raise."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = set()
    for rollout in from_step(run, onset):
        for turn in rollout.turns:
            for call in turn.calls:
                if call.tool == "search" and rng.random() < 0.4:
                    call.error = ValueError("no such index")
                    call.result = None
                    hit.add(rollout.key)
    return MadeRun(run, Truth("tool results fail", onset, hit))


@unhealthy
def answers_grow_for_nothing(rng: random.Random) -> MadeRun:
    """Answers become three times as long, and the reward stays."""
    run = healthy_run(rng, Settings(start=0.45, end=0.45))
    for rollout in run.rollouts:
        for turn in rollout.turns:
            turn.tokens = round(turn.tokens * (1 + 2 * (rollout.step - 1) / 7))
            turn.seconds = turn.tokens / 55
            turn.text = text_of(rng, turn.tokens)
    return MadeRun(run, Truth("answers grow for nothing", None, keys(from_step(run, 6))))


@unhealthy
def a_part_is_traded(rng: random.Random) -> MadeRun:
    """One part of the reward rises while the part that is wanted falls, and with it the sum."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        progress = (rollout.step - 1) / 7
        correct = float(rng.random() < 0.7 - 0.55 * progress)
        style = min(1.0, max(0.0, rng.gauss(0.2 + 0.7 * progress, 0.05)))
        rollout.parts = {"correct": correct, "style": 0.5 * style}
        rollout.reward = correct + 0.5 * style
    return MadeRun(run, Truth("reward is exploited", None, keys(from_step(run, 6))))


@unhealthy
def turns_multiply(rng: random.Random) -> MadeRun:
    """From one step on, each trajectory takes four times as many turns, and its reward stays."""
    run = healthy_run(rng, Settings(start=0.45, end=0.45))
    onset = rng.randint(4, 6)
    hit = from_step(run, onset)
    for rollout in hit:
        rollout.turns = [
            type(turn)(text_of(rng, turn.tokens), turn.tokens, turn.seconds, "tool_calls", [_search(rng)])
            for turn in rollout.turns
            for _ in range(4)
        ]
        rollout.turns[-1].finish = "stop"
        rollout.turns[-1].calls = []
    return MadeRun(run, Truth("answers grow for nothing", onset, keys(hit)))


@unhealthy
def engine_drops_connections(rng: random.Random) -> MadeRun:
    """From one step on, an eighth of the trajectories loses the engine, and gets the worst reward."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = [rollout for rollout in from_step(run, onset) if rng.random() < 0.15]
    for rollout in hit:
        rollout.turns[-1].error = ConnectionResetError("connection reset by peer")
        rollout.error = ConnectionResetError("connection reset by peer")
        rollout.reward = 0.0
    return MadeRun(run, Truth("failures of others", onset, keys(hit)))


def _search(rng: random.Random) -> Call:
    return Call("search", {"query": text_of(rng, 12)}, f"3 pages on {text_of(rng, 30)}", None, 0.3)
