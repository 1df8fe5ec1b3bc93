"""Identify and sample trajectories in the agent loop's workers and managers; request a flush when a step is over."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.hooks import Call, Hook, Observer, after, executor
from otel_rollout.hooks.guard import call_library, guarded
from otel_rollout.hooks.verl import fates, late_rewards
from otel_rollout.hooks.verl.config import max_samples
from otel_rollout.hooks.verl.identity import (
    META_KEY,
    Batch,
    BatchLedger,
    PromptSelection,
    Row,
    batch_variable,
    forget_oldest,
    identify,
    uid_of,
)
from otel_rollout.hooks.verl.rollout import Rollout, rollout_variable
from otel_rollout.record import runtime
from otel_rollout.record.attribute_values import read_scalar, read_tag

_TRUSTED: Final = "_otel_rollout_trusted"
_SELECTION: Final = "_otel_rollout_selection"
_LEDGER: Final = "_otel_rollout_ledger"
_RUNNING: Final = "_otel_rollout_running"
_MODEL: Final = "_otel_rollout_model"
_TOKENIZER: Final = "_otel_rollout_tokenizer"

_MAX_TRUSTED: Final = 100_000
_SECONDS_TO_TELL_WORKERS: Final = 5.0


def _copy_tokenizer(call: Call, result: Any) -> None:
    """Note a new worker's model, and copy its tokenizer for delivery.

    Tokenizers in Rust fail when two threads use one simultaneously, and the agent loops use theirs in threads.
    """
    worker = call.receiver
    pipeline, tokenizer = runtime.pipeline, getattr(worker, "tokenizer", None)
    path = getattr(tokenizer, "name_or_path", None)
    if isinstance(path, str) and path:
        # A hub's name stays; a folder's path has more than the model's name.
        setattr(worker, _MODEL, path.rstrip("/").rpartition("/")[2] if path.startswith("/") else path)
    if pipeline is not None and tokenizer is not None:
        message = "verl: token ids are not decoded: the tokenizer can't be copied (%s)"
        copied = call_library("verl tokenizer", message, pipeline.copy_tokenizer, tokenizer)
        if copied is not None:
            setattr(worker, _TOKENIZER, copied)


def _observe_worker_batch(call: Call) -> Observer | None:
    """Observe `AgentLoopWorker.generate_sequences`: keep its part of the batch, which it splits into rows."""
    columns, meta = _parts(call.arguments["batch"])
    if columns is None or meta is None:
        return None
    return Observer(variable=batch_variable, value=Batch(columns, meta, max_samples()))


class _Run(Observer):
    """`AgentLoopWorker._run_agent_loop`, which runs one trajectory."""

    variable = rollout_variable

    def __init__(self, call: Call) -> None:
        executor.keep_context(rollout_variable)
        self.value = _rollout(call.receiver, call.arguments["trajectory"], call.arguments)
        self._state = vars(call.receiver)
        self._state[_RUNNING] = self._state.get(_RUNNING, 0) + 1

    def close(self) -> None:
        """Request a flush of the queues if no trajectory runs: the step is over. Doesn't wait."""
        self._state[_RUNNING] = self._state.get(_RUNNING, 1) - 1
        pipeline = runtime.pipeline
        if self._state[_RUNNING] <= 0 and pipeline is not None:
            pipeline.request_flush()


class _WholeBatch(Observer):
    """`AgentLoopManager.generate_sequences`: numbers the whole batch's rows before it is split over workers."""

    def __init__(self, manager: Any, meta: dict[str, Any], validate: bool, uids: list[str], rows: list[Row]) -> None:
        self._meta = meta
        self._late = (manager, validate, uids, rows)
        meta[META_KEY] = rows

    def end(self, result: Any) -> None:
        """Add the trajectory's key to each row, if rewards come late."""
        manager, validate, uids, rows = self._late
        guarded(late_rewards.HOOKS[0], late_rewards.add_keys, *self._late, result)
        if not validate:
            guarded(fates.HOOKS[0], fates.remember_rows, manager, uids, rows, result)

    def close(self) -> None:
        self._meta.pop(META_KEY, None)


def _observe_whole_batch(call: Call) -> Observer | None:
    manager, prompts = call.receiver, call.arguments["prompts"]
    columns, meta = _parts(prompts)
    if not call.is_known or columns is None or meta is None or "uid" not in columns or not _is_traced(manager):
        return None
    if "priority" in columns and [read_scalar(value) for value in columns["priority"]] != list(range(len(prompts))):
        # verl numbers the rows in this column; with other content, a worker can't identify its rows.
        return None
    late_rewards.managers.add(manager)
    validate = bool(meta.get("validate", False))
    uids, rows = number_rows(manager, meta.get("global_steps", -1), validate, columns["uid"], columns.get("index"))
    return _WholeBatch(manager, meta, validate, uids, rows)


