"""Finds the attempts of resumed runs by the times and the training steps of the processes of an experiment.

Processes that ran at the same time are one start of training. A start goes on with the latest run of its experiment
and project that began at an earlier step, or that has its run id. If it rolls out again what the run has done, it is
the run's next attempt: of each step from there on the later attempt counts, and of a validation that both have.
Processes that share a step out, or do what a killed worker has left, are of one attempt.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple

from otel_rollout.catalog.tables import MARK
from otel_rollout.text.plain_text import counted

_Key = tuple[Any, ...]
"""The project, the experiment, the run id and the worker of a process."""

_CHANGED: Final = """
FROM changed_steps c WHERE c.step IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM processes p WHERE p.step = c.step AND p.validate = c.validate)
"""
_COUNT: Final = f"""
INSERT INTO processes
  SELECT step, validate, project_name, experiment_name, process_run_id, worker, min(start_time), max(end_time),
    count(*), run_id, attempt, overtaken
  FROM (SELECT c.step AS of_step, c.validate AS of_validate {_CHANGED})
    CROSS JOIN trajectories ON step = of_step AND validate = of_validate
  GROUP BY step, validate, project_name, experiment_name, process_run_id, worker, run_id, attempt, overtaken
"""
_PROCESSES: Final = """
WITH known AS (
  SELECT project_name, experiment_name, process_run_id, worker, min(start_time) AS began, max(end_time) AS ended,
      min(CASE WHEN NOT validate THEN step END) AS first_step, max(CASE WHEN NOT validate THEN step END) AS last_step
    FROM processes GROUP BY 1, 2, 3, 4),
