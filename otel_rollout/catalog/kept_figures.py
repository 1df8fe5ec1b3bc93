"""The figures of steps and groups that a catalog keeps until their trajectories change."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import orjson

from otel_rollout.catalog.figures import NEEDED, figures_of, judge, scales_of, series_of
from otel_rollout.catalog.group_summary import GroupSummary
from otel_rollout.catalog.records import GROUPS, STEPS, load
from otel_rollout.catalog.step_summary import StepIdentity, StepSummary
from otel_rollout.folder.selection import Selection
from otel_rollout.folder.trace_files import EVERYTHING

_OF_STEP: Final = "step IS ? AND validate = ?"
OF_RUN: Final = f"{_OF_STEP} AND experiment_name IS ? AND run_id IS ?"
_STEP_ORDER: Final = "step IS NULL, step, validate, experiment_name, start_time, rowid"
ORDER: Final = "t.sample_index IS NULL, t.sample_index, t.rollout_n IS NULL, t.rollout_n, t.start_time, t.rowid"
"""The order of a step's trajectories: by prompt and rollout, numbers before text, what has none last."""


def refresh(connection: sqlite3.Connection, selection: Selection = EVERYTHING) -> None:
    """Compute the figures of the steps that a selection takes, if they have changed, each in a transaction."""
    for step, validate in connection.execute("SELECT step, validate FROM changed_steps").fetchall():
        if selection.takes_step(step, validate=bool(validate)):
            connection.execute("BEGIN IMMEDIATE")
            _refresh_step(connection, step, validate)
            connection.execute("COMMIT")
    # Not by what has changed: a reader can be killed before it judges what it has computed.
    if connection.execute("SELECT 1 FROM unjudged").fetchone() is not None:
        connection.execute("BEGIN IMMEDIATE")
        judge_steps(connection)
        connection.execute("COMMIT")


def _refresh_step(connection: sqlite3.Connection, step: int | None, validate: bool) -> None:
    """Compute the figures of a step, but for those that `judge_steps` adds."""
    empty_step(connection, step, validate)
    for table in ("steps", "groups", "signals", "changed_steps"):
        connection.execute(f"DELETE FROM {table} WHERE {_OF_STEP}", (step, validate))
    attempts = "SELECT experiment_name, run_id, max(attempt) FROM processes"
    attempts += f" WHERE {_OF_STEP} AND NOT overtaken GROUP BY 1, 2"
    known = {(name, run_id): attempt for name, run_id, attempt in connection.execute(attempts, (step, validate))}
    for each in figures_of(load(connection, f"{_OF_STEP} AND NOT overtaken", (step, validate), names=NEEDED)):
        run = each.summary.experiment_name, each.summary.run_id or each.summary.sole_run_id
        connection.execute(STEPS.insert, STEPS.row_of(replace(each.summary, attempt=known.get(run))))
        connection.executemany(GROUPS.insert, map(GROUPS.row_of, each.groups))
    connection.execute("INSERT OR IGNORE INTO unjudged VALUES (1)")


def empty_step(connection: sqlite3.Connection, step: int | None, validate: bool) -> None:
    """Remove the rows of a step: it has changed. The caller commits."""
    for table in ("kept_columns", "filled_steps"):
        connection.execute(f"DELETE FROM {table} WHERE {_OF_STEP}", (step, validate))


class _Range(NamedTuple):
    """The columns that a step is judged by, with its row."""

    row: int
    step: int | None
    validate: bool
    experiment_name: str | None
    run_id: str | None
    sole_run_id: str | None
    reward_lowest: float | None
    reward_highest: float | None
    scale_lowest: float | None
    scale_highest: float | None


def judge_steps(connection: sqlite3.Connection) -> None:
    """Name the runs of steps, and compare their rewards with the scale of the run. The caller commits.

    Only the steps whose run has another name or scale than before are written.
    """
    select = f"SELECT rowid, {', '.join(_Range._fields[1:])} FROM steps ORDER BY {_STEP_ORDER}"
    known: Any = [_Range(*row) for row in connection.execute(select)]
    runs = Counter(each[1:4] for each in known)
    several = {(each.experiment_name, each.run_id) for each in known if runs[each[1:4]] > 1}
    # The only run of a step has its name from other steps: a run's steps are one series.
    own = (each.sole_run_id if (each.experiment_name, each.sole_run_id) in several else None for each in known)
    named = [each if runs[each[1:4]] > 1 else each._replace(run_id=name) for each, name in zip(known, own, strict=True)]
    scales = scales_of(named)
    for before, each in zip(known, named, strict=True):
        scale = scales[series_of(each)]
        if before.run_id == each.run_id and before[-2:] == (scale or (None, None)):
            continue
        [summary] = STEPS.read(connection.execute("SELECT * FROM steps WHERE rowid = ?", (each.row,)))
        groups = connection.execute(f"SELECT rowid, * FROM groups WHERE {OF_RUN}", summary.identity).fetchall()
        summary, judged = judge(summary, list(GROUPS.read(row[1:] for row in groups)), each.run_id, scale)
        connection.execute(
            "UPDATE steps SET run_id = ?, scale_lowest = ?, scale_highest = ?, solved = ?, zero_variance = ?"
            " WHERE rowid = ?",
            (
                *(summary.run_id, summary.scale_lowest, summary.scale_highest, summary.solved),
                *(orjson.dumps(summary.zero_variance).decode(), each.row),
            ),
        )
        connection.executemany(
            "UPDATE groups SET run_id = ?, solved = ?, zero_variance = ? WHERE rowid = ?",
            (
                (group.run_id, group.solved, group.zero_variance, row[0])
                for row, group in zip(groups, judged, strict=True)
            ),
        )
    connection.execute("DELETE FROM unjudged")


def steps(connection: sqlite3.Connection, where: str = "1", arguments: Sequence[Any] = ()) -> list[StepSummary]:
    """Return the steps in order, training before validation, one for each run of each experiment.

    Args:
        connection: The catalog.
        where: The condition in SQL.
        arguments: The values of its question marks.
    """
    return list(STEPS.read(connection.execute(f"SELECT * FROM steps WHERE {where} ORDER BY {_STEP_ORDER}", arguments)))


def groups(connection: sqlite3.Connection, where: str = "1", arguments: Sequence[Any] = ()) -> list[GroupSummary]:
    """Return groups in the order of steps, runs and prompts; the arguments are the same as for `steps`."""
    order = "step IS NULL, step, validate, rowid"
    return list(GROUPS.read(connection.execute(f"SELECT * FROM groups WHERE {where} ORDER BY {order}", arguments)))


def members_of(step: StepIdentity) -> tuple[str, tuple[Any, ...]]:
    """Return the condition in SQL of a step's trajectories, and its values."""
    if step.run_id is not None:
        return f"{OF_RUN} AND NOT overtaken", step.identity
    # The only one has the trajectories of all processes.
    return f"{_OF_STEP} AND experiment_name IS ? AND NOT overtaken", step.identity[:3]