def _tell_workers(call: Call) -> None:
    """Before `AgentLoopManagerTQ.generate_sequences`, send the workers the dataset indices that are unique."""
    manager, prompts = call.receiver, call.arguments["prompts"]
    if not _is_traced(manager):
        return
    late_rewards.managers.add(manager)
    if "index" not in prompts or "uid" not in prompts:
        return
    import ray  # type: ignore[import-not-found, unused-ignore]  # installed with verl

    validate = "validate" in prompts and bool(read_scalar(prompts["validate"]))
    step = read_scalar(prompts["global_steps"]) if "global_steps" in prompts else -1
    uids, rows = number_rows(manager, step, validate, prompts["uid"], prompts["index"])
    trusted = [uid for uid, row in zip(uids, rows, strict=True) if row.is_index_unique]
    told = [worker.__ray_call__.remote(_trust_prompts, trusted) for worker in manager.agent_loop_workers]
    # New workers may still import verl; then this comes first in their queues.
    done, _ = ray.wait(told, num_returns=len(told), timeout=_SECONDS_TO_TELL_WORKERS)
    ray.get(done)


def _trust_prompts(worker: Any, uids: list[str]) -> None:
    """Use these prompts' dataset index as sample index."""
    trusted = vars(worker).setdefault(_TRUSTED, OrderedDict())
    trusted.update(dict.fromkeys(uids))
    forget_oldest(trusted, _MAX_TRUSTED)


def _rollout(worker: Any, trajectory: dict[str, Any], columns: dict[str, Any]) -> Rollout:
    """Return a new trajectory with its identity, sampled by us."""
    state, batch = vars(worker), batch_variable.get()
    session = columns.get("session_id")
    if batch is not None and session is None:
        identity = batch.identify(trajectory, columns)
        is_traced = columns.get("trace", True) and batch.is_traced(columns)
    else:
        identity = identify(trajectory, columns, is_index_trusted=uid_of(columns) in state.get(_TRUSTED, ()))
        is_traced = columns.get("trace", True)
        if session is not None:
            # The v1 trainer passes trace=False to all and doesn't sample.
            selection = state.setdefault(_SELECTION, PromptSelection())
            prompt = identity.sample_index if identity.uid is None else identity.uid
            is_traced = selection.is_traced(identity.step, bool(trajectory.get("validate")), prompt, max_samples())
    attributes = identity.attributes()
    data_source = columns.get("data_source")
    if data_source is not None:
        attributes[semconv.DATA_SOURCE] = str(read_tag(data_source))
    prompt = columns.get("raw_prompt")
    validate = bool(trajectory.get("validate"))
    return Rollout(identity, bool(is_traced), attributes, prompt, state.get(_TOKENIZER), state.get(_MODEL), validate)


def _parts(batch: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Return a `DataProto`'s columns and `meta_info`; None for other batches, such as the v1 trainer's."""
    columns, meta = getattr(batch, "non_tensor_batch", None), getattr(batch, "meta_info", None)
    return columns if type(columns) is dict else None, meta if type(meta) is dict else None


def number_rows(manager: Any, step: Any, validate: bool, uids: Any, indices: Any) -> tuple[list[str], list[Row]]:
    """Return the uids of a whole batch's rows, and their facts."""
    ledger = vars(manager).setdefault(_LEDGER, BatchLedger())
    names = [str(read_tag(uid)) for uid in uids]
    known = None if indices is None else [read_tag(value) for value in indices]
    return names, ledger.number(read_scalar(step), validate, names, known)


def _is_traced(manager: Any) -> bool:
    """Return True if the workers trace; the manager's own process doesn't."""
    try:
        return bool(manager.rollout_config.trace.get("backend"))
    except (AttributeError, KeyError, TypeError):
        # A configuration without a trace section.
        return False


_MODULE: Final = "verl.experimental.agent_loop.agent_loop"
_BY_WORKER: Final = "groups that are split over workers are numbered by worker"

HOOKS: Final = (
    Hook(
        _MODULE,
        "AgentLoopWorker._run_agent_loop",
        "trajectories have verl's own numbers, and those of the v1 trainer are not traced",
        _Run,
        needs=("trajectory",),
    ),
    Hook(_MODULE, "AgentLoopWorker.__init__", "final texts are not decoded", after(_copy_tokenizer), while_off=True),
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
        _tell_workers,
        needs=("prompts",),
        while_off=True,
    ),
)
