"""Record rewards and final metrics on the root span; link spans of the reward process."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Final

import orjson
from opentelemetry import context as context_api
from opentelemetry.trace import get_current_span

from otel_rollout import semconv
from otel_rollout.hooks import Arguments, Call, Hook, Observer, after, executor, ray
from otel_rollout.hooks.verl import config, facts, late_rewards
from otel_rollout.hooks.verl.late_rewards import CARRIER
from otel_rollout.hooks.verl.rollout import current_rollout, rollout_variable
from otel_rollout.record import runtime
from otel_rollout.record.annotate import annotate
from otel_rollout.record.context import current_frame
from otel_rollout.record.recording_span import RolloutSpan
from otel_rollout.record.snapshot import json_text

__all__ = ["HOOKS"]


class _Score(Observer):
    """`AgentLoopWorker._compute_score`, at the end of each trajectory, inside it."""

    def __init__(self, call: Call) -> None:
        self._worker = call.receiver
        self._outputs = call.arguments["outputs"]
        self._columns = call.arguments["kwargs"]

    def changed(self, call: Call) -> Arguments | None:
        """Add the trajectory's carrier to the columns of the reward's request."""
        carrier = ray.inject() if call.is_known and type(self._columns) is dict else None
        if not carrier:
            return None
        return call.replaced({"kwargs": {**self._columns, CARRIER: orjson.dumps(carrier).decode()}})

    def end(self, result: Any) -> None:
        """Record reward and final metrics."""
        rollout, pipeline = current_rollout(), runtime.pipeline
        frame = current_frame(context_api.get_current())
        if rollout is None or pipeline is None or frame is None or frame.trajectory is None or not self._outputs:
            return
        limit = getattr(getattr(self._worker, "rollout_config", None), "response_length", None)
        attributes, output, status = facts.describe_output(self._outputs, rollout, response_limit=limit)
        root = frame.trajectory.root
        if isinstance(root, RolloutSpan):
            # The delivery thread adds the ids' text.
            root.tokenizer = rollout.tokenizer
        parts = output.get("reward_extra_info")
        annotate(reward=output["reward"], rewards=parts, status=status, output=output, **attributes)
        if output["reward"] is None:
            late_rewards.remember(self._worker, self._columns)


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
        self._place = ray.extract(self._carrier)
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
