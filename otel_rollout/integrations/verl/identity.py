"""Which trajectory this is: step, sample and rollout number, such that no two of a run are the same.

verl's own numbers don't always tell trajectories apart (all of verl 0.9.1):

- `rollout_n` counts neighbours with the same `index` within one worker's part of the batch: it starts again where a
  group is split over workers, and is 0 for all n sessions of a prompt in the v1 trainer.
- `index` is 0 for every row of a dataset without `extra_info.index`, and occurs twice where two datasets are
  trained on together.
- the step is -1 in fully async training.

`uid` is one prompt of one step in all of them. Where verl gives nothing better, `rollout.sample_index_from` and
`rollout.rollout_n_from` say so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from otel_rollout import semconv

__all__ = ["BatchLedger", "Identity", "Row", "identify", "scalar"]

_MAX_STEPS: Final = 8
"""How many steps a ledger remembers: asynchronous trainers have several in flight."""


class Identity(NamedTuple):
    """What tells a trajectory apart from all others of the run, and where it comes from."""

    step: Any
    sample_index: Any
    rollout_n: Any
    sample_index_from: str
    rollout_n_from: str
    uid: str | None = None
    dataset_index: Any = None

    def attributes(self) -> dict[str, Any]:
        """Return what the root span says beside the tags."""
        attributes = {semconv.SAMPLE_INDEX_FROM: self.sample_index_from, semconv.ROLLOUT_N_FROM: self.rollout_n_from}
        if self.uid is not None:
            attributes[semconv.UID] = self.uid
        if self.dataset_index is not None:
            attributes[semconv.DATASET_INDEX] = self.dataset_index
        return attributes


class Row(NamedTuple):
    """What the whole batch shows of one of its rows."""

    is_index_unique: bool
    rollout_n: int


class BatchLedger:
    """Sees the whole batches of a step before they are split over workers, and numbers their rows."""

    def __init__(self) -> None:
        self._steps: OrderedDict[tuple[Any, bool], _Step] = OrderedDict()

    def number(
        self, step: Any, validate: bool, uids: Sequence[Hashable], indices: Sequence[Hashable] | None
    ) -> list[Row]:
        """Return what this batch, with the earlier ones of the step, shows of each of its rows.

        Args:
            step: The training step.
            validate: Whether this is a validation pass.
            uids: One uid per row: rows of one group have the same.
            indices: The dataset's index of each row, where the batch has it.
        """
        key = (step, validate)
        seen = self._steps.setdefault(key, _Step())
        self._steps.move_to_end(key)
        while len(self._steps) > _MAX_STEPS:
            self._steps.popitem(last=False)
        given = [None] * len(uids) if indices is None else indices
        for uid, index in zip(uids, given, strict=True):
            seen.uids_of.setdefault(index, OrderedDict())[uid] = None
            seen.indices_of.setdefault(uid, OrderedDict())[index] = None
        rows = []
        for uid, index in zip(uids, given, strict=True):
            rollout_n = seen.rollouts.get(uid, 0)
            seen.rollouts[uid] = rollout_n + 1
            # The first of an earlier batch has been traced by its index already.
            owners_of_index = seen.uids_of[index]
            is_alone = len(owners_of_index) == 1 or (uid in seen.earlier and next(iter(owners_of_index)) == uid)
            is_unique = indices is not None and is_alone and len(seen.indices_of[uid]) == 1
            rows.append(Row(is_unique, rollout_n))
        seen.earlier.update(dict.fromkeys(uids))
        return rows


class _Step:
    """What was seen of one step."""

    def __init__(self) -> None:
        self.uids_of: dict[Any, OrderedDict[Any, None]] = {}
        self.indices_of: dict[Any, OrderedDict[Any, None]] = {}
        self.rollouts: dict[Any, int] = {}
        self.earlier: dict[Any, None] = {}


def identify(
    trajectory: Mapping[str, Any],
    columns: Mapping[str, Any],
    *,
    row: Row | None = None,
    is_index_trusted: bool = False,
    nth_of_group: int | None = None,
) -> Identity:
    """Return which trajectory this is.

    Args:
        trajectory: verl's own numbers: `step`, `sample_index`, `rollout_n`, `validate`.
        columns: The columns of the sample: `uid`, `index`, `session_id`.
        row: What the whole batch shows of this row, where that was seen.
        is_index_trusted: Whether no other prompt of the step has this index.
        nth_of_group: How many of its group came before it in this worker's part of the batch.
    """
    step = scalar(trajectory.get("step"))
    index = scalar(columns.get("index"))
    uid = columns.get("uid")
    uid = None if uid is None else str(scalar(uid))
    session = scalar(columns.get("session_id"))
    sample_index = scalar(trajectory.get("sample_index"))
    if session is not None:
        rollout_n, rollout_n_from = session, "session_id"
    elif row is not None:
        rollout_n, rollout_n_from = row.rollout_n, "batch"
    elif nth_of_group is not None and uid is not None:
        # In fully async training a call has one whole group; elsewhere the group may go on in another worker.
        rollout_n, rollout_n_from = nth_of_group, "batch" if step == -1 else "worker"
    else:
        rollout_n, rollout_n_from = scalar(trajectory.get("rollout_n")), "worker"
    is_trusted = is_index_trusted or (row is not None and row.is_index_unique)
    if uid is not None and (not is_trusted or step == -1 or index is None):
        return Identity(step, uid, rollout_n, "uid", rollout_n_from, uid, index)
    origin = "index" if index is not None else "row of the worker"
    return Identity(step, sample_index, rollout_n, origin, rollout_n_from, uid, index)


def scalar(value: Any) -> Any:
    """Return the Python scalar in a numpy or torch one; anything else as it is."""
    if not hasattr(type(value), "item"):
        return value
    try:
        return value.item()
    except Exception:  # noqa: BLE001, RUF100 - an array of several elements has no item
        return value
