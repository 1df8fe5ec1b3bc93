"""Record rewards and final metrics on the root span; link spans of the reward process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import orjson
from opentelemetry import context as context_api
from opentelemetry.trace import get_current_span

from otel_rollout import semconv
from otel_rollout.hooks import Arguments, Call, Hook, Observer, after, executor
from otel_rollout.hooks.carrier import extract, inject
from otel_rollout.hooks.verl import config, late_rewards
from otel_rollout.hooks.verl.late_rewards import CARRIER
from otel_rollout.hooks.verl.rollout import Rollout, current_rollout, rollout_variable
from otel_rollout.record import runtime
from otel_rollout.record.annotate import annotate
from otel_rollout.record.attribute_values import read_scalar
from otel_rollout.record.context import current_frame
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.snapshot import json_text

TRUNCATED: Final = "truncated"


class _Score(Observer):
    """`AgentLoopWorker._compute_score`, at the end of each trajectory, inside it."""

    def __init__(self, call: Call) -> None:
        self._worker = call.receiver
        self._outputs = call.arguments["outputs"]
        self._columns = call.arguments["kwargs"]

    def changed(self, call: Call) -> Arguments | None:
        """Add the trajectory's carrier to the columns of the reward's request."""
        carrier = inject() if call.is_known and type(self._columns) is dict else None
        if not carrier:
            return None
        return call.replaced({"kwargs": {**self._columns, CARRIER: orjson.dumps(carrier).decode()}})

    def end(self, result: Any) -> None:
        """Record reward and final metrics."""
        late_rewards.remember(self._worker)
        rollout, pipeline = current_rollout(), runtime.pipeline
        frame = current_frame(context_api.get_current())
        if rollout is None or pipeline is None or frame is None or frame.trajectory is None or not self._outputs:
            return
        limit = getattr(getattr(self._worker, "rollout_config", None), "response_length", None)
        attributes, output, status = describe_output(self._outputs, rollout, response_limit=limit)
        root = frame.trajectory.root
        if isinstance(root, RolloutSpan):
            # The delivery thread adds the ids' text.
            root.tokenizer = rollout.tokenizer
        parts = output.get("reward_extra_info")
        annotate(reward=output["reward"], rewards=parts, status=status, output=output, **attributes)


class _Computation(Observer):
    """`RewardLoopWorker.compute_score`: a span under the trajectory in the request's carrier."""

    opens_span = True

    def __init__(self, worker: Any, carrier: dict[str, str]) -> None:
        self._worker = worker
        self._carrier = carrier
        self._place: AbstractContextManager[None] | None = None

    def enter(self) -> None:
        """Enter the trajectory."""
        executor.keep_context(rollout_variable)
        self._place = extract(self._carrier)
        self._place.__enter__()

    def leave(self) -> None:
        if self._place is not None:
            self._place.__exit__(None, None, None)
            self._place = None

    def end(self, result: Any) -> None:
        """Record the reward here if it is too late for the root span."""
        if late_rewards.is_late(self._worker):
            span, parts = get_current_span(), result.get("reward_extra_info")
            span.set_attribute(semconv.REWARD, float(result["reward_score"]))
            if parts:
                span.set_attribute(semconv.REWARD_PARTS, json_text(parts))


def _observe_computation(call: Call) -> Observer | None:
    columns = getattr(call.arguments["data"], "non_tensor_batch", None)
    if type(columns) is not dict or CARRIER not in columns:
        return None
    column = columns.pop(CARRIER)
    carrier = orjson.loads(str(column[-1])) if len(column) and isinstance(column[-1], str) else None
    return None if not carrier or runtime.pipeline is None else _Computation(call.receiver, carrier)


def _start_tracing(call: Call, result: Any) -> None:
    """Switch tracing on in the reward process, where verl doesn't."""
    config.start_from(call.receiver.config.actor_rollout_ref.rollout.trace)


_REWARD_LOOP: Final = "verl.experimental.reward_loop.reward_loop"


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
    end = backwards.index(1)
    start = backwards.index(0, end) if 0 in backwards[end:] else len(ids)
    return ids[len(ids) - start : len(ids) - end]


def _numbers(values: Any) -> list[float] | None:
    if not isinstance(values, (list, tuple)) or not values:
        return None
    numbers = [read_scalar(value) for value in values]
    return [float(number) for number in numbers if isinstance(number, (int, float))]


HOOKS: Final = (
    Hook(
        "verl.experimental.agent_loop.agent_loop",
        "AgentLoopWorker._compute_score",
        "rewards and final metrics of trajectories are not recorded",
        _Score,
        needs=("outputs", "kwargs"),
        lost_unknown="the reward process is not linked",
    ),
    Hook(
        _REWARD_LOOP,
        "RewardLoopWorker.__init__",
        "rewards are not traced in their process",
        after(_start_tracing),
        while_off=True,
    ),
    Hook(
        _REWARD_LOOP,
        "RewardLoopWorker.compute_score",
        "the reward process is not linked",
        _observe_computation,
        needs=("data",),
        kind="EVALUATOR",
        name="RewardLoopWorker.compute_score",
        while_off=True,
    ),
)
