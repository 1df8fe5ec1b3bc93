"""Runs in which something is wrong, the half that was looked at once, when `diagnose` was finished."""

from __future__ import annotations

import math
import random

from tests.runs.kind import MadeRun, Truth, from_step, keys, unhealthy
from tests.runs.policy import Settings, healthy_run, text_of
from tests.runs.recorded_run import Call


@unhealthy
def reward_slides(rng: random.Random) -> MadeRun:
    """The share of right answers falls a little with every step, from three quarters to a third."""
    run = healthy_run(rng, Settings(steps=10, start=0.8, end=0.28))
    return MadeRun(run, Truth("reward falls", None, keys(from_step(run, 7))))


@unhealthy
def rewards_are_infinite(rng: random.Random) -> MadeRun:
    """From one step on, one in twelve rewards is infinite."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = [rollout for rollout in from_step(run, onset) if rng.random() < 0.08]
    for rollout in hit:
        rollout.reward = rng.choice((math.inf, -math.inf))
    return MadeRun(run, Truth("reward is no number", onset, keys(hit)))


@unhealthy
def a_step_without_rewards(rng: random.Random) -> MadeRun:
    """One step in the middle has no reward at all."""
    run = healthy_run(rng)
    step = rng.randint(3, 6)
    hit = run.by_step()[step]
    for rollout in hit:
        rollout.reward = None
    return MadeRun(run, Truth("reward is missing", step, keys(hit)))


@unhealthy
def groups_at_one_half(rng: random.Random) -> MadeRun:
    """From one step on, the rewards of most groups are 0.5 for all, as from a judge that has no opinion."""
    run = healthy_run(rng)
    onset = rng.randint(2, 5)
    hit = []
    for step in run.by_step():
        for group in run.groups(step).values():
            if step >= onset and rng.random() < 0.85:
                hit += group
                for rollout in group:
                    rollout.reward = 0.5
    return MadeRun(run, Truth("groups without signal", onset, keys(hit)))


@unhealthy
def every_reward_is_zero(rng: random.Random) -> MadeRun:
    """From one step on, the verifier gives 0 to everything."""
    run = healthy_run(rng, Settings(start=0.5, end=0.6))
    onset = rng.randint(3, 6)
    hit = from_step(run, onset)
    for rollout in hit:
        rollout.reward = 0.0
    return MadeRun(run, Truth("groups without signal", onset, keys(hit)))


@unhealthy
def some_groups_are_incomplete(rng: random.Random) -> MadeRun:
    """From one step on, a third of the groups lacks one to four rollouts."""
    run = healthy_run(rng)
    onset = rng.randint(3, 6)
    hit, gone = set(), set()
    for step in run.by_step():
        for group in run.groups(step).values():
            if step >= onset and rng.random() < 0.33:
                lost = keys(rng.sample(group, rng.randint(1, 4)))
                gone |= lost
                hit |= keys(group) - lost
    run.rollouts = [rollout for rollout in run.rollouts if rollout.key not in gone]
    return MadeRun(run, Truth("rollouts are missing", onset, hit))


@unhealthy
def tool_answers_with_error_objects(rng: random.Random) -> MadeRun:
    """From one step on, half of a tool's results are JSON objects that say `error`."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = set()
    for rollout in from_step(run, onset):
        for turn in rollout.turns:
            for call in turn.calls:
                if call.tool == "calculate" and rng.random() < 0.5:
                    call.result = {"status": "error", "message": "sandbox unavailable", "result": None}
                    hit.add(rollout.key)
    return MadeRun(run, Truth("tool results fail", onset, hit))


@unhealthy
def engine_slows_down(rng: random.Random) -> MadeRun:
    """The engine makes fewer tokens a second with each step, from 55 to 14."""
    run = healthy_run(rng, Settings(steps=10))
    for rollout in run.rollouts:
        for turn in rollout.turns:
            turn.seconds *= 1 + 3 * (rollout.step - 1) / 9
    return MadeRun(run, Truth("engine is slow", None, keys(from_step(run, 7))))


@unhealthy
def a_tool_becomes_slow(rng: random.Random) -> MadeRun:
    """From one step on, each call of a tool takes most of a minute."""
    run = healthy_run(rng)
    onset = rng.randint(4, 6)
    hit = set()
    for rollout in from_step(run, onset):
        for turn in rollout.turns:
            for call in turn.calls:
                if call.tool == "search":
                    call.seconds = rng.uniform(35, 60)
                    hit.add(rollout.key)
    return MadeRun(run, Truth("steps are slow", onset, hit))


@unhealthy
def a_few_trajectories_take_ten_times_as_long(rng: random.Random) -> MadeRun:
    """From one step on, one trajectory in forty generates for minutes, and all others wait."""
    run = healthy_run(rng)
    onset = rng.randint(2, 5)
    hit = []
    for step, rollouts in run.by_step().items():
        if step >= onset:
            late = rng.sample(rollouts, 3)
            hit += late
            for rollout in late:
                rollout.turns[-1].seconds = rng.uniform(150, 200)
                rollout.turns[-1].tokens = 8000
    return MadeRun(run, Truth("stragglers", onset, keys(hit)))


