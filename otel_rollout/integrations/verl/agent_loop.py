"""The agent loop's worker and manager: which trajectory is which, which ones are traced, and when a step is over."""

from __future__ import annotations

import copy
import inspect
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from otel_rollout import runtime, semconv
from otel_rollout.integrations.verl import batch as batches
from otel_rollout.integrations.verl import executor, late_rewards
from otel_rollout.integrations.verl import rollout as rollouts
from otel_rollout.integrations.verl.batch import Batch, PromptSelection
from otel_rollout.integrations.verl.config import RolloutTraceConfig
from otel_rollout.integrations.verl.identity import BatchLedger, identify, scalar
from otel_rollout.log_once import internal_error

__all__ = [
    "TRUST_METHOD",
    "trace_manager_generate",
    "trace_queue_manager_generate",
    "trace_run",
    "trace_worker_generate",
    "trace_worker_init",
    "trust_prompts",
]

_logger: Final = logging.getLogger("otel_rollout")

TRUST_METHOD: Final = "otel_rollout_trust_prompts"
_TRUSTED: Final = "_otel_rollout_trusted"
_SELECTION: Final = "_otel_rollout_selection"
_LEDGER: Final = "_otel_rollout_ledger"
_RUNNING: Final = "_otel_rollout_running"
_TOKENIZER: Final = "_otel_rollout_tokenizer"

_MAX_TRUSTED: Final = 100_000
_SECONDS_TO_TELL_WORKERS: Final = 5.0


