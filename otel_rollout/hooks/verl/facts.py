"""Translate verl's output of a trajectory into attributes of its root span."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.hooks.verl.rollout import Rollout
from otel_rollout.record.scalars import read_scalar

__all__ = ["describe_output"]

TRUNCATED: Final = "truncated"


def describe_output(
    outputs: Sequence[Any], rollout: Rollout, *, response_limit: int | None
) -> tuple[dict[str, Any], dict[str, Any], str | None]:
    """Return the root span's attributes, output and status (None if only an exception decides on it).

    Args:
        outputs: The trajectory's `AgentLoopOutput`s, the last one with the reward.
        rollout: The trajectory.
        response_limit: The longest response, if known.
    """
    final, step = outputs[-1], rollout.identity.step
    extra = getattr(final, "extra_fields", None) or {}
    metrics = getattr(final, "metrics", None)
    lengths = [(len(output.prompt_ids), len(output.response_ids)) for output in outputs]
    reward = read_scalar(getattr(final, "reward_score", None))
    info = extra.get("reward_extra_info")
    oldest, newest = extra.get("min_global_steps"), extra.get("max_global_steps")
    # The engines hide why they stopped (vLLM's "completed" is both): a full response was cut. One that ends with a
    # tool's answer was cut too: there was no room for it.
    is_truncated = (response_limit is not None and lengths[-1][1] >= response_limit) or rollout.last_action == "tool"
    finish = "length" if is_truncated else rollout.stop_reason
    preempted = getattr(metrics, "num_preempted", None)
    attributes: dict[str, Any] = {
        semconv.NUM_TURNS: getattr(final, "num_turns", None),
        semconv.PROMPT_LENGTH: lengths[0][0],
        semconv.RESPONSE_LENGTH: sum(response for _, response in lengths),
        semconv.MODEL_TOKENS: sum(sum(output.response_mask) for output in outputs),
        semconv.FINISH_REASON: finish,
        semconv.TURN_SCORES: _numbers(extra.get("turn_scores")),
        semconv.TOOL_REWARDS: _numbers(extra.get("tool_rewards")),
        semconv.GENERATE_SECONDS: getattr(metrics, "generate_sequences", None),
        semconv.TOOL_SECONDS: getattr(metrics, "tool_calls", None),
        semconv.SCORE_SECONDS: getattr(metrics, "compute_score", None),
        # -1 is verl's "not available".
        semconv.PREEMPTIONS: preempted if preempted is not None and preempted >= 0 else None,
        semconv.CACHED_TOKENS: rollout.cached_tokens,
        semconv.MIN_WEIGHTS_VERSION: oldest,
        semconv.MAX_WEIGHTS_VERSION: newest,
        semconv.NUM_OUTPUTS: len(outputs) if len(outputs) > 1 else None,
    }
    if isinstance(newest, int) and isinstance(step, int) and step > 0:
        # As verl's v1 trainer counts it: 0 for the newest weights before this step.
        attributes[semconv.STALENESS] = step - 1 - newest
    output: dict[str, Any] = {"reward": reward}
    if info:
        output["reward_extra_info"] = info
    output["response_ids"] = _last_turn(final)
    attributes = {key: value for key, value in attributes.items() if value is not None}
    return attributes, output, TRUNCATED if is_truncated else None


def _last_turn(final: Any) -> list[int]:
    """Return the ids of the model's last turn, without the tools' ids."""
    ids, backwards = list(final.response_ids), list(final.response_mask)[::-1]
    if 1 not in backwards or len(backwards) != len(ids):
        return ids
    after = backwards.index(1)
    before = backwards.index(0, after) if 0 in backwards[after:] else len(ids)
    return ids[len(ids) - before : len(ids) - after]


def _numbers(values: Any) -> list[float] | None:
    if not isinstance(values, (list, tuple)) or not values:
        return None
    numbers = [read_scalar(value) for value in values]
    return [float(number) for number in numbers if isinstance(number, (int, float))]
