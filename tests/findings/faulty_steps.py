"""Changes of healthy steps: the fault of each check, and runs that are unusual without a fault."""

from __future__ import annotations

from dataclasses import replace

from otel_rollout.facts import ToolCounts
from tests.findings.made_up_steps import SECOND, START, failed_tool, make_steps

FAULTS = {
    "groups_without_signal": (lambda _s, group, _r: {"reward": group % 3 / 2}, 1, 8),
    "incomplete_groups": (
        lambda step, _g, rollout: {"sample_index": None} if step > 1 < rollout else {"spans": 5} if step > 1 else {},
        3,
        16,
    ),
    "invalid_rewards": (lambda _s, _g, rollout: {} if rollout else {"reward": None, "invalid_rewards": 1}, 1, 8),
    "missing_rewards": (lambda _s, _g, rollout: {} if rollout else {"reward": None}, 1, 8),
    "noisy_rewards": (lambda *_: {"turn_hashes": ("same",)}, 1, 32),
    "reward_falls": (lambda step, *_: {"reward": 0.0} if step > 3 else {}, 5, 64),
    "forgotten_prompts": (lambda step, group, _r: {"reward": 0.0} if step > 1 and group < 2 else {}, 5, 2),
    "reward_exploited": (
        lambda step, *_: {"answer": "as you can see here, the answer is 7", "reward": 1.0} if step > 2 else {},
        4,
        32,
    ),
    "slow_engine": (
        lambda step, *_: (
            {"llm_seconds": 20.0, "end_time": START + (100 * step + 20) * SECOND} if step > 2 else {"llm_seconds": 1.0}
        ),
        4,
        64,
    ),
    "slow_steps": (lambda step, *_: {"end_time": START + (100 * step + 20) * SECOND} if step > 2 else {}, 4, 64),
    "tool_results": (lambda step, *_: {"odd_results": {"search": 2}} if step > 1 else {}, 3, 128),
    "truncated": (lambda _s, _g, rollout: {"status": "truncated"} if rollout < 2 else {}, 1, 16),
    "tool_errors": (lambda *_: {"tools": {"search": ToolCounts(3, 2)}}, 1, 64),
    "repeated_calls": (lambda _s, _g, rollout: {"repeated_calls": 3 if rollout else 2}, 1, 24),
    "unknown_tools": (lambda _s, _g, rollout: {"unknown_tool_calls": int(rollout == 1)}, 1, 8),
    "unparsed_calls": (lambda _s, _g, rollout: {"unparsed_tool_calls": int(rollout == 1)}, 1, 8),
    "failures": (lambda _s, group, _r: failed_tool("ToolError", ends_it=True) if group < 2 else {}, 1, 8),
    "punished_failures": (lambda _s, group, _r: failed_tool("ConnectionError") if group < 2 else {}, 1, 8),
    "unknown_failures": (
        lambda _s, group, _r: {"status": "error", "error_type": "KeyError", "reward": None} if group < 3 else {},
        1,
        12,
    ),
    "duplicates": (lambda *_: {"turn_hashes": ("same",)}, 1, 24),
    "mode_collapse": (lambda step, *_: {"turn_hashes": ("same",)} if step > 3 else {}, 4, 24),
    "length_without_reward": (lambda step, *_: {"output_tokens": 100 * step}, 4, 32),
    "reward_part_traded": (
        lambda step, *_: {"reward_parts": {"style": step / 4, "correct": 1 - step / 4}},
        4,
        32,
    ),
    "reward_part_dominates": (lambda step, *_: {"reward_parts": {"style": 10.0**step, "correct": 50.0}}, 4, 32),
    "unread_answers": (lambda _s, _g, rollout: {"unread_answers": int(rollout == 1)}, 1, 8),
    "unread_usage": (lambda _s, _g, rollout: {"turns": 1, "output_tokens": None} if rollout == 1 else {}, 1, 8),
    "two_sides": (lambda _s, _g, rollout: {"two_sides": rollout == 1}, 1, 8),
    "prefix_breaks": (lambda _s, group, _r: {"prefix_breaks": int(group in (3, 4))}, 1, 8),
    "stragglers": (lambda _s, group, r: {"end_time": START + 1000 * SECOND} if (group, r) == (5, 2) else {}, 1, 1),
    "stale_weights": (lambda _s, _g, rollout: {"staleness": 7 if rollout == 3 else 1}, 1, 8),
    "lost_spans": (lambda _s, group, r: {"dropped_spans": 2 if (group, r) == (0, 0) else 0}, 1, 2),
    "rootless": (lambda _s, group, r: {"has_root": False, "status": None} if (group, r) == (0, 0) else {}, 1, 1),
    "rolled_out_again": (lambda _s, group, r: {"rollout_n": 0} if group == 0 and r < 2 else {}, 1, 1),
}
"""A change of healthy steps, the steps it takes, and the number that the check tells."""


