"""Trace the rewards of a colocated reward model, which verl computes after the rollout's trajectories have ended.

A worker remembers a carrier for each of its trajectories until training has decided its fate (`fates`). When the
trainer's process has rows scored, it asks the workers for the rows' carriers and hands them to the reward workers in a
column. In the old trainer, which reorders the rows, a column of keys identifies each row's trajectory; the v1 trainer's
rows have keys already. The column is taken out before the reward model sees the batch.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakSet

import orjson
from opentelemetry import context as context_api

from otel_rollout.hooks import Call, Hook, Observer
from otel_rollout.hooks.carrier import inject
from otel_rollout.hooks.guard import call_library
from otel_rollout.hooks.patching import is_replaced
from otel_rollout.hooks.verl.identity import Row, forget_oldest
from otel_rollout.hooks.verl.rollout import current_rollout
from otel_rollout.record.context import current_frame

CARRIER: Final = "otel_rollout_carrier"
"""The column of a reward request with the trajectory's carrier; until then, in the old trainer, with its key."""

_IS_LATE: Final = "_otel_rollout_is_late"
_REMEMBERED: Final = "_otel_rollout_carriers"
_MAX_REMEMBERED: Final = 32_768
_SECONDS_TO_ASK: Final = 5.0

managers: Final[WeakSet[Any]] = WeakSet()
"""The agent loop managers of this process whose workers trace."""

_keys: Final[ContextVar[Sequence[str | None] | None]] = ContextVar("otel-rollout-verl-late-rewards", default=None)


def is_late(owner: Any) -> bool:
    """Return True if a colocated reward model computes the rewards, by a worker's or manager's configuration."""
    known: bool | None = vars(owner).get(_IS_LATE)
    if known is None:
        # OmegaConf takes a fifth of a millisecond for this.
        model = owner.config.reward.reward_model
        known = bool(model.enable) and not model.enable_resource_pool
        vars(owner)[_IS_LATE] = known
    return known


def workers() -> list[Any]:
    """Return the workers of this process's managers."""
    own = (getattr(each, "agent_loop_workers", None) or [each.framework_worker] for each in managers)
    return [worker for found in own for worker in found]


def remember(worker: Any) -> None:
    """Keep the running trajectory's carrier on its worker; an empty text if it isn't traced."""
    rollout = current_rollout()
    if rollout is None or rollout.identity.uid is None or (rollout.validate and not is_late(worker)):
        return
    frame = current_frame(context_api.get_current())
    is_traced = rollout.is_traced and frame is not None and frame.trajectory is not None
    remembered = vars(worker).setdefault(_REMEMBERED, OrderedDict())
    key = key_of(rollout.validate, rollout.identity.uid, rollout.identity.rollout_n)
    remembered[key] = orjson.dumps(inject()).decode() if is_traced else ""
    forget_oldest(remembered, _MAX_REMEMBERED)


def take_carrier(worker: Any, key: str) -> str | None:
    """Return and forget the carrier of a trajectory that ran here; empty if it isn't traced, None if it is unknown."""
    # uni-agent's worker has a framework, which runs the trajectories.
    owner = getattr(worker, "framework", worker)
    carrier: str | None = vars(owner).get(_REMEMBERED, {}).pop(key, None)
    return carrier


def _carriers_of(worker: Any, keys: Iterable[str]) -> dict[str, str]:
    """Return the carriers of traced trajectories that ran here, by key."""
    remembered = vars(worker).get(_REMEMBERED, {})
    return {key: remembered[key] for key in keys if remembered.get(key)}


def add_keys(manager: Any, validate: bool, uids: Sequence[str], rows: Sequence[Row], output: Any) -> None:
    """Add a column with each row's key to a manager's output, if the rewards come late."""
    if not is_late(manager) or "rm_scores" in output.batch or len(rows) != len(output):
        return
    reward_loop = sys.modules.get(_REWARD_LOOP)
    # Without that hook, the column would stay in the batch.
    if reward_loop is not None and is_replaced(reward_loop.RewardLoopManager.compute_rm_score):
        _set_column(output, [key_of(validate, uid, row.rollout_n) for uid, row in zip(uids, rows, strict=True)])


class _Scoring(Observer):
    """`RewardLoopManager.compute_rm_score`: its rows have the column of carriers, and none afterwards."""

    def __init__(self, call: Call) -> None:
        data = call.arguments["data"]
        self._columns = getattr(data, "non_tensor_batch", None)
        keys = self._take_out()
        if keys is None:
            keys = _keys.get()
        if keys is not None and len(keys) == len(data):
            message = "verl: late rewards are not traced: %s"
            found = call_library("verl late rewards", message, _ask, keys) or {}
            _set_column(data, [found.get(key) for key in keys])

    def close(self) -> None:
        self._take_out()

    def _take_out(self) -> Any:
        return self._columns.pop(CARRIER, None) if type(self._columns) is dict else None


def _observe_trainer(call: Call) -> Observer | None:
    """Observe `PPOTrainer._compute_reward_colocate`: note each row's key, made of uid, session and output's number."""
    trainer, batch = call.receiver, call.arguments["batch"]
    if not call.is_known or not trainer.config.actor_rollout_ref.rollout.trace.get("backend"):
        return None
    managers.add(trainer.agent_loop_manager)
    parts = [key.rpartition("_") for key in batch.keys]
    last: dict[str, int] = {}
    for session, _, number in parts:
        last[session] = max(last.get(session, 0), int(number))
    # An agent loop's last output has the reward.
    keys = [f"{batch.partition_id}_{session}" if int(number) == last[session] else None for session, _, number in parts]
    return Observer(variable=_keys, value=keys)


def key_of(validate: bool, uid: Any, rollout_n: Any) -> str:
    """Return a trajectory's key."""
    return f"{'val' if validate else 'train'}_{uid}_{rollout_n}"


def _ask(keys: Iterable[str | None]) -> dict[str | None, str]:
    import ray  # type: ignore[import-not-found, unused-ignore]  # installed with verl

    wanted = [key for key in keys if key is not None]
    asked = [worker.__ray_call__.remote(_carriers_of, wanted) for worker in workers()]
    return {key: carrier for found in ray.get(asked, timeout=_SECONDS_TO_ASK) for key, carrier in found.items()}


def _set_column(data: Any, values: list[str] | list[str | None]) -> None:
    import numpy as np  # type: ignore[import-not-found, unused-ignore]  # installed with verl

    if type(data.non_tensor_batch) is dict:
        data.non_tensor_batch[CARRIER] = np.array(values, dtype=object)


_REWARD_LOOP: Final = "verl.experimental.reward_loop.reward_loop"
_LOST: Final = "late rewards of a colocated reward model are not traced"

HOOKS: Final = (
    Hook(_REWARD_LOOP, "RewardLoopManager.compute_rm_score", _LOST, _Scoring, needs=("data",), while_off=True),
    Hook(
        "verl.trainer.ppo.v1.trainer_base",
        "PPOTrainer._compute_reward_colocate",
        _LOST,
        _observe_trainer,
        needs=("batch",),
        while_off=True,
        lost_unknown=_LOST,
    ),
)
