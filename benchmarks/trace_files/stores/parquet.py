"""Parquet, zstd level 3, written by pyarrow and read by DuckDB; whole trajectories, held in memory until then."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
from opentelemetry.sdk.trace import ReadableSpan
from pyarrow import parquet

from benchmarks.trace_files.stores import columns
from benchmarks.trace_files.stores.store import Group, Root, Store, Trajectories

ROW_GROUP_BYTES: Final = 32 * 2**20
"""How much payload a row group holds; as much is in memory, beside the trajectories that have not ended."""

_TYPES: Final = {
    "kind": pa.int8(),
    "start_time": pa.int64(),
    "end_time": pa.int64(),
    "status_code": pa.int8(),
    "step": pa.int32(),
    "sample_index": pa.int64(),
    "rollout_n": pa.int32(),
    "validate": pa.bool_(),
    "reward": pa.float64(),
}
_FEW_VALUES: Final = ["name", "experiment_name", "status", *_TYPES]
_SCHEMA: Final = pa.schema([(name, _TYPES.get(name, pa.string())) for name in columns.COLUMNS])


class Parquet(Store):
    title = "Parquet + DuckDB"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        path = folder / "traces.parquet"
        self._writer = parquet.ParquetWriter(
            path, _SCHEMA, compression="zstd", compression_level=3, use_dictionary=_FEW_VALUES
        )
        self._trajectories = Trajectories()
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self._connection = duckdb.connect()
        self._source = f"read_parquet('{path}')"

    def write(self, spans: Sequence[ReadableSpan]) -> None:
        for trajectory in self._trajectories.add(spans):
            rows = [columns.row_of(span) for span in trajectory]
            self._rows += rows
            self._bytes += sum(len(text) for row in rows for text in row if isinstance(text, str))
            if self._bytes >= ROW_GROUP_BYTES:
                self._write_rows()

    def finish(self) -> None:
        if self._rows:
            self._write_rows()
        self._writer.close()

    def roots(self, step: int) -> Sequence[Root]:
        return list(map(Root._make, self._select(columns.ROOTS, step)))

    def trajectory(self, step: int, sample_index: int, rollout_n: int) -> Sequence[Any]:
        return columns.parsed(self._select(columns.TRAJECTORY, step, sample_index, rollout_n))

    def spans(self, step: int) -> Sequence[Any]:
        return columns.parsed(self._select(columns.STEP, step))

    def groups(self) -> Sequence[Group]:
        return list(map(Group._make, self._select(columns.GROUPS)))

    def attributes_of(self, span: Any) -> dict[str, Any]:
        return columns.attributes_of(span)

    def _write_rows(self) -> None:
        arrays = [
            pa.array(values, field.type) for values, field in zip(zip(*self._rows, strict=True), _SCHEMA, strict=True)
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=_SCHEMA), row_group_size=len(self._rows))
        self._rows, self._bytes = [], 0

    def _select(self, query: str, *values: int) -> list[tuple[Any, ...]]:
        return self._connection.execute(query.replace("FROM spans", f"FROM {self._source}"), values).fetchall()
