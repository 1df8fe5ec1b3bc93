"""The figures of steps and groups: their SQL, which follows from the tables of facts and figures, and their rows.

`refresh` computes the figures of changed steps and keeps them in tables: the views `steps` and `groups` cost little
then, and need none of our functions.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields
from types import UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints
from zlib import crc32

import orjson

from otel_rollout.catalog import schema, spans
from otel_rollout.catalog.group_summary import GroupSummary, Spread
from otel_rollout.catalog.reward_scale import Scale, scale_of
from otel_rollout.catalog.sql import Figure, Source, count_if, prepare, sum_of
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.json_types import readers_of
from otel_rollout.facts.shapes import Shape
from otel_rollout.facts.table import FACTS, Percentiles, Sum, TrajectorySummary
from otel_rollout.version import __version__

_SUMS: Final[Mapping[Sum, tuple[str, str]]] = {
    "mean": ("the mean of `{}`", "mean({})"),
    "percentiles": ("`{}`", "{}"),
    "sum": ("the sum of `{}`", sum_of("{0}")),
    "above 0": ("the trajectories whose `{}` is above 0", count_if("{} > 0")),
    "by value": ("the number of trajectories by `{}`", "coalesce(counts({}), '{{}}')"),
    "mean by name": ("the mean of `{}` by name", "means_by_name({})"),
    "sum by name": ("the sum of `{}` by name", "tool_counts({})"),
}
"""The meaning and the SQL of each way to sum a fact."""
_LOWEST: Final = ("lowest", "the lowest of {}", "min({})")
_MEAN: Final = ("mean", "the mean of {}", "avg({})")
_HIGHEST: Final = ("highest", "the highest of {}", "max({})")
_STATISTICS: Final[Mapping[Any, Sequence[tuple[str, str, str]]]] = {
    Percentiles: (
        _MEAN,
        ("p50", "the median of {}", "median({})"),
        ("p99", "the 99th percentile of {}", "p99({})"),
        _HIGHEST,
    ),
    Spread: (_LOWEST, _MEAN, _HIGHEST),
}
"""An amount has a column for each of these, after its name and an underscore, with this meaning and SQL."""
_ITSELF: Final = (("", "{}", "{}"),)
_UNITS: Final = {**{each.name: each.unit for each in FACTS}, schema.SECONDS: "s"}
_PLAIN: Final = {int, float, str, type(None)}


class Column(NamedTuple):
    """A column of a view.

    Args:
        name: Its name.
        type: Its type.
        meaning: A clause for the docs.
        unit: The unit of a number.
        sql: The SQL that computes it.
        of: The rows that it is computed over.
    """

    name: str
    type: Any
    meaning: str
    unit: str
    sql: str
    of: Source


class _View:
    """A view's columns, and the summaries that are made of its rows.

    Args:
        kind: The class of the summaries.
    """

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        self.columns: list[Column] = []
        self._names = [each.name for each in fields(kind)]
        self._readers: list[tuple[slice, Callable[..., Any]]] = []
        """The columns that are not a field as they are, the last first."""
        hints, readers = get_type_hints(kind), readers_of(kind)
        for each in fields(kind):
            hint = hints[each.name]
            kinds = set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}
            found: Figure = each.metadata["figure"] if "figure" in each.metadata else _of_fact(**each.metadata)
            amount = next((kind for kind in kinds if kind in _STATISTICS), None)
            for statistic, meaning, sql in _STATISTICS.get(amount, _ITSELF):
                name, column_type = (f"{each.name}_{statistic}", float | None) if statistic else (each.name, hint)
                words = meaning.format(found.meaning)
                self.columns.append(Column(name, column_type, words, found.unit, sql.format(found.sql), found.of))
            if amount is not None:
                read = _amount_of(amount)
            elif kinds == {bool}:
                read = bool
            elif kinds <= _PLAIN:
                continue
            else:
                read = _from_json(readers[each.name])
            width = len(_STATISTICS.get(amount, _ITSELF))
            self._readers.insert(0, (slice(len(self.columns) - width, len(self.columns)), read))

    def sql_of(self, source: Source) -> dict[str, str]:
        """Return the SQL of the columns that are computed over these rows."""
        return {each.name: each.sql for each in self.columns if each.of == source}

    def select(self, run_id: str) -> str:
        """Return the columns of a SELECT from runs, `run`, with this SQL for the id, and from figures, `f`."""
        places = (f'{"run" if each.of == "runs" else "f"}."{each.name}"' for each in self.columns)
        return ", ".join(f'{run_id} AS "run_id"' if place == 'run."run_id"' else place for place in places)

    def summaries(self, rows: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Yield the summary of each row."""
        for row in rows:
            values = list(row)
            for place, read in self._readers:
                values[place] = [read(*values[place])]
            yield self.kind(**dict(zip(self._names, values, strict=True)))


