"""SQLite: a row per span, written as it comes, and two indexes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from benchmarks.trace_files.stores import columns
from benchmarks.trace_files.stores.store import Group, Root, Store
from otel_rollout import semconv


class Sqlite(Store):
    title = "SQLite"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._connection = sqlite3.connect(folder / "traces.sqlite")
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            f"CREATE TABLE spans ({', '.join(columns.COLUMNS)});"
            "CREATE INDEX by_tags ON spans (step, sample_index, rollout_n);"
            "CREATE INDEX roots ON spans (step, sample_index) WHERE parent_span_id IS NULL;"
        )
        self._insert = f"INSERT INTO spans VALUES ({', '.join('?' * len(columns.COLUMNS))})"

    def write(self, spans: Sequence[ReadableSpan]) -> None:
        with self._connection:
            self._connection.executemany(self._insert, map(columns.row_of, spans))

    def finish(self) -> None:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def roots(self, step: int) -> Sequence[Root]:
        return list(map(Root._make, self._connection.execute(columns.ROOTS, (step,))))

    def trajectory(self, step: int, sample_index: int, rollout_n: int) -> Sequence[Any]:
        asked = (step, sample_index, rollout_n)
        return columns.parsed(self._connection.execute(columns.TRAJECTORY, asked).fetchall())

    def spans(self, step: int) -> Sequence[Any]:
        return columns.parsed(self._connection.execute(columns.STEP, (step,)).fetchall())

    def groups(self) -> Sequence[Group]:
        return list(map(Group._make, self._connection.execute(columns.GROUPS)))

    def attributes_of(self, span: Any) -> dict[str, Any]:
        return {**columns.attributes_of(span), semconv.VALIDATE: bool(span[6])}
