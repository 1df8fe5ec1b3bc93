"""Trajectories from the closed indexes of trace folders, read by DuckDB in a fifth of a catalog's time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from otel_rollout.catalog import find_files
from otel_rollout.catalog.columns import Column, kinds_of
from otel_rollout.dataframes.arrow import is_mixed, schema_of
from otel_rollout.facts.compact_spans import ERROR
from otel_rollout.facts.table import DEFAULTS, INFERRED
from otel_rollout.folder.index import NOT_INFERRED, IndexEntry
from otel_rollout.folder.layout import ZST, is_frame_file

_TYPES = {int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN", str: "VARCHAR"}


def _type_of(hint: Any) -> str:
    kinds = kinds_of(hint)
    return _TYPES.get(kinds[0], "JSON") if len(kinds) == 1 else "JSON"


_LINE = {name: _type_of(hint) for name, hint in get_type_hints(IndexEntry).items() if name != "summary"}
"""The fields of a line. Programs give tags any type, which JSON keeps."""
_WORKER = r"regexp_extract(filename, '([^/]*-[0-9]+-[0-9a-f]{4})(-[0-9]+)?\.index\.jsonl\.zst$', 1)"
_TAGS = ("sample_index", "rollout_n")
_ANY = (*_TAGS, "experiment_name", "status")
_MADE = {
    **{name: f"trim({name}, '\"')" for name in _ANY},
    "status": f"coalesce(trim(status, '\"'), CASE WHEN has_root AND status_code = {ERROR} THEN 'error' END)",
    "stored_bytes": '"length"',
    "seconds": "(end_time - start_time) / 1e9",
    "worker": _WORKER,
    "process_run_id": "run_id",
    "attempt": "NULL",
    "overtaken": "false",
}
"""The columns that are no fields as they are."""
_DOUBTS = (
    "trace_id IS NULL",
    "facts IS NULL",
    *(f"starts_with({name}, '\"') AND length({name}) NOT BETWEEN 3 AND 1000" for name in _ANY),
    # A backslash stands for another character.
    *(f"contains({name}, '\\')" for name in _ANY),
    *(f"NOT starts_with({name}, '\"') AND trim({name}, '-0123456789') <> ''" for name in _TAGS),
    "NOT starts_with(experiment_name, '\"')",
    "NOT starts_with(status, '\"')",
)
"""A row of which one is true has other values in the catalog."""


_LENGTHS = 'SELECT file, sum("length"), max("offset" + "length") FROM rows GROUP BY file'
_STARTS = f"""
SELECT min(began) > max(max(ended)) OVER (
    PARTITION BY project, experiment ORDER BY min(began) ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
  FROM (SELECT project, experiment, run, file AS filename, min(began) AS began, max(ended) AS ended FROM rows
    WHERE has_step GROUP BY ALL)
  GROUP BY project, experiment, run, {_WORKER}
"""
"""True for a process that began once all others of its experiment had ended: it may be an attempt of their run."""


def read_closed(folders: Sequence[Path], columns: Sequence[Column]) -> list[pa.RecordBatch] | None:
    """Return columns of all trajectories; None if closed indexes don't have them, or DuckDB isn't installed.

    They have them if the lengths of the lines of each add up to the size of its file, if each trajectory has one line,
    if nothing that is asked for has to be inferred, and if no run can have been resumed.

    Args:
        folders: The trace folders.
        columns: The columns of `trajectories`.
    """
    sizes = {}
    for each in find_files(folders).values():
        index = each.file.index_place
        if index is None or not is_frame_file(each.file.path.name) or os.path.exists(index):  # noqa: PTH110 - as a string
            return None
        sizes[index + ZST] = int(each.status.rsplit(" ", 1)[1])
    try:
        import duckdb
    except ImportError:
        return None
    with suppress(duckdb.Error, pa.ArrowException), duckdb.connect() as connection:
        rows = connection.sql(_sql_of(dict.fromkeys(columns)), params=[list(sizes)]).to_arrow_table()
        checks = connection.sql("SELECT count(DISTINCT id) = count(*), bool_or(doubt) FROM rows").fetchall()
        lengths = {file: {total, end} for file, total, end in connection.sql(_LENGTHS).fetchall()}
        starts = connection.sql(_STARTS).fetchall()
        is_whole = checks == [(True, False)] and lengths == {file: {size} for file, size in sizes.items()}
        if is_whole and (True,) not in starts:
            texts = {each.name for each in columns if is_mixed(each) and pc.any(rows[f"is_text {each.name}"]).as_py()}
            found = rows.select([each.name for each in columns]).cast(schema_of(columns, texts))
            return list(found.to_batches())
    return None


def _sql_of(columns: Iterable[Column]) -> str:
    facts = {each.name: _type_of(each.type) for each in columns if each.name not in {*_LINE, *_MADE}}
    own = ", ".join(f'"{name}" {kind}' for name, kind in {**facts, NOT_INFERRED: "BOOLEAN"}.items())
    line = ", ".join(f"'{name}': '{kind}'" for name, kind in {**_LINE, "facts": f"STRUCT({own})"}.items())
    chosen = [f'{_MADE.get(each.name) or _value_of(each, facts)} AS "{each.name}"' for each in columns]
    # The texts and numbers of a mixed column look the same without their quotes.
    chosen += [f'starts_with({each.name}, \'"\') AS "is_text {each.name}"' for each in columns if is_mixed(each)]
    doubts = [*_DOUBTS, *([f"facts.{NOT_INFERRED}"] if not facts.keys().isdisjoint(INFERRED) else [])]
    return (
        f'SELECT {", ".join(chosen)}, trace_id AS id, filename AS file, "offset", "length",'
        " project_name AS project, experiment_name AS experiment, run_id AS run, step IS NOT NULL AS has_step,"
        " start_time AS began, end_time AS ended,"
        f" coalesce({' OR '.join(doubts)}, false) AS doubt"
        f" FROM read_json(?, format='newline_delimited', compression='zstd', filename=true, columns={{{line}}})"
    )


def _value_of(column: Column, facts: Mapping[str, str]) -> str:
    name, default = column.name, DEFAULTS.get(column.name)
    value = f'facts."{name}"' if name in facts else f'"{name}" // 1000' if column.unit == "ns" else f'"{name}"'
    if default is None:
        return value
    text = {"{}": "'{}'", "()": "'[]'"}.get(str(default)) or (f"'{default}'" if isinstance(default, str) else default)
    return f"coalesce({value}, {text})"
