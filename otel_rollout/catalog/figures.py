"""The figures of steps and groups, which SQL computes of their trajectories, and a catalog keeps until these change."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from operator import itemgetter
from typing import Any, Final

import orjson

from otel_rollout.catalog.group_summary import GroupSummary
from otel_rollout.catalog.records import GROUPS, STEPS, insert
from otel_rollout.catalog.reward_scale import Scale, scale_of
from otel_rollout.catalog.sql import add_functions, aggregate, counts_of
from otel_rollout.catalog.step_figures import mean_of_known
from otel_rollout.catalog.step_summary import MEMBERS, StepIdentity, StepSummary
from otel_rollout.catalog.tables import COLUMNS, attach, create
from otel_rollout.facts.amounts import is_same_reward, mean_of, sum_of
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.selection import Selection
from otel_rollout.folder.trace_files import EVERYTHING

_OF_STEP: Final = "step IS ? AND validate = ?"
OF_RUN: Final = f"{_OF_STEP} AND experiment_name IS ? AND run_id IS ?"
_STEP_ORDER: Final = "step IS NULL, step, validate, experiment_name, start_time, rowid"
ORDER: Final = "t.sample_index IS NULL, t.sample_index, t.rollout_n IS NULL, t.rollout_n, t.start_time, t.rowid"
"""The order of a step's trajectories: by prompt and rollout, numbers before text, what has none last."""
_RUNS: Final = f"""
SELECT experiment_name, run_id FROM trajectories WHERE {_OF_STEP} AND NOT overtaken
  GROUP BY 1, 2 ORDER BY 1, min(start_time)
"""
_WITH_SAME_ROLLOUTS: Final = f"""
SELECT DISTINCT experiment_name FROM trajectories
  WHERE {_OF_STEP} AND NOT overtaken AND sample_index IS NOT NULL AND rollout_n IS NOT NULL
  GROUP BY experiment_name, CAST(sample_index AS TEXT), CAST(rollout_n AS TEXT)
  HAVING count(DISTINCT ifnull(run_id, 0)) > 1
"""
_NAMED: Final = """
WITH known AS (SELECT rowid, *, count(*) OVER (PARTITION BY step, validate, experiment_name) AS runs FROM steps)
SELECT rowid, CASE WHEN runs > 1 THEN run_id
    WHEN (ifnull(experiment_name, 0), sole_run_id) IN
      (SELECT ifnull(experiment_name, 0), run_id FROM known WHERE runs > 1) THEN sole_run_id END,
    reward_lowest, reward_highest, scale_lowest, scale_highest, step, validate, experiment_name, run_id
  FROM known
"""
"""The steps with the names of their runs: the only run of a step has its name from other steps of it."""
_STEP: Final = f"""
INSERT INTO steps SELECT {", ".join(str(each.of) for each in COLUMNS["steps"])} FROM trajectories t WHERE {MEMBERS}
"""
_GROUPS: Final = f"""
INSERT INTO groups SELECT {", ".join(str(each.of) for each in COLUMNS["groups"])}
  FROM (SELECT t.rowid AS row, row_number() OVER (ORDER BY {ORDER}) AS place FROM trajectories t WHERE {MEMBERS})
    CROSS JOIN trajectories t ON t.rowid = row
  GROUP BY CAST(sample_index AS TEXT) ORDER BY min(place)
"""


def refresh(
    connection: sqlite3.Connection,
    selection: Selection = EVERYTHING,
    scales: Mapping[tuple[str | None, bool], Scale | None] | None = None,
) -> None:
    """Compute the figures of the steps that a selection takes, if they have changed, each in a transaction.

    Args:
        connection: The catalog.
        selection: The steps.
        scales: The scales of rewards by experiment and validation; by default the steps of the catalog have them.
    """
    changed = connection.execute("SELECT step, validate FROM changed_steps").fetchall()
    if changed:
        add_functions(connection)
        for name, of_values in _OF_COLUMN.items():
            connection.create_aggregate(name, 1, aggregate(1, of_values))
        connection.create_aggregate("in_order", 2, aggregate(2, _in_order, keeps_null=True))
        connection.create_aggregate("first_in_order", 2, aggregate(2, lambda placed: min(placed)[1]))
        connection.create_function("is_same_reward", 2, is_same_reward, deterministic=True)
        # Thousands of trajectories call the same tools as often.
        connection.create_function("sum_at", 2, lru_cache(1024)(_sum_at), deterministic=True)
    for step, validate in changed:
        if selection.takes_step(step, validate=bool(validate)):
            connection.execute("BEGIN IMMEDIATE")
            _refresh_step(connection, step, validate)
            connection.execute("COMMIT")
    # Not by what has changed: a reader can be killed before it judges what it has computed.
    if connection.execute("SELECT 1 FROM unjudged").fetchone() is not None:
        connection.execute("BEGIN IMMEDIATE")
        judge_steps(connection, scales or {})
        connection.execute("COMMIT")


def _refresh_step(connection: sqlite3.Connection, step: int | None, validate: bool) -> None:
    """Compute the figures of a step, but for those that `judge_steps` adds.

    Its runs are distinguished if two of them have a rollout of the same number of the same prompt. Processes that share
    no `OTEL_ROLLOUT_RUN_ID` have an id each: together they are one run.
    """
    of_step = step, validate
    for table in ("steps", "groups", "signals", "changed_steps"):
        connection.execute(f"DELETE FROM {table} WHERE {_OF_STEP}", of_step)
    runs = connection.execute(_RUNS, of_step).fetchall()
    several = len(runs) > len(dict(runs))
    apart = {name for (name,) in connection.execute(_WITH_SAME_ROLLOUTS, of_step)} if several else ()
    for name, run_id in dict.fromkeys((name, run_id if name in apart else None) for name, run_id in runs):
        values = {"step": step, "validate": validate, "experiment_name": name, "run_id": run_id}
        for insertion in (_GROUPS, _STEP):
            connection.execute(insertion, {**values, "is_sole": name not in apart})
    connection.execute("INSERT OR IGNORE INTO unjudged VALUES (1)")