def _of_fact(fact: str, sum: Sum) -> Figure:  # noqa: A002 - a name of the table's metadata
    meaning, sql = _SUMS[sum]
    unit = "" if sum in ("above 0", "by value") else _UNITS[fact]
    return Figure(meaning.format(fact), sql.format(fact), unit, "trajectories")


def _amount_of(kind: Any) -> Callable[..., Any]:
    return lambda *values: None if values[0] is None else kind(*values)


def _from_json(read: Callable[[Any], Any]) -> Callable[[str], Any]:
    return lambda text: read(orjson.loads(text))


STEPS: Final = _View(StepSummary)
GROUPS: Final = _View(GroupSummary)


_OF_STEP: Final = '"step" IS :step AND "validate" = :validate'
_ORDER: Final = (
    't."sample_index" IS NULL, t."sample_index", t."rollout_n" IS NULL, t."rollout_n", t."start_time", t.rowid'
)
"""The order of a step's trajectories: by prompt and rollout, numbers before text, what has none last."""
_MEMBERS: Final = """step_runs run JOIN trajectories t ON t."step" IS run."step" AND t."validate" = run."validate"
  AND t."experiment_name" IS run."experiment_name" AND (NOT run.is_split OR t."run_id" IS run."run_id")"""
_RUN: Final = STEPS.sql_of("runs")
_STEP: Final = STEPS.sql_of("trajectories")
_OF_GROUPS: Final = STEPS.sql_of("groups")
_GROUP: Final = GROUPS.sql_of("trajectories")
_STEP_BY_SCALE: Final = STEPS.sql_of("scale")
_GROUP_BY_SCALE: Final = GROUPS.sql_of("scale")


def _names(figures: Mapping[str, str]) -> str:
    return ", ".join(map('"{}"'.format, figures))


def _facts_in(figures: Mapping[str, str]) -> str:
    """Return the columns of trajectories that figures are computed of."""
    words = set(re.findall(r"(?<![.\w])\w+", " ".join(figures.values())))
    return ", ".join(f't."{name}"' for name in (*schema.COLUMNS, schema.SECONDS) if name in words)


def _select(figures: Mapping[str, str]) -> str:
    """Return figures as the columns of a SELECT; what they compare with, `run.…`, is a column of that name."""
    return ", ".join(re.sub(r"\brun\.\w+", r'"\g<0>"', sql) + f' AS "{name}"' for name, sql in figures.items())


def _members(figures: Mapping[str, str], *others: str) -> str:
    """Return the SELECT of a step's trajectories, with what figures need of them and of their runs."""
    runs = sorted(set(re.findall(r"\brun\.\w+", " ".join(figures.values()))))
    columns = ", ".join((*(f'{name} AS "{name}"' for name in runs), _facts_in(figures), *others))
    return f"""SELECT run.id AS of_run, {columns} FROM {_MEMBERS}
    WHERE run."step" IS :step AND run."validate" = :validate"""