def trace_worker_init(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `AgentLoopWorker.__init__`, after which delivery has a tokenizer of its own.

    Tokenizers in Rust fail when two threads use one at once, and the agent loops use theirs in threads.
    """

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - the data model's name
        original(self, *args, **kwargs)
        _copy_tokenizer(self)

    return __init__


def trace_worker_generate(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `AgentLoopWorker.generate_sequences`, which sees its part of the batch before it is taken apart."""

    async def generate_sequences(self: Any, batch: Any) -> Any:
        seen = _see_batch(batch)
        if seen is None:
            return await original(self, batch)
        token = batches.batch_variable.set(seen)
        try:
            return await original(self, batch)
        finally:
            batches.batch_variable.reset(token)

    return generate_sequences


def trace_run(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `AgentLoopWorker._run_agent_loop`, which runs one trajectory."""

    async def _run_agent_loop(self: Any, sampling_params: Any, trajectory: Any, **kwargs: Any) -> Any:
        begun = _begin(self, trajectory, kwargs)
        if begun is None:
            return await original(self, sampling_params, trajectory, **kwargs)
        executor.keep_context()
        rollout, trajectory, kwargs = begun
        token = rollouts.rollout_variable.set(rollout)
        try:
            return await original(self, sampling_params, trajectory, **kwargs)
        finally:
            rollouts.rollout_variable.reset(token)
            _end(self)

    return _run_agent_loop


def trace_manager_generate(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `AgentLoopManager.generate_sequences`, which numbers the whole batch before it is split over workers."""

    def generate_sequences(self: Any, prompts: Any, *args: Any, **kwargs: Any) -> Any:
        is_numbered = _number_rows(self, prompts)
        late = _late_rows(self, prompts) if is_numbered else None
        try:
            result = original(self, prompts, *args, **kwargs)
        except BaseException:
            _forget_rows(prompts, is_numbered)
            raise
        if inspect.isawaitable(result):
            return _finish(self, result, prompts, is_numbered, late)
        _forget_rows(prompts, is_numbered)
        if late is not None:
            late_rewards.add_column(self, late, result)
        return result

    return generate_sequences


def trace_queue_manager_generate(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return `AgentLoopManagerTQ.generate_sequences`, which tells workers whose dataset index is no other prompt's."""

    def generate_sequences(self: Any, prompts: Any) -> Any:
        _tell_workers(self, prompts)
        return original(self, prompts)

    return generate_sequences


def trust_prompts(self: Any, uids: list[str]) -> None:
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
        own = pipeline.tokenizer_copies.get(id(tokenizer))
        if own is None:
            own = pipeline.tokenizer_copies[id(tokenizer)] = copy.deepcopy(tokenizer)
        setattr(worker, _TOKENIZER, own)
    except Exception as error:  # noqa: BLE001, RUF100 - a tokenizer may be of any kind
        pipeline.tokenizer_copies[id(tokenizer)] = None
        _logger.warning("verl: token ids are not decoded: the tokenizer can't be copied (%s)", error)


def _see_batch(batch: Any) -> Batch | None:
    """Return what a worker's part of a batch shows; None where nothing is traced or it is no `DataProto`."""
    if runtime.pipeline is None or not hasattr(batch, "non_tensor_batch"):
        return None
    try:
        limit = RolloutTraceConfig.get_instance().max_samples
        return Batch(dict(batch.non_tensor_batch), dict(batch.meta_info), limit)
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("looking at a batch of verl")
        return None


def _begin(
    worker: Any, trajectory: Any, kwargs: dict[str, Any]
) -> tuple[rollouts.Rollout, dict[str, Any], dict[str, Any]] | None:
    """Return the trajectory's state, and verl's arguments with sound numbers and our choice of samples."""
    pipeline = runtime.pipeline
    if pipeline is None:
        return None
    try:
        batch = batches.batch_variable.get()
        session = kwargs.get("session_id")
        uid = None if kwargs.get("uid") is None else str(scalar(kwargs["uid"]))
        if batch is not None and session is None:
            identity = batch.identify(trajectory, kwargs)
            is_traced = batch.is_traced(kwargs) if batch.is_selecting else kwargs.get("trace", True)
        else:
            is_trusted = uid in vars(worker).get(_TRUSTED, ())
            identity = identify(trajectory, kwargs, is_index_trusted=is_trusted)
            # The v1 trainer says trace=False to all and leaves the choice to nobody.
            is_traced = kwargs.get("trace", True) if session is None else _select(worker, trajectory, uid, identity)
        attributes = identity.attributes()
        data_source = kwargs.get("data_source")
        if data_source is not None:
            attributes[semconv.DATA_SOURCE] = str(scalar(data_source))
        rollout = rollouts.Rollout(attributes, identity.step, kwargs.get("raw_prompt"), vars(worker).get(_TOKENIZER))
        numbers = {
            **trajectory,
            "step": identity.step,
            "sample_index": identity.sample_index,
            "rollout_n": identity.rollout_n,
        }
        vars(worker)[_RUNNING] = vars(worker).get(_RUNNING, 0) + 1
        return rollout, numbers, {**kwargs, "trace": bool(is_traced)}
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("starting a trajectory of verl")
        return None


def _select(worker: Any, trajectory: dict[str, Any], uid: str | None, identity: Any) -> bool:
    selection = vars(worker).setdefault(_SELECTION, PromptSelection())
    prompt = identity.sample_index if uid is None else uid
    limit = RolloutTraceConfig.get_instance().max_samples
    is_traced: bool = selection.is_traced(identity.step, bool(trajectory.get("validate")), prompt, limit)
    return is_traced


def _end(worker: Any) -> None:
    """Have the queues send what they hold once no trajectory runs: the step is over. Waits for nothing."""
    running = vars(worker)[_RUNNING] = vars(worker).get(_RUNNING, 1) - 1
    pipeline = runtime.pipeline
    if running <= 0 and pipeline is not None:
        for queue in pipeline.queues:
            queue.hurry()


def _is_traced(manager: Any) -> bool:
    """Whether the workers trace; the manager's own process does not."""
    try:
        return bool(manager.rollout_config.trace.get("backend"))
    except Exception:  # noqa: BLE001, RUF100 - a configuration without a trace section has nobody trace
        return False


def _number_rows(manager: Any, prompts: Any) -> bool:
    try:
        columns = getattr(prompts, "non_tensor_batch", None)
        if columns is None or "uid" not in columns or not _is_traced(manager):
            return False
        if "priority" in columns and [scalar(value) for value in columns["priority"]] != list(range(len(prompts))):
            # verl numbers the rows in this column; where it means something else, a worker can't tell which it has.
            return False
        meta = prompts.meta_info
        index = columns.get("index")
        ledger = vars(manager).setdefault(_LEDGER, BatchLedger())
        meta[batches.META_KEY] = ledger.number(
            scalar(meta.get("global_steps", -1)),
            bool(meta.get("validate", False)),
            [str(scalar(uid)) for uid in columns["uid"]],
            None if index is None else [_hashable(scalar(value)) for value in index],
        )
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("numbering a batch of verl")
        return False
    return True


def _late_rows(manager: Any, prompts: Any) -> list[str] | None:
    """Return which trajectories the rows are, where their rewards come when the rollout is over."""
    try:
        rows = prompts.meta_info[batches.META_KEY]
        uids = [str(scalar(uid)) for uid in prompts.non_tensor_batch["uid"]]
        validate = bool(prompts.meta_info.get("validate", False))
        return late_rewards.keys_of_rows(manager, validate, uids, [row.rollout_n for row in rows])
    except Exception:  # noqa: BLE001, RUF100 - tracing never reaches the traced program
        internal_error("numbering a batch of verl")
        return None


def _forget_rows(prompts: Any, is_numbered: bool) -> None:
    if is_numbered:
        prompts.meta_info.pop(batches.META_KEY, None)


async def _finish(manager: Any, result: Awaitable[Any], prompts: Any, is_numbered: bool, late: list[str] | None) -> Any:
    try:
        output = await result
    finally:
        _forget_rows(prompts, is_numbered)
    if late is not None:
        await late_rewards.add_column_later(manager, late, output)
    return output


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