def judge_steps(connection: sqlite3.Connection, scales: Mapping[tuple[str | None, bool], Scale | None]) -> None:
    """Name the runs of steps, and compare their rewards with the scale of the run. The caller commits.

    Only the steps whose run has another name or scale than before are written.

    Args:
        connection: The catalog.
        scales: The scales of rewards by experiment and validation, where they are known.
    """
    known = connection.execute(_NAMED).fetchall()
    ranges: dict[Any, list[tuple[float | None, float | None]]] = {}
    for _, name, *rewards, _, _, _, validate, experiment, _ in known:
        ranges.setdefault((experiment, validate, name), []).append(tuple(rewards))
    found = {series: scale_of(of_steps) for series, of_steps in ranges.items()}
    for row, name, _, _, lowest, highest, *step in known:
        _, validate, experiment, run_id = step
        scale = scales.get((experiment, bool(validate)), found[experiment, validate, name])
        if (run_id, lowest, highest) != (name, *(scale or (None, None))):
            _judge(connection, row, step, name, scale)
    connection.execute("DELETE FROM unjudged")


def _judge(
    connection: sqlite3.Connection, row: int, step: Sequence[Any], run_id: str | None, scale: Scale | None
) -> None:
    select = f"SELECT rowid, rewards, reward_std FROM groups WHERE {OF_RUN}"
    all_solved: list[bool] = []
    variances: list[str] = []
    judged: list[tuple[Any, ...]] = []
    for group, text, deviation in connection.execute(select, step):
        rewards = [reward for reward in orjson.loads(text) if reward is not None]
        solved = [] if scale is None else list(map(scale.is_solved, rewards))
        variance = None if scale is None or deviation is None else scale.zero_variance(rewards)
        judged.append((run_id, mean_of_known(solved), variance, group))
        all_solved += solved
        variances += [] if variance is None else [variance]
    connection.executemany("UPDATE groups SET run_id = ?, solved = ?, zero_variance = ? WHERE rowid = ?", judged)
    of_step = run_id, *(scale or (None, None)), mean_of_known(all_solved), orjson.dumps(counts_of(variances)).decode()
    columns = "run_id = ?, scale_lowest = ?, scale_highest = ?, solved = ?, zero_variance = ?"
    connection.execute(f"UPDATE steps SET {columns} WHERE rowid = ?", (*of_step, row))


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


def catalog_of(
    trajectories: Iterable[TrajectorySummary],
    scales: Mapping[tuple[str | None, bool], Scale | None] | None = None,
) -> sqlite3.Connection:
    """Return a catalog in memory, with the figures of these trajectories.

    Args:
        trajectories: The trajectories.
        scales: See `refresh`.
    """
    connection = sqlite3.connect(":memory:", isolation_level=None)
    create(connection)
    attach(connection)
    insert(connection, trajectories)
    refresh(connection, scales=scales)
    return connection


def _end_without_last(ends: Sequence[int]) -> int | None:
    """Return the end of all but the last 5 percent, and of all but one at least; None of fewer than 8."""
    last = max(len(ends) // 20, len(ends) >= 8)
    return sorted(ends)[-1 - last] if last else None


def _in_order(values: Sequence[tuple[int, Any]]) -> str:
    return orjson.dumps([value for _, value in sorted(values, key=itemgetter(0))]).decode()


def _duplicates(turn_hashes: Sequence[str]) -> int:
    # A turn without a hash is like none.
    known = [text for text in turn_hashes if text != "[]" and '""' not in text]
    return len(known) - len(set(known))


def _first_divergence(turn_hashes: Sequence[str]) -> int | None:
    """Return the first turn that differs: a missing turn does, a turn without a hash doesn't."""
    known = [hashes for hashes in map(orjson.loads, turn_hashes) if any(hashes)]
    if not known or all(each == known[0] for each in known):
        return None
    for turn, said in enumerate(zip_longest(*known), 1):
        if len(set(said) - {""}) > 1 or (None in said and set(said) != {None}):
            return turn
    return None


def _means_by_name(parts: Sequence[str]) -> str:
    found: dict[str, list[float]] = {}
    for text in parts:
        for name, value in orjson.loads(text).items():
            found.setdefault(name, []).append(value)
    return orjson.dumps({name: mean_of(values) for name, values in found.items()}).decode()


def _tool_counts(tools: Sequence[str]) -> str:
    """Return the calls and errors by tool, the busiest tool first."""
    sums: dict[str, tuple[int, int]] = {}
    for text, number in Counter(tools).items():
        for name, (calls, errors) in orjson.loads(text).items():
            before = sums.get(name, (0, 0))
            sums[name] = sum_of((before[0], number * calls)), sum_of((before[1], number * errors))
    return orjson.dumps(dict(sorted(sums.items(), key=lambda tool: (-tool[1][0], tool[0])))).decode()


def _sum_at(tools: str, at: int) -> int:
    return sum_of(counts[at] for counts in orjson.loads(tools).values())


_OF_COLUMN: Final[Mapping[str, Callable[[list[Any]], Any]]] = {
    "means_by_name": _means_by_name,
    "tool_counts": _tool_counts,
    "end_without_last": _end_without_last,
    "duplicates": _duplicates,
    "first_divergence": _first_divergence,
}
"""Functions of the values of a column, which only figures need; questions have those in `sql`."""
