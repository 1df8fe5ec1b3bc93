"""Identify trajectories by step, sample and rollout number, unique in a run; and sample prompts by them.

verl's own numbers don't always distinguish trajectories (verl 0.9.1):

- `rollout_n` counts neighbours with the same `index` in one worker's part of the batch: it restarts if a group is split
  over workers, and is 0 for all n sessions of a prompt in the v1 trainer.
- `index` is 0 for each row of a dataset without `extra_info.index`, and two datasets in one run share indices.
- The step is -1 in fully async training.

`uid` is one prompt of one step in all of them. If verl gives nothing better, `rollout.sample_index_from` and
`rollout.rollout_n_from` report it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from otel_rollout import semconv
from otel_rollout.record.attribute_values import read_scalar, read_tag
from otel_rollout.record.sampling import select_samples

META_KEY: Final = "otel_rollout_rows"
"""The key in a batch's `meta_info` (no agent loop or training data sees it) of the whole batch's `Row`s."""

_T = TypeVar("_T")

_MAX_STEPS: Final = 16
"""The number of steps that are remembered: asynchronous trainers have several in flight."""


class Identity(NamedTuple):
    """A trajectory's unique numbers, and where they come from."""

    step: Any
    sample_index: Any
    rollout_n: Any
    sample_index_from: str
    rollout_n_from: str
    uid: str | None = None
    dataset_index: Any = None

    def attributes(self) -> dict[str, Any]:
        """Return the root span's attributes besides the tags."""
        attributes = {
            semconv.SAMPLE_INDEX_FROM: self.sample_index_from,
            semconv.ROLLOUT_N_FROM: self.rollout_n_from,
            semconv.UID: self.uid,
            semconv.DATASET_INDEX: self.dataset_index,
        }
        return {key: value for key, value in attributes.items() if value is not None}


class Row(NamedTuple):
    """A row's facts that only the whole batch shows."""

    is_index_unique: bool
    rollout_n: int


@dataclass
class _Step:
    """The batches of one step so far."""

    uids_of: dict[Any, dict[Any, None]] = field(default_factory=lambda: defaultdict(dict))
    indices_of: dict[Any, dict[Any, None]] = field(default_factory=lambda: defaultdict(dict))
    rollouts: Counter[Any] = field(default_factory=Counter)


class BatchLedger:
    """Numbers the rows of a step's whole batches, before they are split over workers."""

    def __init__(self) -> None:
        self._steps: OrderedDict[tuple[Any, bool], _Step] = OrderedDict()

    def number(
        self, step: Any, validate: bool, uids: Sequence[Hashable], indices: Sequence[Hashable] | None
    ) -> list[Row]:
        """Return each row's facts, from this batch and the earlier ones of its step.

        Args:
            step: The training step.
            validate: True for a validation pass.
            uids: Each row's uid; rows of a group share one.
            indices: Each row's dataset index, if the batch has it.
        """
        seen = _of_step(self._steps, step, validate, _Step)
        given = [None] * len(uids) if indices is None else indices
        for uid, index in zip(uids, given, strict=True):
            seen.uids_of[index][uid] = seen.indices_of[uid][index] = None
        rows, earlier = [], set(seen.rollouts)
        for uid, index in zip(uids, given, strict=True):
            # The first uid of an earlier batch has been traced by its index already.
            owners_of_index = seen.uids_of[index]
            is_alone = len(owners_of_index) == 1 or (uid in earlier and next(iter(owners_of_index)) == uid)
            is_unique = indices is not None and is_alone and len(seen.indices_of[uid]) == 1
            rows.append(Row(is_unique, seen.rollouts[uid]))
            seen.rollouts[uid] += 1
        return rows