_IS_SPLIT: Final = f"""min(ifnull("run_id", '')) < max(ifnull("run_id", '')) AND EXISTS (
    SELECT 1 FROM trajectories again
    WHERE {_OF_STEP} AND again."experiment_name" IS t."experiment_name"
      AND "sample_index" IS NOT NULL AND "rollout_n" IS NOT NULL
    GROUP BY CAST("sample_index" AS TEXT), CAST("rollout_n" AS TEXT)
    HAVING min(ifnull("run_id", '')) < max(ifnull("run_id", '')))"""
"""Runs are distinguished if two have a rollout of the same number of the same prompt. Processes that share no
`OTEL_ROLLOUT_RUN_ID` have an id each: together they are one run."""
_RUN_OF: Final = "CASE WHEN is_split THEN run_id END"
_COMPUTE: Final = (
    f"""INSERT INTO step_runs (is_split, {_names(_RUN)})
  SELECT is_split, {_select({**_RUN, "run_id": _RUN_OF})}
  FROM (SELECT e.is_split, {_facts_in(_RUN)} FROM trajectories t JOIN (
      SELECT "experiment_name", {_IS_SPLIT} AS is_split FROM trajectories t WHERE {_OF_STEP} GROUP BY "experiment_name"
    ) e ON e."experiment_name" IS t."experiment_name" WHERE {_OF_STEP})
  GROUP BY "experiment_name", {_RUN_OF}""",
    f"""INSERT INTO group_figures (run, {_names(_GROUP)})
  SELECT of_run, {_select(_GROUP)} FROM ({_members(_GROUP, f"row_number() OVER (ORDER BY {_ORDER}) AS place")})
  GROUP BY of_run, CAST("sample_index" AS TEXT)""",
    f"""INSERT INTO step_figures (run, {_names(_STEP)}, {_names(_OF_GROUPS)})
  SELECT * FROM (SELECT of_run, {_select(_STEP)} FROM ({_members(_STEP)}) GROUP BY of_run)
  JOIN (SELECT run AS of_run, {_select(_OF_GROUPS)} FROM group_figures
    WHERE run IN (SELECT id FROM step_runs WHERE {_OF_STEP}) GROUP BY run) USING (of_run)""",
)
"""Compute the figures of one step: first what groups compare with, then its groups, then the other figures."""


def _update(figures: Mapping[str, str]) -> str:
    return ", ".join(f'"{name}" = {sql}' for name, sql in figures.items())


_JUDGE: Final = (
    'UPDATE step_runs SET "scale_lowest" = :lowest, "scale_highest" = :highest WHERE id = :run',
    f"UPDATE group_figures SET {_update(_GROUP_BY_SCALE)} WHERE run = :run",
    f"UPDATE step_figures SET {_update(_STEP_BY_SCALE)} WHERE run = :run",
)
"""Compare the rewards of one step with the scale of its run."""
_CLEAR: Final = (
    *(
        f"DELETE FROM {table} WHERE run IN (SELECT id FROM step_runs WHERE {_OF_STEP})"
        for table in ("step_figures", "group_figures")
    ),
    f"DELETE FROM step_runs WHERE {_OF_STEP}",
    f"DELETE FROM changed_steps WHERE {_OF_STEP}",
    "INSERT OR IGNORE INTO unjudged VALUES (1)",
)

_NAMED: Final = """CASE WHEN run."run_id" IS NULL AND EXISTS (
    SELECT 1 FROM step_runs k WHERE k."run_id" = run."sole_run_id" AND k."experiment_name" IS run."experiment_name")
  THEN run."sole_run_id" ELSE run."run_id" END"""
"""The run of a step that only one of several runs has is named too, so that a run's steps are one series."""
_STEP_ROWS: Final = f"SELECT {STEPS.select(_NAMED)} FROM step_runs run JOIN step_figures f ON f.run = run.id"
_GROUP_ROWS: Final = f"SELECT {GROUPS.select(_NAMED)} FROM step_runs run JOIN group_figures f ON f.run = run.id"
_RANGES: Final = f"""SELECT run.id, run."experiment_name", run."validate", {_NAMED},
    run."reward_lowest", run."reward_highest", run."scale_lowest", run."scale_highest" FROM step_runs run"""
