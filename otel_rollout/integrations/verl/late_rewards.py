"""Rewards of a colocated reward model, which verl computes when the rollout is over and its trajectories have ended.

A worker remembers where each of its trajectories stands. The trainer's process asks for that, and hands it to the
reward workers beside the rows that they score: in the old trainer as a column that goes along with the rows until then,
since the trainer puts them into another order, in the v1 trainer by the rows' keys. The reward model doesn't see it,
and neither does what comes after.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, ClassVar, Final

import orjson
from opentelemetry import context as context_api

from otel_rollout import semconv
from otel_rollout.integrations import ray as carriers
from otel_rollout.integrations.verl.hook import Call, Hook, Observer
from otel_rollout.integrations.verl.identity import scalar
from otel_rollout.integrations.verl.patching import is_replaced
from otel_rollout.spans.context import current_frame

__all__ = [
    "CARRIER",
    "HOOKS",
    "TAKE_METHOD",
    "add_column",
    "add_column_later",
    "is_late",
    "keys_of_rows",
    "remember",
    "take_carriers",
]

_logger: Final = logging.getLogger("otel_rollout")

CARRIER: Final = "otel_rollout_carrier"
"""The column of a reward request that says which trajectory it is for; taken out before the reward is computed."""

TAKE_METHOD: Final = "otel_rollout_take_carriers"

_IS_LATE: Final = "_otel_rollout_is_late"
_REMEMBERED: Final = "_otel_rollout_carriers"
_MAX_REMEMBERED: Final = 100_000
_SECONDS_TO_ASK: Final = 5.0

_of_rows: Final[ContextVar[list[str | None] | None]] = ContextVar("otel-rollout-verl-late-rewards", default=None)


def is_late(owner: Any) -> bool:
    """Whether rewards are computed by a colocated reward model, when the rollout is over.

    Args:
        owner: A worker or manager, whose `config` is verl's whole configuration.
    """
    known: bool | None = vars(owner).get(_IS_LATE)
    if known is None:
        # OmegaConf takes a fifth of a millisecond for this.
        model = owner.config.reward.reward_model
        known = bool(model.enable) and not model.enable_resource_pool
        vars(owner)[_IS_LATE] = known
    return known


def remember(worker: Any, columns: Mapping[str, Any]) -> None:
    """Keep where the running trajectory stands, for its reward.

    Args:
        worker: The agent loop's worker.
        columns: The columns of the sample.
    """
    frame = current_frame(context_api.get_current())
    if frame is None or frame.trajectory is None or columns.get("uid") is None or not is_late(worker):
        return
    tags = frame.trajectory.tags
    key = _key(bool(tags.get(semconv.VALIDATE)), scalar(columns["uid"]), tags.get(semconv.ROLLOUT_N))
    remembered = vars(worker).setdefault(_REMEMBERED, OrderedDict())
    remembered[key] = orjson.dumps(carriers.inject()).decode()
    while len(remembered) > _MAX_REMEMBERED:
        remembered.popitem(last=False)


def take_carriers(self: Any, keys: list[str]) -> dict[str, str]:
    """Return where the trajectories that ran here stand, and forget it; a method of the worker.

    Args:
        self: The worker.
        keys: Which trajectories.
    """
    remembered = vars(self).get(_REMEMBERED, {})
    return {key: remembered.pop(key) for key in keys if key in remembered}


def keys_of_rows(manager: Any, validate: bool, uids: Sequence[Any], numbers: Sequence[int]) -> list[str] | None:
    """Return which trajectories the rows of a batch are, where their rewards come late; else None.

    Args:
        manager: The agent loop's manager.
        validate: Whether this is a validation pass.
        uids: Each row's uid.
        numbers: Each row's rollout number.
    """
    if not is_late(manager) or not _is_column_taken_out():
        return None
    return [_key(validate, uid, number) for uid, number in zip(uids, numbers, strict=True)]


def add_column(manager: Any, keys: list[str], output: Any) -> None:
    """Give each row of what the workers returned the place of its trajectory, up to the moment it is scored."""
    try:
        import ray  # type: ignore[import-not-found, unused-ignore]  # there where verl is

        _add_column(output, keys, ray.get(_ask(manager, keys), timeout=_SECONDS_TO_ASK))
    except Exception as error:  # noqa: BLE001, RUF100 - the rewards stand in no trace then
        _report(error)


async def add_column_later(manager: Any, keys: list[str], output: Any) -> None:
    """Do the same without holding up the event loop."""
    try:
        found = await asyncio.wait_for(asyncio.gather(*_ask(manager, keys)), _SECONDS_TO_ASK)
        _add_column(output, keys, found)
    except Exception as error:  # noqa: BLE001, RUF100 - the rewards stand in no trace then
        _report(error)


class _RewardManager(Observer):
    """`RewardLoopManager.compute_rm_score`, after which the column is gone."""

    def __init__(self, call: Call) -> None:
        self._data = call.arguments["data"]
        values = _of_rows.get()
        if values is not None and len(values) == len(self._data):
            _set_column(self._data, values)

    def close(self) -> None:
        """Take the column out."""
        columns = getattr(self._data, "non_tensor_batch", None)
        if type(columns) is dict:
            columns.pop(CARRIER, None)


class _Trainer(Observer):
    """`PPOTrainer._compute_reward_colocate` of the v1 trainer, whose batch has keys in place of rows."""

    variable: ClassVar[ContextVar[Any] | None] = _of_rows

    def __init__(self, carriers_of_rows: list[str | None]) -> None:
        self._carriers = carriers_of_rows

    @property
    def value(self) -> list[str | None]:
        """Where the trajectory of each row stands."""
        return self._carriers


def _observe_trainer(call: Call) -> Observer | None:
    trainer, batch = call.receiver, call.arguments["batch"]
    if not call.is_known or not trainer.config.actor_rollout_ref.rollout.trace.get("backend"):
        return None
    found = _carriers_of(trainer, batch)
    return None if found is None else _Trainer(found)


def _is_column_taken_out() -> bool:
    """Whether the hook after which the column is gone is in place."""
    module = sys.modules.get("verl.experimental.reward_loop.reward_loop")
    return module is not None and is_replaced(module.RewardLoopManager.compute_rm_score)


def _key(validate: bool, uid: Any, rollout_n: Any) -> str:
    return f"{'val' if validate else 'train'}_{uid}_{rollout_n}"


def _ask(manager: Any, keys: list[str]) -> list[Any]:
    return [getattr(worker, TAKE_METHOD).remote(keys) for worker in manager.agent_loop_workers]


def _report(error: BaseException) -> None:
    _logger.warning("verl: rewards of the colocated reward model are not traced: %r", error)


def _add_column(data: Any, keys: list[str], found: Sequence[Mapping[str, str]]) -> None:
    if "rm_scores" in data.batch or len(keys) != len(data):
        return
    known = {key: carrier for each in found for key, carrier in each.items()}
    _set_column(data, [known.get(key) for key in keys])


def _set_column(data: Any, values: list[str | None]) -> None:
    import numpy as np  # type: ignore[import-not-found, unused-ignore]  # there where verl is

    columns = data.non_tensor_batch
    if type(columns) is dict:
        columns[CARRIER] = np.array(values, dtype=object)


def _carriers_of(trainer: Any, batch: Any) -> list[str | None] | None:
    """Return where the trajectory of each key stands, of an agent loop with several outputs for the last one."""
    try:
        import ray

        # Keys are made of uid, session and the output's number.
        parts = [key.rpartition("_") for key in batch.keys]
        sessions = [f"{batch.partition_id}_{session}" for session, _, _ in parts]
        last: dict[str, int] = {}
        for session, (_, _, number) in zip(sessions, parts, strict=True):
            last[session] = max(last.get(session, 0), int(number))
        found = ray.get(_ask(trainer.agent_loop_manager, list(last)), timeout=_SECONDS_TO_ASK)
        known = {key: carrier for each in found for key, carrier in each.items()}
        return [
            known.get(session) if int(number) == last[session] else None
            for session, (_, _, number) in zip(sessions, parts, strict=True)
        ]
    except Exception as error:  # noqa: BLE001, RUF100 - the rewards stand in no trace then
        _report(error)
        return None


_REWARD_LOOP: Final = "verl.experimental.reward_loop.reward_loop"

HOOKS: Final = (
    Hook(
        _REWARD_LOOP,
        "RewardLoopManager.compute_rm_score",
        "rewards that come late are not traced",
        _RewardManager,
        needs=("data",),
        while_off=True,
    ),
    Hook(
        "verl.trainer.ppo.v1.trainer_base",
        "PPOTrainer._compute_reward_colocate",
        "the v1 trainer's rewards that come late are not traced",
        _observe_trainer,
        needs=("batch",),
        while_off=True,
        lost_unknown="the v1 trainer's rewards that come late are not traced",
    ),
)