def unusual(change, steps=4, **fields):
    """Return a function that makes steps; the fields are those of all trajectories, whatever their place."""

    def make():
        return [[replace(each, **fields) for each in step] for step in make_steps(change, steps)]

    return make


def parts(step, rollout, **values):
    """Return the fields of a trajectory with parts of its reward, which is the sum of `correct` and `penalty`."""
    return {"reward": rollout % 2 + values.get("correct", 0.0) + values.get("penalty", 0.0), "reward_parts": values}


NOTHING_ELSE = {"sample_index": None, "rollout_n": None, "status": None, "reward": None}
HEALTHY = {
    "nothing is unusual": unusual(lambda *_: {}, 8),
    "training stops": unusual(
        lambda step, _g, r: {"status": "cancelled", "reward": None} if step == 4 or r == 3 else {}
    ),
    "no rewards": unusual(lambda *_: {"reward": None}),
    "negative rewards": unusual(lambda _s, group, r: {"reward": -1.0 - (group + r) % 3}),
    "rewards up to 100": unusual(lambda _s, group, r: {"reward": 100.0 * ((group + r) % 5)}),
    "one rollout of each prompt": unusual(lambda _s, group, r: {"sample_index": 4 * group + r, "rollout_n": 0}),
    "weights that are old on purpose": unusual(lambda *_: {}, staleness=4),
    "labels as answers": unusual(lambda _s, _g, r: {"turn_hashes": ("yes" if r % 2 else "no",)}, output_tokens=3),
    "no tools": unusual(lambda *_: {}, tools={}),
    "validation with prefix breaks": unusual(lambda *_: {}, prefix_breaks=1, validate=True),
    "spans of another program": unusual(lambda *_: {}, 1, step=None, has_root=False, **NOTHING_ELSE),
    "trajectories without a step": unusual(
        lambda _s, group, r: {} if group or r else {"end_time": START + 900 * SECOND}, 1, step=None
    ),
    "wrong code in an interpreter": unusual(lambda _s, group, r: failed_tool("NameError") if group == 0 and r else {}),
    "a loop that scores what it can't parse": unusual(
        lambda _s, _g, r: {"status": "error", "error_type": "KeyError", "reward": 0.0} if r == 0 else {}, 1
    ),
    "a penalty that the policy learns to avoid": unusual(
        lambda step, _g, r: {
            "reward": r % 2 + step / 8 - 1 / step**2,
            "reward_parts": {"correct": r % 2 + step / 8, "penalty": -1 / step**2},
        },
        8,
    ),
    "a penalty without its sign": unusual(
        lambda step, _g, r: {
            "reward": r % 2 + step / 4 - r * (1 - step / 5),
            "reward_parts": {"correct": r % 2 + step / 4, "penalty": r * (1 - step / 5)},
        }
    ),
    "groups without signal in validation": unusual(
        lambda _s, group, _r: {"validate": True, "reward": float(not group)}, 1
    ),
    "a tool that is called twice and fails": unusual(
        lambda _s, group, r: {} if group or r else {"tools": {"rare": ToolCounts(2, 2)}}, 1
    ),
    "parts of the reward that rise together": unusual(
        lambda step, *_: {"reward_parts": {"style": step / 8, "correct": step / 4}}
    ),
    "a small part for the format": unusual(lambda _s, _g, r: {"reward_parts": {"format": 0.05, "correct": r % 2}}),
    "longer answers that pay": unusual(lambda step, _g, r: {"output_tokens": 100 * step, "reward": step * (r % 2)}),
    "as many are right with a failed tool as without": unusual(
        lambda _s, group, r: {**failed_tool("ConnectionError"), "reward": float(r % 2)} if group < 4 else {}, 1
    ),
    # A run whose prompts came again, and that has others now, has a lower reward by intention.
    "harder prompts": unusual(
        lambda step, group, r: {"sample_index": 100 + group, "reward": float(r == 1)} if step > 3 else {}, 6
    ),
    "an interpreter's results, as in each step before": unusual(lambda *_: {"odd_results": {"search": 2}}),
    "twice the tokens in twice the time": unusual(
        lambda step, _g, r: (
            {"output_tokens": 400, "end_time": START + (100 * step + 4) * SECOND, "reward": float(r > 0)}
            if step > 2
            else {}
        )
    ),
}
"""Makes the steps of each."""