placed AS (
  SELECT *, began > max(ended) OVER (PARTITION BY project_name, experiment_name ORDER BY began
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS is_alone
    FROM known)
SELECT project_name, experiment_name, total(is_alone) OVER (PARTITION BY project_name, experiment_name ORDER BY began),
    process_run_id, worker, first_step, last_step
  FROM placed ORDER BY project_name, experiment_name, began
"""
"""The processes of each experiment by their start of training: a new one begins when all others have ended."""


class Overtaken(NamedTuple):
    """Trajectories of an attempt that don't count, as a later one has overtaken them.

    Args:
        experiment_name: The experiment.
        run_id: The run.
        attempt: The attempt, from 1.
        first: Their first step.
        last: Their last.
        trajectories: Their number.
    """

    experiment_name: str | None
    run_id: str | None
    attempt: int
    first: int
    last: int
    trajectories: int

    @property
    def note(self) -> str:
        """A sentence on what is left out."""
        steps = f"step {self.first}" if self.first == self.last else f"steps {self.first} to {self.last}"
        run = f"the run {self.experiment_name}" if self.experiment_name else "the run"
        return (
            f"{run} was resumed: {counted(self.trajectories, 'trajectory')} of attempt "
            f"{self.attempt}, {steps}, left out, as a later attempt has overtaken them (--attempt {self.attempt})"
        )


def overtaken_of(connection: sqlite3.Connection) -> list[Overtaken]:
    """Return the overtaken trajectories of each attempt, in the order of runs."""
    rows = connection.execute(
        "SELECT experiment_name, run_id, attempt, min(step), max(step), sum(trajectories) FROM processes"
        " WHERE overtaken GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
    return list(map(Overtaken._make, rows))


@dataclass
class _Run:
    """The processes of each attempt of a run, its first step, and the last one that the last attempt has come to."""

    first: int
    last: int
    attempts: list[list[_Key]] = field(default_factory=lambda: [[]])
    resumed_at: list[int] = field(default_factory=list)
    """The step at which each attempt but the first has begun."""
    ids: set[str] = field(default_factory=set)


def find_attempts(connection: sqlite3.Connection, *, is_whole: bool) -> bool:
    """Note the attempts of trajectories, if some have changed.

    Args:
        connection: The catalog.
        is_whole: True if it has all steps. Several starts of training can't be distinguished by some of them.

    Returns:
        False if that needs all steps.
    """
    if connection.execute(f"SELECT 1 {_CHANGED} LIMIT 1").fetchone() is None:
        return True
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_COUNT)
    runs, starts = _runs(connection)
    if starts > 1 and not is_whole:
        connection.execute("ROLLBACK")
        return False
    _note(connection, [run for run in runs if len(run.attempts) > 1])
    connection.execute("COMMIT")
    return True


def _runs(connection: sqlite3.Connection) -> tuple[list[_Run], int]:
    """Return the runs of all experiments, and the most starts of one experiment."""
    found: list[_Run] = []
    most = 0
    for _, of_experiment in groupby(connection.execute(_PROCESSES).fetchall(), itemgetter(0, 1)):
        runs: list[_Run] = []
        for number, (_, of_start) in enumerate(groupby(of_experiment, itemgetter(2)), 1):
            most = max(most, number)
            processes = list(of_start)
            keys = [(project, name, run_id, worker) for project, name, _, run_id, worker, _, _ in processes]
            steps = [step for *_, first, last in processes if first is not None for step in (first, last)]
            # Only training resumes a run: a checkpoint may be validated at any time.
            if steps:
                _go_on(connection, runs, keys, min(steps), max(steps))
        found += runs
    return found, most


def _go_on(connection: sqlite3.Connection, runs: list[_Run], keys: Sequence[_Key], first: int, last: int) -> None:
    """Add the processes of a start of training to the run that it goes on with, or to a new one."""
    of_start = {run_id for _, _, run_id, _ in keys if run_id is not None}
    same = [run for run in runs if of_start & run.ids]
    run = next(reversed(same or [run for run in runs if run.first < first]), None)
    if run is not None and first <= run.last:
        is_mixed, is_again = _compare(connection, run, keys, max(first, run.first))
        if is_mixed:
            run = None
        elif run.first < first < run.last if is_again is None else is_again:
            run.attempts.append([])
            run.resumed_at.append(first)
            run.last = last
    if run is None:
        run = _Run(first, last)
        runs.append(run)
    run.attempts[-1] += keys
    run.ids |= of_start
    run.first, run.last = min(run.first, first), max(run.last, last)


def _compare(connection: sqlite3.Connection, run: _Run, keys: Sequence[_Key], first: int) -> tuple[bool, bool | None]:
    """Compare the rollouts of a run and of a start in the first step, from one on, that both have.

    Returns:
        True if one of the two has finished a rollout under several run ids: they are runs at the same time; and True if
        the start has finished some, and has at least half of the finished ones again. None if it has as many, but
        rollouts have no numbers.
    """
    project, experiment, *_ = keys[0]
    rows = connection.execute(
        "SELECT step, sample_index, rollout_n, has_root, process_run_id, worker FROM trajectories"
        " WHERE step BETWEEN ? AND ? AND NOT validate AND experiment_name IS ? ORDER BY step",
        (first, run.last, experiment),
    )
    place_of = {key: place for place, of_attempt in enumerate([*run.attempts, keys]) for key in of_attempt}
    for _, of_step in groupby(rows, itemgetter(0)):
        # By attempt, the start last: each rollout by sample and number, None for those without.
        sides: dict[int, list[tuple[Any, bool, str | None]]] = {}
        for _, sample, rollout, has_root, *process in of_step:
            if (place := place_of.get((project, experiment, *process))) is not None:
                one = None if sample is None or rollout is None else (str(sample), str(rollout))
                sides.setdefault(place, []).append((one, has_root, process[0]))
        now = sides.pop(len(run.attempts), [])
        if not now or not sides:
            continue
        before = sides[max(sides)]
        is_mixed = _is_mixed(before) or _is_mixed(now)
        done, done_now = ([one for one, has_root, _ in side if has_root] for side in (before, now))
        if not done_now:
            return is_mixed, False
        all_before, all_now = ({one for one, _, _ in side} for side in (before, now))
        if all_before == all_now == {None}:
            return is_mixed, None if 2 * len(done_now) >= len(done) else False
        again = set(done or all_before) - {None}
        return is_mixed, bool(again) and 2 * len(again & all_now) >= len(again)
    return False, False


def _is_mixed(rollouts: Iterable[tuple[Any, bool, str | None]]) -> bool:
    finished = {(one, run_id) for one, has_root, run_id in rollouts if has_root and one is not None}
    return len(finished) > len({one for one, _ in finished})


def _note(connection: sqlite3.Connection, resumed: Sequence[_Run]) -> None:
    """Write the runs and attempts of trajectories, where they are others than before."""
    of_process = {
        key: (place, run.attempts[0][0][2], number, min(run.resumed_at[number - 1 :], default=inf))
        for place, run in enumerate(resumed)
        for number, keys in enumerate(run.attempts, 1)
        for key in keys
    }
    rows = connection.execute(
        "SELECT rowid, step, validate, project_name, experiment_name, process_run_id, worker, run_id, attempt,"
        " overtaken FROM processes WHERE ? OR attempt IS NOT NULL",
        (bool(resumed),),
    ).fetchall()
    latest: dict[tuple[int, int], int] = {}
    """The last attempt that has validated a step of a run."""
    for _, step, validate, *key, _, _, _ in rows:
        if validate and (found := of_process.get(tuple(key))) is not None:
            latest[found[0], step] = max(found[2], latest.get((found[0], step), 0))
    for row, step, validate, *key, run_id, attempt, overtaken in rows:
        now: tuple[str | None, int | None, bool] = (key[2], None, False)
        if (found := of_process.get(tuple(key))) is not None:
            place, name, number, until = found
            now = name, number, step >= until or bool(validate and latest[place, step] > number)
        if now != (run_id, attempt, bool(overtaken)):
            connection.execute(
                "UPDATE processes SET run_id = ?, attempt = ?, overtaken = ? WHERE rowid = ?", (*now, row)
            )
            connection.execute(
                "UPDATE trajectories SET run_id = ?, attempt = ?, overtaken = ? WHERE step = ? AND validate = ?"
                " AND project_name IS ? AND experiment_name IS ? AND process_run_id IS ? AND worker = ?",
                (*now, step, validate, *key),
            )
            connection.execute(MARK, (step, validate))