_RUN_ID: Final = f"""SELECT run.id FROM step_runs run
  WHERE run."step" IS ? AND run."validate" = ? AND run."experiment_name" IS ? AND {_NAMED} IS ?"""
_OF_RUN: Final = f"SELECT t.rowid FROM {_MEMBERS} WHERE run.id IN ({_RUN_ID})"
_IDS: Final = "SELECT t.trace_id FROM trajectories t"
_STEP_ORDER: Final = 'run."step" IS NULL, run."step", run."validate", run."experiment_name", run."start_time", run.id'
_PROMPT_ORDER: Final = 'f."sample_index" IS NULL, f."sample_index"'

DDL: Final = f"""{schema.DDL}{spans.DDL}
CREATE TABLE step_runs (id INTEGER PRIMARY KEY, is_split, {_names(_RUN)});
CREATE INDEX step_runs_by_step ON step_runs ("step", "validate");
CREATE INDEX step_runs_by_run ON step_runs ("run_id");
CREATE TABLE group_figures (run, {_names(_GROUP)}, {_names(_GROUP_BY_SCALE)});
CREATE INDEX group_figures_by_run ON group_figures (run);
CREATE INDEX group_figures_by_prompt ON group_figures ("sample_index");
CREATE TABLE step_figures (run INTEGER PRIMARY KEY, {_names(_STEP)}, {_names(_OF_GROUPS)},
  "solved", "zero_variance" DEFAULT '{{}}');
CREATE TABLE unjudged (one INTEGER PRIMARY KEY);
CREATE VIEW steps AS {_STEP_ROWS};
CREATE VIEW groups AS {_GROUP_ROWS};
"""
VERSION: Final = f"{__version__} {crc32((DDL + ''.join((*_COMPUTE, *_JUDGE))).encode()):08x}"
"""A catalog of another version is made again: its columns have other names or meanings."""


def create(connection: sqlite3.Connection) -> None:
    """Make the tables and views of a catalog in an empty database."""
    connection.executescript(DDL)
    prepare(connection)


def refresh(connection: sqlite3.Connection) -> None:
    """Compute the figures of the steps that have changed. The caller commits.

    Args:
        connection: The catalog, which `prepare` has given our functions.
    """
    for step, validate in connection.execute('SELECT "step", "validate" FROM changed_steps').fetchall():
        refresh_step(connection, step, validate)
    judge(connection)


def judge(connection: sqlite3.Connection, scales: Mapping[tuple[str | None, bool], Scale | None] | None = None) -> None:
    """Compare rewards with the scale of their run, in each step whose run has another scale than before.

    Args:
        connection: The catalog. The caller commits.
        scales: The scales by experiment and validation; by default the catalog has them.
    """
    runs: dict[tuple[Any, ...], list[Sequence[Any]]] = {}
    for run, *rest in connection.execute(_RANGES):
        runs.setdefault(tuple(rest[:3]), []).append((run, *rest[3:]))
    for (experiment, validate, _), found in runs.items():
        own = scale_of((each[1], each[2]) for each in found)
        scale = own if scales is None else scales.get((experiment, bool(validate)), own)
        ends = (None, None) if scale is None else tuple(scale)
        for run, _low, _high, *known in found:
            if tuple(known) != ends:
                for statement in _JUDGE:
                    connection.execute(statement, {"run": run, "lowest": ends[0], "highest": ends[1]})
    connection.execute("DELETE FROM unjudged")


def is_judged(connection: sqlite3.Connection) -> bool:
    """Return False if the figures of a step were computed, and `judge` was not called since."""
    return connection.execute("SELECT 1 FROM unjudged").fetchone() is None


def refresh_step(connection: sqlite3.Connection, step: int | None, validate: bool) -> None:
    """Compute the figures of a step, as `refresh` does, but for those that `judge` adds."""
    spans.empty_step(connection, step, validate)
    for statement in (*_CLEAR, *_COMPUTE):
        connection.execute(statement, {"step": step, "validate": validate})


