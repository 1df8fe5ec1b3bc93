"""The agent loop's worker and manager: which trajectory is which, which ones are traced, and when a step is over."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextvars import ContextVar
from typing import Any, ClassVar, Final

from otel_rollout import runtime, semconv
from otel_rollout.integrations.verl import batch as batches
from otel_rollout.integrations.verl import executor, late_rewards
from otel_rollout.integrations.verl import rollout as rollouts
from otel_rollout.integrations.verl.batch import Batch, PromptSelection
from otel_rollout.integrations.verl.config import max_samples
from otel_rollout.integrations.verl.faults import is_fault
from otel_rollout.integrations.verl.hook import Call, Hook, Observer, Patch
from otel_rollout.integrations.verl.identity import BatchLedger, Row, identify, scalar

__all__ = ["HOOKS"]

_logger: Final = logging.getLogger("otel_rollout")

TRUST_METHOD: Final = "otel_rollout_trust_prompts"
_TRUSTED: Final = "_otel_rollout_trusted"
_SELECTION: Final = "_otel_rollout_selection"
_LEDGER: Final = "_otel_rollout_ledger"
_RUNNING: Final = "_otel_rollout_running"
_TOKENIZER: Final = "_otel_rollout_tokenizer"

_MAX_TRUSTED: Final = 100_000
_SECONDS_TO_TELL_WORKERS: Final = 5.0


class _MadeWorker(Observer):
    """`AgentLoopWorker.__init__`, after which delivery has a tokenizer of its own.

    Tokenizers in Rust fail when two threads use one at once, and the agent loops use theirs in threads.
    """

    def __init__(self, call: Call) -> None:
        self._worker = call.receiver

    def end(self, result: Any) -> None:
        """Copy the tokenizer."""
        _copy_tokenizer(self._worker)


class _WorkerBatch(Observer):
    """`AgentLoopWorker.generate_sequences`, which sees its part of the batch before it is taken apart."""

    variable: ClassVar[ContextVar[Any] | None] = batches.batch_variable

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    @property
    def value(self) -> Batch:
        """What the batch shows."""
        return self._batch


def _observe_worker_batch(call: Call) -> Observer | None:
    batch = call.arguments["batch"]
    columns, meta = getattr(batch, "non_tensor_batch", None), getattr(batch, "meta_info", None)
    # The v1 trainer's are no `DataProto`.
    return _WorkerBatch(Batch(columns, meta, max_samples())) if type(columns) is dict and type(meta) is dict else None


class _Run(Observer):
    """`AgentLoopWorker._run_agent_loop`, which runs one trajectory."""

    variable: ClassVar[ContextVar[Any] | None] = rollouts.rollout_variable

    def __init__(self, call: Call) -> None:
        executor.keep_context()
        self._worker = call.receiver
        self._rollout = _rollout(call.receiver, call.arguments["trajectory"], call.arguments)
        vars(self._worker)[_RUNNING] = vars(self._worker).get(_RUNNING, 0) + 1

    @property
    def value(self) -> rollouts.Rollout:
        """What is known of the trajectory."""
        return self._rollout

    def close(self) -> None:
        """Have the queues send what they hold once no trajectory runs: the step is over. Waits for nothing."""
        running = vars(self._worker)[_RUNNING] = vars(self._worker).get(_RUNNING, 1) - 1
        pipeline = runtime.pipeline
        if running <= 0 and pipeline is not None:
            for queue in pipeline.queues:
                queue.request_flush()


class _WholeBatch(Observer):
    """`AgentLoopManager.generate_sequences`: the whole batch is numbered before it is split over workers."""

    def __init__(self, manager: Any, prompts: Any, rows: list[Row]) -> None:
        self._manager = manager
        self._meta = prompts.meta_info
        uids = [str(scalar(uid)) for uid in prompts.non_tensor_batch["uid"]]
        validate = bool(self._meta.get("validate", False))
        self._late = late_rewards.keys_of_rows(manager, validate, uids, [row.rollout_n for row in rows])
        self.settles = self._late is not None
        self._is_settled = False
        self._meta[batches.META_KEY] = rows

    async def settle(self, result: Any) -> None:
        """Have each row say which trajectory it is, where its reward comes later."""
        self._is_settled = True
        if self._late is not None:
            await late_rewards.add_column_later(self._manager, self._late, result)

    def end(self, result: Any) -> None:
        """Do so where the manager was not called in an event loop."""
        if self._late is not None and not self._is_settled:
            late_rewards.add_column(self._manager, self._late, result)

    def close(self) -> None:
        """Forget the rows."""
        self._meta.pop(batches.META_KEY, None)


def _observe_whole_batch(call: Call) -> Observer | None:
    manager, prompts = call.receiver, call.arguments["prompts"]
    columns, meta = getattr(prompts, "non_tensor_batch", None), getattr(prompts, "meta_info", None)
    if not call.is_known or type(columns) is not dict or type(meta) is not dict:
        return None
    if "uid" not in columns or not _is_traced(manager):
        return None
    if "priority" in columns and [scalar(value) for value in columns["priority"]] != list(range(len(prompts))):
        # verl numbers the rows in this column; where it means something else, a worker can't tell which it has.
        return None
    index = columns.get("index")
    ledger = vars(manager).setdefault(_LEDGER, BatchLedger())
    rows = ledger.number(
        scalar(meta.get("global_steps", -1)),
        bool(meta.get("validate", False)),
        [str(scalar(uid)) for uid in columns["uid"]],
        None if index is None else [_hashable(scalar(value)) for value in index],
    )
    return _WholeBatch(manager, prompts, rows)


class _Queue(Observer):
    """`AgentLoopManagerTQ.generate_sequences`: workers are told whose dataset index is no other prompt's."""

    def __init__(self, call: Call) -> None:
        _tell_workers(call.receiver, call.arguments["prompts"])


