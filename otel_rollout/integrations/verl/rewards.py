"""The reward: what is known when it is there goes to the trajectory's root, and its process is linked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
from opentelemetry import context as context_api
from opentelemetry.trace import get_current_span

from otel_rollout import op, runtime, semconv
from otel_rollout.context import current_frame
from otel_rollout.integrations import ray
from otel_rollout.integrations.verl import config, executor, facts, late_rewards
from otel_rollout.integrations.verl import rollout as rollouts
from otel_rollout.integrations.verl.late_rewards import CARRIER
from otel_rollout.integrations.verl.patching import report
from otel_rollout.log_once import internal_error
from otel_rollout.span import RolloutSpan
from otel_rollout.trajectory import annotate

__all__ = ["trace_compute_score", "trace_reward_init", "trace_reward_score"]


def trace_compute_score(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `AgentLoopWorker._compute_score`, which is called at the end of each trajectory, inside it."""

    async def _compute_score(self: Any, outputs: Any, kwargs: Any) -> None:
        if _is_off():
            await original(self, outputs, kwargs)
            return
        await original(self, outputs, _with_carrier(kwargs))
        _describe(self, outputs, kwargs)

    return _compute_score


def trace_reward_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `RewardLoopWorker.__init__`, after which its process traces as the agent loops' do."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - the data model's name
        original(self, *args, **kwargs)
        try:
            config.start_from(self.config)
        except Exception as error:  # noqa: BLE001, RUF100 - training goes on without traces
            report("rewards are not traced in their own process", error)

    return __init__


def trace_reward_score(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `RewardLoopWorker.compute_score` as an op under the trajectory that asks."""
    name = "RewardLoopWorker.compute_score"

    async def body(self: Any, data: Any) -> Any:
        result = await original(self, data)
        _record_late(self, result)
        return result

    traced = op.rollout_trace_op(name=name, kind="EVALUATOR", capture_inputs=False)(body)

    async def compute_score(self: Any, data: Any) -> Any:
        carrier = _take_carrier(data)
        if carrier is None or _is_off():
            return await original(self, data)
        executor.keep_context()
        with ray.extract(carrier):
            return await traced(self, data)

    return compute_score


def _is_off() -> bool:
    return runtime.pipeline is None


def _with_carrier(columns: Any) -> Any:
    try:
        carrier = ray.inject()
        return {**columns, CARRIER: orjson.dumps(carrier).decode()} if carrier else columns
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("linking the reward of verl")
        return columns


def _take_carrier(data: Any) -> dict[str, str] | None:
    try:
        column = data.non_tensor_batch.pop(CARRIER, None)
        return orjson.loads(str(column[-1])) if column is not None and len(column) and column[-1] else None
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("linking the reward of verl")
        return None


def _record_late(worker: Any, result: Any) -> None:
    """Record the reward here where it comes too late for the trajectory's root."""
    try:
        if late_rewards.is_late(worker):
            get_current_span().set_attribute(semconv.REWARD, float(result["reward_score"]))
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("recording a late reward of verl")


def _describe(worker: Any, outputs: Any, columns: Any) -> None:
    try:
        rollout, pipeline = rollouts.current_rollout(), runtime.pipeline
        frame = current_frame(context_api.get_current())
        if rollout is None or pipeline is None or frame is None or frame.trajectory is None or not outputs:
            return
        limit = getattr(getattr(worker, "rollout_config", None), "response_length", None)
        attributes, output, status = facts.describe_output(
            outputs, columns, rollout, step=rollout.step, response_limit=limit
        )
        root = frame.trajectory.root
        if isinstance(root, RolloutSpan):
            # The delivery thread adds the ids' text.
            root.tokenizer = rollout.tokenizer
        annotate(reward=output["reward"], status=status, output=output, **attributes)
        if output["reward"] is None:
            late_rewards.remember(worker, columns)
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("describing a trajectory of verl")
