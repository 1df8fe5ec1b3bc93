"""Names in a question that no table has: what they stand for, and the message that names what there is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from otel_rollout.catalog.sql import FUNCTIONS
from otel_rollout.catalog.tables import SQL_COLUMNS
from otel_rollout.text.near_miss import near

FIRST_NAMES: Final[Mapping[str, Sequence[str]]] = {
    "completion_tokens": ("output_tokens",),
    "duration": ("seconds",),
    "error_message": ("error", "error_type"),
    "experiment": ("experiment_name",),
    "hostname": ("host",),
    "model_name": ("model",),
    "node": ("host",),
    "prompt_tokens": ("input_tokens",),
    "sample": ("sample_index",),
    "start": ("start_utc",),
    "tool": ("tools.name",),
    "tool_name": ("tool", "tools.name"),
}
"""Names that people try first, and the columns that they stand for: the first that the question's tables have."""

_NEAR: Final = 3
_TABLES: Final = re.compile(r"\b(?:from|join)\s+(?:main\.)?(\w+)", re.IGNORECASE)
_UNKNOWN: Final = re.compile(r"no such (column|table|function): (?:\w+\.)?(.+)")
_QUOTED: Final = r"""'(?:[^']|'')*' | --[^\n]* | /\*.*?\*/ | \[[^\]]*\] | `[^`]*`"""
_DOUBLE: Final = re.compile(rf'{_QUOTED} | "((?:[^"]|"")*)"', re.DOTALL | re.VERBOSE)
_BUILT_IN: Final = (
    *("avg", "count", "max", "min", "sum", "total", "round", "abs", "coalesce", "group_concat", "json_each"),
    *("json_extract", "instr", "substr", "length", "lower"),
)


def with_strict_names(sql: str) -> str:
    """Return a question whose names in double quotes are in backticks: SQLite reads a misspelt one as a text."""
    return _DOUBLE.sub(lambda it: it[0] if it[1] is None else f"`{it[1].replace('`', '``')}`", sql)


def with_known_name(sql: str, error: str) -> tuple[str, str, str] | None:
    """Return a question with a name replaced by the column that it stands for, the name, and the column.

    Args:
        sql: The question.
        error: SQLite's message.

    Returns:
        None if it is another error, or the name stands for none of the tables' columns.
    """
    unknown = _UNKNOWN.match(error)
    if unknown is None or unknown[1] != "column":
        return None
    name = unknown[2].strip()
    known = {
        place for table in _asked(sql) for each in SQL_COLUMNS[table] for place in (each.name, f"{table}.{each.name}")
    }
    place = next((each for each in FIRST_NAMES.get(name.lower(), ()) if each in known), None)
    if place is None:
        return None
    column = place.rpartition(".")[2]
    word = re.compile(rf'{_QUOTED} | (["`]?)\b{re.escape(name)}\b\1', re.DOTALL | re.VERBOSE)
    return word.sub(lambda it: it[0] if it[1] is None else column, sql), name, column


def message_of(error: str, sql: str) -> str | None:
    """Return the message for a name that there is not, with those near and all that there are.

    Args:
        error: SQLite's message.
        sql: The question.

    Returns:
        None if it is another error.
    """
    unknown = _UNKNOWN.match(error)
    if unknown is None:
        return None
    kind, name = unknown.groups()
    if name.lower() == "regexp":
        return "REGEXP is answered by `otel-rollout query` on the command line alone; LIKE and GLOB are answered here"
    text = f"; a text has single quotes: {quoted(name)}" if f'"{name}"' in sql else ""
    if kind != "column":
        known = (*FUNCTIONS, *_BUILT_IN) if kind == "function" else tuple(SQL_COLUMNS)
        means = _meant(_near(name, known)) or f"; there are {', '.join(known)}"
        return f"there is no {kind} {name}{means}{text}"
    tables = _asked(sql) or list(SQL_COLUMNS)
    others = [table for table, columns in SQL_COLUMNS.items() if any(each.name == name for each in columns)]
    alike = _near(name, [each.name for table in tables for each in SQL_COLUMNS[table]])
    lists = "".join(f"; {table} has {', '.join(each.name for each in SQL_COLUMNS[table])}" for table in _asked(sql))
    return f"there is no column {name}{_elsewhere(others)}{_meant(alike)}{text}{lists}"


def _asked(sql: str) -> list[str]:
    """Return the tables that a question names."""
    words = _TABLES.findall(with_strict_names(sql))
    return [table for table in SQL_COLUMNS if table in words]


def _near(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that are near: those spelt alike, and those all of whose words are in the name."""
    words = set(name.lower().split("_"))
    others = [each for each in known if each != name]
    parts = (each for each in others if words >= set(each.split("_")))
    return [*dict.fromkeys([*near(name, others, _NEAR), *parts])][:_NEAR]


def _meant(names: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _elsewhere(tables: Sequence[str]) -> str:
    """Return the tables that have a column that the question's tables lack."""
    if not tables:
        return ""
    join = " (JOIN trajectories USING (trace_id))" if "trajectories" in tables else ""
    return f" in what it asks: {', '.join(tables)} {'has' if len(tables) == 1 else 'have'} it{join}"


def quoted(text: str) -> str:
    """Return a text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
