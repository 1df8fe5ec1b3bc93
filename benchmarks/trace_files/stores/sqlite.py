"""SQLite: a row per trajectory, its spans a zstd blob of OTLP JSON; held in memory until its root has come."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import zstandard
from opentelemetry.sdk.trace import ReadableSpan

from benchmarks.trace_files.stores.json_lines import attributes_of, request_of, root_of, spans_of
from benchmarks.trace_files.stores.store import Group, Root, Store, Trajectories
from otel_rollout import semconv


class Sqlite(Store):
    title = "SQLite, zstd blobs"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._connection = sqlite3.connect(folder / "traces.sqlite")
        self._connection.executescript(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
            "CREATE TABLE facts (trace_id, sample_index, rollout_n, status, reward, start_time, end_time, step);"
            "CREATE TABLE spans (blob);"
            "CREATE INDEX by_tags ON facts (step, sample_index, rollout_n);"
        )
        self._trajectories = Trajectories()
        self._compressor = zstandard.ZstdCompressor(level=3)
        self._decompressor = zstandard.ZstdDecompressor()

    def write(self, spans: Sequence[ReadableSpan]) -> None:
        with self._connection:
            for trajectory in self._trajectories.add(spans):
                request = request_of(trajectory)
                root = root_of(spans_of(request)[-1])
                step = (trajectory[-1].attributes or {})[semconv.STEP]
                self._connection.execute("INSERT INTO facts VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*root, step))
                blob = self._compressor.compress(orjson.dumps(request))
                self._connection.execute("INSERT INTO spans VALUES (?)", (blob,))

    def finish(self) -> None:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def roots(self, step: int) -> Sequence[Root]:
        facts = self._connection.execute(f"SELECT {', '.join(Root._fields)} FROM facts WHERE step = ?", (step,))
        return list(map(Root._make, facts))

    def trajectory(self, step: int, sample_index: int, rollout_n: int) -> Sequence[Any]:
        where = "step = ? AND sample_index = ? AND rollout_n = ?"
        return next(self._select(where, step, sample_index, rollout_n))

    def spans(self, step: int) -> Sequence[Any]:
        return [span for spans in self._select("step = ?", step) for span in spans]

    def groups(self) -> Sequence[Group]:
        query = "SELECT step, sample_index, count(*), avg(reward) FROM facts GROUP BY step, sample_index"
        return list(map(Group._make, self._connection.execute(query)))

    def attributes_of(self, span: Any) -> dict[str, Any]:
        return attributes_of(span)

    def _select(self, where: str, *values: int) -> Iterator[Any]:
        """Yield the spans of each trajectory."""
        query = f"SELECT blob FROM facts JOIN spans ON spans.rowid = facts.rowid WHERE {where}"
        for (blob,) in self._connection.execute(query, values):
            yield spans_of(orjson.loads(self._decompressor.decompress(blob)))