@unhealthy
def the_limit_of_turns_cuts(rng: random.Random) -> MadeRun:
    """From one step on, a third of the trajectories has the status `truncated`."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = [rollout for rollout in from_step(run, onset) if rng.random() < 0.35]
    for rollout in hit:
        rollout.status = "truncated"
        rollout.reward = 0.0
    return MadeRun(run, Truth("truncated", onset, keys(hit)))


@unhealthy
def answers_shrink_to_nothing(rng: random.Random) -> MadeRun:
    """The reward rises while answers shrink to a few words: the grader pays for guesses."""
    run = healthy_run(rng)
    for rollout in run.rollouts:
        share = max(0.0, (rollout.step - 2) / 6)
        turn = rollout.turns[-1]
        rollout.turns = [turn]
        turn.finish, turn.calls = "stop", []
        turn.tokens = max(3, round(220 * (1 - share)))
        turn.seconds = turn.tokens / 55
        turn.text = " ".join(text_of(rng, turn.tokens).split()[: max(1, turn.tokens // 3)])
        rollout.reward = float(rng.random() < 0.35 + 0.6 * share)
    return MadeRun(run, Truth("reward is exploited", None, keys(from_step(run, 6))))


@unhealthy
def answers_repeat_themselves(rng: random.Random) -> MadeRun:
    """The reward rises while answers repeat one sentence over and over."""
    run = healthy_run(rng)
    hit = set()
    for rollout in run.rollouts:
        share = max(0.0, (rollout.step - 3) / 5)
        if rng.random() < share:
            sentence = f"so the {rng.choice(('answer', 'result', 'value'))} is {rng.randint(1, 9)}. "
            rollout.turns[-1].text = sentence * 30
            rollout.turns[-1].tokens = 300
            rollout.reward = 1.0
            hit.add(rollout.key)
    return MadeRun(run, Truth("reward is exploited", 4, hit))


@unhealthy
def a_judge_throws_dice(rng: random.Random) -> MadeRun:
    """From one step on, equal answers to one prompt get rewards between 0 and 1 at random."""
    run = healthy_run(rng)
    onset = rng.randint(2, 4)
    hit = set()
    for step in run.by_step():
        for group in run.groups(step).values():
            answer = f"{rng.randint(10, 99)} {text_of(rng, 45)}"
            for rollout in group:
                rollout.reward = round(rng.random(), 3)
                if step >= onset and rng.random() < 0.6:
                    rollout.turns[-1].text = answer
                    hit.add(rollout.key)
    return MadeRun(run, Truth("reward is noisy", onset, hit))


@unhealthy
def half_of_the_solved_is_lost(rng: random.Random) -> MadeRun:
    """Prompts that were solved by most rollouts at first are later solved by none, and others instead."""
    run = healthy_run(rng, Settings(steps=8, prompts=16, pool=32))
    lost = set(rng.sample(range(32), 12))
    hit = set()
    for rollout in run.rollouts:
        if rollout.sample in lost:
            rollout.reward = float(rollout.step <= 2 and rng.random() < 0.9)
            if rollout.step >= 5:
                hit.add(rollout.key)
        elif rollout.step > 2:
            rollout.reward = float(rng.random() < 0.75)
    return MadeRun(run, Truth("prompts are forgotten", None, hit))


@unhealthy
def sandbox_times_out(rng: random.Random) -> MadeRun:
    """From one step on, a third of a tool's calls ends in a timeout, and such trajectories get the worst reward."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = set()
    for rollout in from_step(run, onset):
        calls = [call for turn in rollout.turns for call in turn.calls if call.tool == "calculate"]
        if calls and rng.random() < 0.5:
            calls[-1].error = TimeoutError("sandbox: no answer in 30 s")
            calls[-1].result = None
            calls[-1].seconds = 30.0
            rollout.reward = 0.0
            hit.add(rollout.key)
    return MadeRun(run, Truth("failures of others", onset, hit))


@unhealthy
def all_answer_the_same(rng: random.Random) -> MadeRun:
    """From one step on, all rollouts of most prompts are one answer, letter for letter."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = set()
    for step in run.by_step():
        for group in run.groups(step).values():
            if step >= onset and rng.random() < 0.6:
                for rollout in group:
                    rollout.turns = group[0].turns
                    rollout.reward = group[0].reward
                hit |= keys(group)
    return MadeRun(run, Truth("answers are duplicates", onset, hit))


@unhealthy
def weights_are_old(rng: random.Random) -> MadeRun:
    """From one step on, a third of the trajectories was generated with weights that are nine steps old."""
    run = healthy_run(rng)
    onset = rng.randint(3, 6)
    hit = []
    for rollout in run.rollouts:
        rollout.attributes["rollout.staleness"] = rng.randint(0, 1)
        if rollout.step >= onset and rng.random() < 0.35:
            rollout.attributes["rollout.staleness"] = 9
            hit.append(rollout)
    return MadeRun(run, Truth("weights are old", onset, keys(hit)))


@unhealthy
def agents_call_in_circles(rng: random.Random) -> MadeRun:
    """From one step on, four of ten trajectories make one call again and again."""
    run = healthy_run(rng)
    onset = rng.randint(2, 6)
    hit = []
    for rollout in from_step(run, onset):
        if rng.random() < 0.4:
            call = Call("search", {"query": text_of(rng, 12)}, "no results", None, 0.3)
            first = rollout.turns[0]
            again = [type(first)(text_of(rng, 60), 60, 1.1, "tool_calls", [call]) for _ in range(5)]
            rollout.turns = [*again, rollout.turns[-1]]
            rollout.reward = 0.0
            hit.append(rollout)
    return MadeRun(run, Truth("calls are repeated", onset, keys(hit)))


@unhealthy
def reward_function_raises(rng: random.Random) -> MadeRun:
    """From one step on, the reward function fails for a fifth of the trajectories, which get 0 for it."""
    run = healthy_run(rng, Settings(start=0.5, end=0.65))
    onset = rng.randint(2, 6)
    hit = [rollout for rollout in from_step(run, onset) if rng.random() < 0.2]
    for rollout in hit:
        rollout.score_error = RuntimeError("verifier: cannot parse the answer's file")
        rollout.reward = 0.0
    return MadeRun(run, Truth("failures of others", onset, keys(hit)))
