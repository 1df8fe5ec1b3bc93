"""Rows of spans and messages, made of recorded trajectories in batches of bounded size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from otel_rollout.catalog.columns import Column
from otel_rollout.catalog.span_columns import COMMON, rows_of
from otel_rollout.catalog.spans import BYTES_AT_ONCE
from otel_rollout.dataframes.arrow import ROWS_AT_ONCE, batch_of, schema_of
from otel_rollout.errors import UnreadableTraceError
from otel_rollout.folder.reader import RecordedTrajectory


def payload_batches(
    trajectories: Iterable[RecordedTrajectory],
    tables: Mapping[str, Sequence[Column]],
    on_unreadable: Callable[[str], object],
) -> Iterator[Mapping[str, pa.RecordBatch]]:
    """Yield batches of each table, of the same trajectories.

    Args:
        trajectories: The trajectories, which are read once.
        tables: The columns by table: `spans`, `messages`, `conversations`.
        on_unreadable: Called with the trace id of a trajectory that can't be read.
    """
    makers = {table: _Rows(table, columns) for table, columns in tables.items()}
    made = {table: maker.made for table, maker in makers.items()}
    size = 0
    for trajectory in trajectories:
        try:
            rows = rows_of(trajectory.spans, made)
        except UnreadableTraceError:
            on_unreadable(trajectory.trace_id)
            continue
        for table, found in rows.items():
            makers[table].add(trajectory, found)
        size += trajectory.size_bytes
        if size >= BYTES_AT_ONCE or any(len(maker.rows) >= ROWS_AT_ONCE for maker in makers.values()):
            yield {table: maker.take() for table, maker in makers.items()}
            size = 0
    yield {table: maker.take() for table, maker in makers.items()}


class _Rows:
    """The rows of a table that wait for their batch."""

    def __init__(self, table: str, columns: Sequence[Column]) -> None:
        self.rows: list[Sequence[Any]] = []
        self._columns = columns
        self._schema = schema_of(columns)
        common = [each.name for each in COMMON]
        self.made = [each for each in columns if each.name not in common]
        """The columns that are made of spans; what is not asked for is not made."""
        place = {each.name: at for at, each in enumerate((*COMMON, *self.made))}
        self._order = [place[each.name] for each in columns]

    def add(self, trajectory: RecordedTrajectory, rows: Sequence[Sequence[Any]]) -> None:
        """Add the rows of a trajectory, which lack the common columns."""
        common = (trajectory.trace_id, trajectory.step, trajectory.validate)
        self.rows += (tuple([(*common, *row)[at] for at in self._order]) for row in rows)

    def take(self) -> pa.RecordBatch:
        """Return the rows as a batch, and forget them."""
        rows, self.rows = self.rows, []
        return batch_of(self._columns, self._schema, zip(*rows, strict=True) if rows else [()] * len(self._columns))