def steps(connection: sqlite3.Connection, where: str = "", arguments: Sequence[Any] = ()) -> list[StepSummary]:
    """Return the steps in order, training before validation, one for each run of each experiment.

    Args:
        connection: The catalog.
        where: The condition in SQL, of columns of `run` and `f`; empty for all.
        arguments: The values of its question marks.
    """
    condition = f" WHERE {where}" if where else ""
    return list(STEPS.summaries(connection.execute(f"{_STEP_ROWS}{condition} ORDER BY {_STEP_ORDER}", arguments)))


def groups(connection: sqlite3.Connection, where: str = "", arguments: Sequence[Any] = ()) -> list[GroupSummary]:
    """Return groups in the order of steps, runs and prompts.

    Args:
        connection: The catalog.
        where: The condition in SQL, of columns of `run` (the step's) and `f` (the group's); empty for all.
        arguments: The values of its question marks.
    """
    condition = f" WHERE {where}" if where else ""
    order = f"{_STEP_ORDER}, {_PROMPT_ORDER}"
    return list(GROUPS.summaries(connection.execute(f"{_GROUP_ROWS}{condition} ORDER BY {order}", arguments)))


def prompts_of(connection: sqlite3.Connection, identity: Sequence[Any]) -> list[int | str | None]:
    """Return the prompts of a step's groups in order.

    Args:
        connection: The catalog.
        identity: The step, as its summary has it.
    """
    select = f'SELECT f."sample_index" FROM group_figures f WHERE f.run IN ({_RUN_ID}) ORDER BY {_PROMPT_ORDER}'
    rows = connection.execute(select, identity)
    return [prompt for (prompt,) in rows]


def trajectories_of(connection: sqlite3.Connection, step: StepSummary) -> list[TrajectorySummary]:
    """Return the trajectories of a step that `steps` gave, in the order of prompts and rollouts."""
    return schema.load(connection, f"t.rowid IN ({_OF_RUN})", step.identity, _ORDER)


def facts_of(connection: sqlite3.Connection, step: StepSummary, names: Sequence[str]) -> list[list[Any]]:
    """Return these facts of the same trajectories, in the same order."""
    return schema.facts_of(connection, names, f"t.rowid IN ({_OF_RUN})", step.identity, _ORDER)


def shapes_of(connection: sqlite3.Connection, step: StepSummary) -> dict[str, Sequence[Shape]]:
    """Return the shapes that are kept of the same trajectories, by trace id."""
    select = f"SELECT trace_id, shapes FROM shapes JOIN trajectories t USING (trace_id) WHERE t.rowid IN ({_OF_RUN})"
    return {trace_id: orjson.loads(shapes) for trace_id, shapes in connection.execute(select, step.identity)}


class SummarisedRun(NamedTuple):
    """One run's trajectories in a step.

    Args:
        trajectories: The trajectories, in the order of prompts and rollouts.
        groups: Their groups, in the order of prompts.
        summary: Their summary.
    """

    trajectories: Sequence[TrajectorySummary]
    groups: Sequence[GroupSummary]
    summary: StepSummary


def summarise_runs(
    trajectories: Iterable[TrajectorySummary],
    scales: Mapping[tuple[str | None, bool], Scale | None] | None = None,
) -> list[SummarisedRun]:
    """Return the summaries of each step and run that trajectories are of, in order.

    Args:
        trajectories: The trajectories.
        scales: The scales of rewards by experiment and validation; by default these trajectories have them.
    """
    by_id = {each.trace_id: each for each in trajectories}
    with closing(sqlite3.connect(":memory:")) as connection:
        create(connection)
        schema.insert(connection, by_id.values())
        refresh(connection)
        if scales is not None:
            judge(connection, scales)
        found = []
        for step in steps(connection):
            ids = connection.execute(f"{_IDS} WHERE t.rowid IN ({_OF_RUN}) ORDER BY {_ORDER}", step.identity)
            of_run = groups(connection, f"run.id IN ({_RUN_ID})", step.identity)
            found.append(SummarisedRun([by_id[trace_id] for (trace_id,) in ids], of_run, step))
        return found