def _trust_prompts(self: Any, uids: list[str]) -> None:
    """Take the dataset index of these prompts for their sample index; a method of the worker.

    Args:
        self: The worker.
        uids: The prompts' uids.
    """
    trusted = vars(self).setdefault(_TRUSTED, OrderedDict())
    trusted.update(dict.fromkeys(uids))
    while len(trusted) > _MAX_TRUSTED:
        trusted.popitem(last=False)


def _copy_tokenizer(worker: Any) -> None:
    pipeline, tokenizer = runtime.pipeline, getattr(worker, "tokenizer", None)
    if pipeline is None or tokenizer is None:
        return
    try:
        setattr(worker, _TOKENIZER, pipeline.copy_tokenizer(tokenizer))
    except BaseException as error:
        if not is_fault(error):
            raise
        _logger.warning("verl: token ids are not decoded: the tokenizer can't be copied (%s)", error)


def _rollout(worker: Any, trajectory: dict[str, Any], columns: dict[str, Any]) -> rollouts.Rollout:
    """Return what is known of a trajectory at its start: with sound numbers, and our choice of samples."""
    batch = batches.batch_variable.get()
    session = columns.get("session_id")
    uid = None if columns.get("uid") is None else str(scalar(columns["uid"]))
    if batch is not None and session is None:
        identity = batch.identify(trajectory, columns)
        is_traced = columns.get("trace", True) and batch.is_traced(columns)
    else:
        is_trusted = uid in vars(worker).get(_TRUSTED, ())
        identity = identify(trajectory, columns, is_index_trusted=is_trusted)
        # The v1 trainer says trace=False to all and leaves the choice to nobody.
        is_traced = columns.get("trace", True) if session is None else _select(worker, trajectory, uid, identity)
    attributes = identity.attributes()
    data_source = columns.get("data_source")
    if data_source is not None:
        attributes[semconv.DATA_SOURCE] = str(scalar(data_source))
    return rollouts.Rollout(
        identity, bool(is_traced), attributes, columns.get("raw_prompt"), vars(worker).get(_TOKENIZER)
    )


def _select(worker: Any, trajectory: dict[str, Any], uid: str | None, identity: Any) -> bool:
    selection = vars(worker).setdefault(_SELECTION, PromptSelection())
    prompt = identity.sample_index if uid is None else uid
    is_traced: bool = selection.is_traced(identity.step, bool(trajectory.get("validate")), prompt, max_samples())
    return is_traced


def _is_traced(manager: Any) -> bool:
    """Whether the workers trace; the manager's own process does not."""
    try:
        return bool(manager.rollout_config.trace.get("backend"))
    except Exception:  # noqa: BLE001, RUF100 - a configuration without a trace section has nobody trace
        return False


def _tell_workers(manager: Any, prompts: Any) -> None:
    try:
        if not _is_traced(manager) or "index" not in prompts or "uid" not in prompts:
            return
        import ray  # type: ignore[import-not-found, unused-ignore]  # there where verl is

        uids = [str(scalar(uid)) for uid in prompts["uid"]]
        validate = "validate" in prompts and bool(scalar(prompts["validate"]))
        ledger = vars(manager).setdefault(_LEDGER, BatchLedger())
        step = scalar(prompts["global_steps"]) if "global_steps" in prompts else -1
        indices = [_hashable(scalar(value)) for value in prompts["index"]]
        rows = ledger.number(step, validate, uids, indices)
        trusted = [uid for uid, row in zip(uids, rows, strict=True) if row.is_index_unique]
        told = [getattr(worker, TRUST_METHOD).remote(trusted) for worker in manager.agent_loop_workers]
        ray.get(told, timeout=_SECONDS_TO_TELL_WORKERS)
    except Exception as error:  # noqa: BLE001, RUF100 - the uid is the sample index then
        _logger.warning("verl: rollout.sample_index is the uid, not the dataset's index: %s", error)


def _hashable(value: Any) -> Any:
    return value if isinstance(value, (int, str)) else repr(value)


def _add_methods(module: Any) -> None:
    setattr(module.AgentLoopWorker, TRUST_METHOD, _trust_prompts)
    setattr(module.AgentLoopWorker, late_rewards.TAKE_METHOD, late_rewards.take_carriers)


_MODULE: Final = "verl.experimental.agent_loop.agent_loop"
_BY_WORKER: Final = "groups that are split over workers are numbered by worker"

HOOKS: Final = (
    Patch(_MODULE, "AgentLoopWorker", "rollout.sample_index is the uid, and late rewards are not traced", _add_methods),
    Hook(
        _MODULE,
        "AgentLoopWorker._run_agent_loop",
        "trajectories have verl's own numbers, and those of the v1 trainer are not traced",
        _Run,
        needs=("trajectory",),
    ),
    Hook(_MODULE, "AgentLoopWorker.__init__", "the root has no final text", _MadeWorker, while_off=True),
    Hook(
        _MODULE,
        "AgentLoopWorker.generate_sequences",
        "trajectories are numbered and sampled by verl",
        _observe_worker_batch,
        needs=("batch",),
    ),
    Hook(
        _MODULE,
        "AgentLoopManager.generate_sequences",
        _BY_WORKER,
        _observe_whole_batch,
        needs=("prompts",),
        while_off=True,
        lost_unknown=_BY_WORKER,
    ),
    Hook(
        "verl.trainer.ppo.v1.agent_loop_tq",
        "AgentLoopManagerTQ.generate_sequences",
        "rollout.sample_index is the uid",
        _Queue,
        needs=("prompts",),
        while_off=True,
    ),
)
