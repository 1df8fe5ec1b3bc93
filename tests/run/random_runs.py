"""Runs made up from a seed, and the figures of their steps and groups in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from math import isclose
from statistics import fmean, pstdev
from typing import Any

import numpy as np

from otel_rollout.facts import SpanError, ToolCounts, TrajectorySummary

SECOND = 10**9
START = 1_700_000_000 * SECOND
REWARDS = (
    (0.0, 1.0),
    (0.0, 0.5, 1.0),
    (0.3, 0.1 + 0.2, 1.0, -1.0),
    (0.0, -1e-13, 1.0),
    (1e-13, -1e-13),
    (100.0, 100.0 + 5e-8, 100.01, 95.0),
    (-100.0, -100.0 + 5e-8, -95.0),
    (100.0, 100.0 + 5e-8),
    (95.0, *[99.0] * 6, 100.0),
    (0.0,),
    (2.0,),
    (-2.0,),
)
"""Some differ by rounding alone."""
REASONS = (None, "stop", "length", "max_tokens", "max_length", "model_length", "max_output_tokens")
TEXTS = ("0123abcd", "89abcdef", "")


def made_run(seed: int) -> list[TrajectorySummary]:
    """Return the trajectories of a folder: one to three experiments, each of one or two runs that may share steps."""
    rng = random.Random(seed)
    if seed == 0:
        return [_trajectory(rng, 1, 1, 0, 0)]
    if seed == 1:
        # As many that the twentieth part is another than the nineteenth.
        return [_trajectory(rng, 1, number, number % 7, number) for number in range(39)]
    found = []
    for experiment in rng.sample(("a", "b", None), rng.randint(1, 3)):
        for run in rng.sample(("run 1", "run 2", "run 3", None), rng.choice((1, 1, 2, 3))):
            first = rng.randint(0, 3)
            for step in (*range(first, first + rng.randint(1, 3)), None):
                for validate in (False, True):
                    if step is not None and rng.random() < 0.7:
                        tags = {"experiment_name": experiment, "run_id": run, "step": step, "validate": validate}
                        found += _step(rng, tags, len(found))
    return found or [_trajectory(rng, seed, 1, 0, 0)]


def _step(rng: random.Random, tags: dict[str, Any], at: int) -> list[TrajectorySummary]:
    samples: list[int | str | None] = [*range(rng.randint(1, 4)), "1", "uid", None]
    rewards = rng.choice(REWARDS)
    rollouts = rng.choice((1, 2, 8))
    numbers = [*range(rollouts), "x", None]
    found = []
    # Asynchronous training has rollouts of one step in two runs, and no number twice, or the same ones.
    for sample in rng.sample(samples, rng.randint(1, len(samples))):
        for rollout in rng.sample(numbers, rng.randint(1, len(numbers))):
            made = _trajectory(rng, (tags["step"] or 0) + 1, at + len(found), sample, rollout, rewards)
            for name, value in tags.items():
                setattr(made, name, value)
            found.append(made)
    return found


def _trajectory(
    rng: random.Random, step: int, number: int, sample: Any, rollout: Any, rewards: Sequence[float] = (0.5,)
) -> TrajectorySummary:
    start = START + step * 100 * SECOND + rng.randrange(SECOND) * 1000 + number
    status = rng.choice(("completed",) * 4 + ("error", "truncated", "cancelled", None))
    reward = rng.choice((*rewards, *rewards, None))
    errors = [SpanError("search", "TOOL", rng.choice(("Timeout", "ValueError", "")), False)] * rng.choice((0, 0, 1, 2))
    return TrajectorySummary(
        f"{rng.getrandbits(128):032x}",
        step=step,
        sample_index=sample,
        rollout_n=rollout,
        start_time=start,
        # Several end at once.
        end_time=start // SECOND * SECOND + rng.choice((1, 2, 2, 3, 30, rng.randint(4, 90))) * SECOND + 1000,
        has_root=status is not None,
        status=status,
        reward=reward,
        # One that was NaN.
        invalid_rewards=int(reward is None and rng.random() < 0.5),
        reward_parts={name: rng.random() for name in ("format", "exact") if rng.random() < 0.7},
        tools={name: ToolCounts(rng.randint(1, 4), rng.randint(0, 1)) for name in ("a", "b") if rng.random() < 0.6},
        errors=tuple(errors),
        error_type=rng.choice((None, None, "OutOfMemory")),
        finish_reason=rng.choice(REASONS),
        turn_hashes=tuple(rng.choices(TEXTS, (8, 2, 1), k=rng.choice((0, 1, 2, 2, 3)))),
        turns=rng.choice((None, 1, 2, 7)),
        output_tokens=rng.choice((None, 10, 200, 4096)),
        prefix_breaks=rng.choice((0, 0, 2)),
        unread_answers=rng.choice((0, 0, 3)),
        staleness=rng.choice((None, 0, 1, 3)),
        fate=rng.choice((None, "trained", "stale")),
        dropped_spans=rng.choice((0, 3)),
        truncated_bytes=rng.choice((0, 500)),
        redacted=rng.choice((0, 1)),
        subagents=rng.choice((0, 0, 2)),
        forks=rng.choice((0, 0, 1)),
        compactions=rng.choice((0, 0, 1)),
        two_sides=rng.choice((False, False, True)),
        spans=rng.randint(1, 20),
        bytes=rng.randint(100, 9999),
        stored_bytes=rng.randint(10, 999),
        prompt=rng.choice(("", "What is 6 times 7?", "Why?")),
    )


def naive_steps(trajectories: Iterable[TrajectorySummary]) -> list[dict[str, Any]]:
    """Return all figures of each step and run, in order."""
    runs = _runs(trajectories)
    scales = _scales(runs)
    return [_step_figures(run_id, found, scales[_series(run_id, found)]) for run_id, found in runs]


def naive_groups(trajectories: Iterable[TrajectorySummary]) -> list[dict[str, Any]]:
    """Return all figures of each group, in order."""
    figures = []
    runs = _runs(trajectories)
    scales = _scales(runs)
    for run_id, found in runs:
        figures += [_group_figures(run_id, group, scales[_series(run_id, found)]) for group in _groups(found)]
    return figures


def _series(run_id: str | None, found: Sequence[TrajectorySummary]) -> tuple[Any, ...]:
    return found[0].experiment_name, found[0].validate, run_id


def _scales(runs: Sequence[tuple[str | None, Sequence[TrajectorySummary]]]) -> dict[Any, tuple[float, float] | None]:
    """Return the worst and the best reward of each run, each without the most extreme tenth of its steps."""
    rewards: dict[Any, list[list[float]]] = {}
    for run_id, found in runs:
        of_step = [each.reward for each in found if each.reward is not None]
        rewards.setdefault(_series(run_id, found), []).extend([of_step] if of_step else [])
    return {series: plain_scale(steps) for series, steps in rewards.items()}


def plain_scale(steps: Sequence[Sequence[float]]) -> tuple[float, float] | None:
    """Return the scale of the rewards of a run's steps, without steps that have none."""
    lows, highs = sorted(map(min, steps)), sorted(map(max, steps), reverse=True)
    out = 0 if len(steps) < 3 else max(1, len(steps) // 10)
    if not steps:
        return None
    if lows[out] < highs[out]:
        return lows[out], highs[out]
    return (lows[0], highs[out]) if lows[0] < highs[out] else (lows[0], highs[0])


def _runs(trajectories: Iterable[TrajectorySummary]) -> list[tuple[str | None, list[TrajectorySummary]]]:
    """Return the trajectories of each step, apart by run if two runs of it have the same rollout of a prompt."""
    steps: dict[Any, list[TrajectorySummary]] = {}
    for each in trajectories:
        key = each.step is None, each.step or 0, each.validate, each.experiment_name or ""
        steps.setdefault(key, []).append(each)
    apart, named = [], set()
    for _, found in sorted(steps.items()):
        seen: dict[tuple[str, str], set[str | None]] = {}
        for each in found:
            if each.sample_index is not None and each.rollout_n is not None:
                seen.setdefault((str(each.sample_index), str(each.rollout_n)), set()).add(each.run_id)
        if any(len(runs) > 1 for runs in seen.values()):
            by_start = sorted(found, key=lambda each: each.start_time)
            for run_id in dict.fromkeys(each.run_id for each in by_start):
                apart.append((run_id, [each for each in found if each.run_id == run_id]))
                named.add((found[0].experiment_name, run_id))
        else:
            apart.append((None, found))
    # A step of one run has the name that it has at other steps.
    runs = []
    for run_id, found in apart:
        sole = {each.run_id for each in found}
        is_named = run_id is None and len(sole) == 1 and (found[0].experiment_name, *sole) in named
        runs.append((found[0].run_id if is_named else run_id, found))
    return runs


def _groups(found: Sequence[TrajectorySummary]) -> list[list[TrajectorySummary]]:
    groups: dict[str | None, list[TrajectorySummary]] = {}
    for each in sorted(found, key=lambda each: (*_tag(each.sample_index), *_tag(each.rollout_n), each.start_time)):
        groups.setdefault(None if each.sample_index is None else str(each.sample_index), []).append(each)
    return list(groups.values())


def _tag(value: Any) -> tuple[Any, ...]:
    return value is None, isinstance(value, str), value if isinstance(value, int) else 0, str(value)


def _last_share(awaited: list[TrajectorySummary]) -> float | None:
    ends = sorted(each.end_time for each in awaited)
    late = max(len(ends) // 20, 1) if len(ends) >= 8 else 0
    start = min((each.start_time for each in awaited), default=0)
    return (ends[-1] - ends[-1 - late]) / (ends[-1] - start) if late and ends[-1] > start else None


def _step_figures(
    run_id: str | None, found: list[TrajectorySummary], scale: tuple[float, float] | None
) -> dict[str, Any]:
    first = found[0]
    rewards = [each.reward for each in found if each.reward is not None]
    named = [group for group in _groups(found) if group[0].sample_index is not None]
    compared = [known for group in named if len(known := [r for each in group if (r := each.reward) is not None]) > 1]
    variances = [_variance(group, scale) for group in named]
    error_types = [(each.errors[0].type or each.error_type or "") if each.errors else each.error_type for each in found]
    ends = sorted(each.end_time for each in found)
    start = min(each.start_time for each in found)
    runs = {each.run_id for each in found}
    cut_off = [
        each
        for each in found
        if each.status == "truncated" or (each.status == "completed" and each.finish_reason in REASONS[2:])
    ]
    statuses = Counter(each.status for each in found)
    return {
        "step": first.step,
        "validate": first.validate,
        "experiment_name": first.experiment_name,
        "run_id": run_id,
        "sole_run_id": runs.pop() if len(runs) == 1 else None,
        "attempt": None,
        "trajectories": len(found),
        "groups": len(named),
        "start_time": start,
        "end_time": ends[-1],
        "reward_mean": fmean(rewards) if rewards else None,
        "reward_parts": _means([each.reward_parts for each in found]),
        "tools": _tools(found),
        "turns": _distribution(each.turns for each in found),
        "tokens": _distribution(each.output_tokens for each in found),
        "seconds": _distribution((each.end_time - each.start_time) / 1e9 for each in found),
        "two_sides": sum(each.two_sides for each in found),
        "prefix_breaks": sum(each.prefix_breaks > 0 for each in found),
        "unread_answers": sum(each.unread_answers > 0 for each in found),
        "staleness": _distribution(each.staleness for each in found),
        "fates": dict(Counter(each.fate for each in found if each.fate is not None)),
        **{
            name: sum(getattr(each, name) for each in found)
            for name in (
                *("dropped_spans", "truncated_bytes", "redacted", "spans", "bytes", "stored_bytes"),
                *("subagents", "forks", "compactions"),
            )
        },
        "rewarded": len(rewards),
        "reward_std": pstdev(rewards) if rewards else None,
        "reward_lowest": min(rewards, default=None),
        "reward_highest": max(rewards, default=None),
        "group_std": fmean(map(pstdev, compared)) if compared else None,
        "scale_lowest": scale and scale[0],
        "scale_highest": scale and scale[1],
        "solved": _solved(rewards, scale),
        "comparable_groups": len(compared),
        "zero_variance": dict(Counter(each for each in variances if each is not None)),
        "errors": statuses["error"],
        "truncated": statuses["truncated"],
        "cancelled": statuses["cancelled"],
        "rootless": statuses[None],
        "truncated_with_worst_reward": sum(
            each.reward is not None and _is_same(each.reward, min(rewards)) for each in cut_off
        ),
        "error_types": dict(Counter(each for each in error_types if each is not None)),
        "last_5_percent_share": _last_share([each for each in found if each.status != "cancelled"]),
        "duplicates": sum(map(_duplicates, named)),
    }


def _group_figures(
    run_id: str | None, group: list[TrajectorySummary], scale: tuple[float, float] | None
) -> dict[str, Any]:
    rewards = [each.reward for each in group if each.reward is not None]
    is_prompt = group[0].sample_index is not None
    prompts = [each.prompt for each in group if each.prompt and is_prompt]
    return {
        "step": group[0].step,
        "validate": group[0].validate,
        "experiment_name": group[0].experiment_name,
        "run_id": run_id,
        "sample_index": group[0].sample_index,
        "prompt": prompts[0] if prompts else "",
        "trace_ids": tuple(each.trace_id for each in group),
        "rollout_ns": tuple(each.rollout_n for each in group),
        "rewards": tuple(each.reward for each in group),
        "statuses": tuple(each.status for each in group),
        "reward_std": pstdev(rewards) if len(rewards) > 1 and is_prompt else None,
        "solved": _solved(rewards, scale),
        "zero_variance": _variance(group, scale),
        "tokens": _spread(each.output_tokens for each in group),
        "turns": _spread(each.turns for each in group),
        "seconds": _spread((each.end_time - each.start_time) / 1e9 for each in group),
        "duplicates": _duplicates(group),
        "first_divergence": _divergence(group) if is_prompt else None,
        "tool_calls": sum(calls for each in group for calls, _ in each.tools.values()),
        "tool_errors": sum(errors for each in group for _, errors in each.tools.values()),
        "end_time": max(each.end_time for each in group),
    }


def _is_same(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-9, abs_tol=1e-12)


def _solved(rewards: Sequence[float], scale: tuple[float, float] | None) -> float | None:
    if not rewards or scale is None:
        return None
    middle = sum(scale) / 2
    if _is_same(*scale):
        return sum(each > 0 for each in rewards) / len(rewards)
    return sum(each > middle and not _is_same(each, middle) for each in rewards) / len(rewards)


def _variance(group: Sequence[TrajectorySummary], scale: tuple[float, float] | None) -> str | None:
    rewards = [each.reward for each in group if each.reward is not None]
    if group[0].sample_index is None or len(rewards) < 2 or not _is_same(min(rewards), max(rewards)):
        return None
    assert scale is not None
    low, high = scale
    if _is_same(low, high):
        return "best" if max(rewards) > 0 else "worst"
    if max(rewards) > high or _is_same(max(rewards), high):
        return "best"
    return "worst" if min(rewards) < low or _is_same(min(rewards), low) else "other"


def _duplicates(group: Sequence[TrajectorySummary]) -> int:
    if group[0].sample_index is None:
        return 0
    said = [each.turn_hashes for each in group if each.turn_hashes and "" not in each.turn_hashes]
    return sum(each in said[:number] for number, each in enumerate(said))


def _divergence(group: Sequence[TrajectorySummary]) -> int | None:
    said = [each.turn_hashes for each in group if set(each.turn_hashes) - {""}]
    for turn, hashes in enumerate(zip_longest(*said), 1):
        known = {each for each in hashes if each}
        if len(known) > 1 or None in hashes:
            return turn
    return None


def _means(mappings: Sequence[Any]) -> dict[str, float]:
    names = {name for each in mappings for name in each}
    return {name: fmean([each[name] for each in mappings if name in each]) for name in names}


def _tools(found: Sequence[TrajectorySummary]) -> dict[str, tuple[int, int]]:
    names = {name for each in found for name in each.tools}
    counts = {name: [each.tools[name] for each in found if name in each.tools] for name in names}
    return {name: (sum(each[0] for each in of), sum(each[1] for each in of)) for name, of in counts.items()}


def _distribution(amounts: Iterable[float | None]) -> tuple[float, ...] | None:
    known = [each for each in amounts if each is not None]
    if not known:
        return None
    return (fmean(known), *(float(each) for each in np.percentile(known, (50, 99))), max(known))


def _spread(amounts: Iterable[float | None]) -> tuple[float, float, float] | None:
    known = [each for each in amounts if each is not None]
    return (min(known), fmean(known), max(known)) if known else None