def identify(
    trajectory: Mapping[str, Any],
    columns: Mapping[str, Any],
    *,
    row: Row | None = None,
    is_index_trusted: bool = False,
    nth_of_group: int | None = None,
) -> Identity:
    """Return a trajectory's identity.

    Args:
        trajectory: verl's own numbers: `step`, `sample_index`, `rollout_n`, `validate`.
        columns: The sample's columns: `uid`, `index`, `session_id`.
        row: The row's facts from the whole batch, if a ledger has seen it.
        is_index_trusted: True if no other prompt of the step has this index.
        nth_of_group: The number of earlier rows of its group in this worker's part of the batch.
    """
    step = read_scalar(trajectory.get("step"))
    index = _tag(columns.get("index"))
    uid = uid_of(columns)
    session = read_scalar(columns.get("session_id"))
    if session is not None:
        rollout_n, rollout_n_from = session, "session_id"
    elif row is not None:
        rollout_n, rollout_n_from = row.rollout_n, "batch"
    elif nth_of_group is not None and uid is not None:
        # In fully async training a call has one whole group; elsewhere the group may go on in another worker.
        rollout_n, rollout_n_from = nth_of_group, "batch" if step == -1 else "worker"
    else:
        rollout_n, rollout_n_from = read_scalar(trajectory.get("rollout_n")), "worker"
    is_trusted = is_index_trusted or (row is not None and row.is_index_unique)
    if uid is not None and (not is_trusted or step == -1 or index is None):
        return Identity(step, uid, rollout_n, "uid", rollout_n_from, uid, index)
    origin = "index" if index is not None else "row of the worker"
    return Identity(step, read_scalar(trajectory.get("sample_index")), rollout_n, origin, rollout_n_from, uid, index)


class Batch:
    """A worker's part of a batch, of which it traces `max_samples` samples; None for all."""

    def __init__(self, columns: dict[str, Any], meta_info: dict[str, Any], max_samples: int | None) -> None:
        self._rows: list[Row] | None = meta_info.get(META_KEY)
        self._seen: Counter[str | None] = Counter()
        self._traced: set[Any] | None = None
        self._left: int | None = None
        keys = columns.get("uid")
        if keys is None:
            keys = columns.get("index")
        if max_samples is not None:
            if keys is None:
                # Without anything that distinguishes the samples, the first rows are traced.
                self._left = max_samples
            else:
                names = [read_tag(key) for key in keys]
                picked = select_samples(names, max_samples, step=meta_info.get("global_steps", -1))
                self._traced = {names[position] for position in picked}

    def identify(self, trajectory: dict[str, Any], columns: dict[str, Any]) -> Identity:
        """Return a trajectory's identity; called once per row, in order."""
        uid = uid_of(columns)
        nth = None if uid is None else self._seen[uid]
        self._seen[uid] += 1
        row = None
        position = read_scalar(columns.get("priority"))
        if self._rows is not None and isinstance(position, int) and 0 <= position < len(self._rows):
            row = self._rows[position]
        return identify(trajectory, columns, row=row, nth_of_group=nth)

    def is_traced(self, columns: dict[str, Any]) -> bool:
        """Return True if a sample is traced; called once per row, in order."""
        if self._left is not None:
            self._left -= 1
            return self._left >= 0
        if self._traced is None:
            return True
        key = columns.get("uid")
        return read_tag(columns.get("index") if key is None else key) in self._traced


class PromptSelection:
    """Samples prompts that arrive one by one: the first ones of a step, with all their rollouts."""

    def __init__(self) -> None:
        self._picked: OrderedDict[tuple[Any, bool], set[Any]] = OrderedDict()

    def is_traced(self, step: Any, validate: bool, prompt: Any, max_samples: int | None) -> bool:
        """Return True if a prompt is traced; all are if `max_samples` is None."""
        if max_samples is None:
            return True
        picked = _of_step(self._picked, step, validate, set)
        if len(picked) < max_samples:
            picked.add(prompt)
        return prompt in picked


batch_variable: Final[ContextVar[Batch | None]] = ContextVar("otel-rollout-verl-batch", default=None)


def forget_oldest(known: OrderedDict[Any, Any], limit: int) -> None:
    """Drop the first items of a mapping that has more than `limit`."""
    while len(known) > limit:
        known.popitem(last=False)


def uid_of(columns: Mapping[str, Any]) -> str | None:
    """Return a sample's uid, if it has one."""
    uid = _tag(columns.get("uid"))
    return None if uid is None else str(uid)


def _tag(value: Any) -> int | str | None:
    return None if value is None else read_tag(value)


def _of_step(steps: OrderedDict[tuple[Any, bool], _T], step: Any, validate: bool, make: Callable[[], _T]) -> _T:
    key = (step, validate)
    found = steps.setdefault(key, make())
    steps.move_to_end(key)
    forget_oldest(steps, _MAX_STEPS)
    return found
