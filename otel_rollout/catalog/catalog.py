"""The catalog of trace folders, as readers ask it: each question sees what the folders have now."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import local
from typing import Any, Final, TypeAlias, TypeVar

import orjson

from otel_rollout.catalog.attempts import find_attempts
from otel_rollout.catalog.database import Database
from otel_rollout.catalog.figures import refresh
from otel_rollout.catalog.filling import (
    SECONDS_UNTIL_PROGRESS,
    Found,
    OnProblem,
    OnProgress,
    fill,
    has_other_processes,
    parts_of,
    problems_of,
)
from otel_rollout.catalog.records import load
from otel_rollout.catalog.step_summary import StepIdentity
from otel_rollout.catalog.tables import MARK
from otel_rollout.errors import NoTracesError, UnreadableTraceError
from otel_rollout.facts.table import INFERRED, TrajectorySummary
from otel_rollout.folder.reader import RecordedTrajectory, main_row
from otel_rollout.folder.selection import Selection
from otel_rollout.folder.stored_file import Part, ReadProblem
from otel_rollout.folder.trace_files import EVERYTHING
from otel_rollout.guard.clock import monotonic

Answered = TypeVar("Answered")

StepKey: TypeAlias = tuple[int | None, bool]
"""A step, and whether it is a validation pass."""
Seen: TypeAlias = "dict[tuple[sqlite3.Connection, Selection], Found]"
"""The files that were found in a look, for each connection: a new catalog is empty."""
INFERRED_AT_ONCE: Final = 512
"""The trajectories whose inferred facts are kept in one transaction."""
_ATTEMPTS: Final = 3
"""The times that a trajectory is read for them, if it changes while it is."""
IN_STEP: Final = "t.step IS ? AND t.validate = ?"
OF_IDS: Final = "t.trace_id IN (SELECT value FROM json_each(?))"


class Catalog:
    """The catalog of trace folders; thread-safe.

    Args:
        folders: The trace folders.
        on_problem: Called once for everything that can't be read.
        on_progress: See `OnProgress`.
    """

    def __init__(
        self, folders: Sequence[Path], on_problem: OnProblem | None = None, on_progress: OnProgress | None = None
    ) -> None:
        self._folders = folders
        self._on_problem = on_problem or (lambda problem: None)
        self._problems: set[ReadProblem] = set()
        self._database = Database(folders)
        self.on_progress: OnProgress = on_progress or (lambda done, total, what: None)
        self._looks = local()

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Look at the folders once for everything that is asked in the block by this thread."""
        before: Seen | None = getattr(self._looks, "seen", None)
        self._looks.seen = {} if before is None else before
        try:
            yield
        finally:
            self._looks.seen = before

    def ask(
        self,
        question: Callable[[sqlite3.Connection, Found], Answered],
        selection: Selection = EVERYTHING,
        seen: Seen | None = None,
    ) -> Answered:
        """Ask after a look at the folders.

        Args:
            question: Called with the catalog and the files.
            selection: Look only at the files that can have these trajectories.
            seen: The latest looks, which are not repeated; by default, the thread's.

        Raises:
            NoTracesError: None of the folders has traces.
        """
        looks = getattr(self._looks, "seen", None) if seen is None else seen

        def answer(connection: sqlite3.Connection) -> Answered:
            found: Found | None = None
            if looks is not None:
                found = looks.get((connection, EVERYTHING)) or looks.get((connection, selection))
            if found is None:
                found = fill(connection, self._folders, selection, self.on_progress)
                is_whole = selection is EVERYTHING
                is_known = is_whole or not has_other_processes(connection, self._folders)
                if not (is_known and find_attempts(connection, is_whole=is_whole)):
                    found = fill(connection, self._folders, EVERYTHING, self.on_progress)
                    find_attempts(connection, is_whole=True)
                for problem in problems_of(connection, found):
                    if problem not in self._problems:
                        self._problems.add(problem)
                        self._on_problem(problem)
                if looks is not None:
                    looks[connection, selection] = found
            return question(connection, found)

        return self._database.ask(answer)

    def known(self, question: Callable[[sqlite3.Connection], Answered]) -> Answered:
        """Ask about what the latest look has found."""
        return self._database.ask(question)

    def ask_figures(
        self, question: Callable[[sqlite3.Connection], Answered], selection: Selection = EVERYTHING
    ) -> Answered:
        """Ask about steps, after their figures are computed if their trajectories have changed."""

        def answer(connection: sqlite3.Connection, _: Found) -> Answered:
            refresh(connection, selection)
            return question(connection)

        return self.ask(answer, selection)

    def ask_step(
        self, step: StepIdentity | TrajectorySummary, question: Callable[[sqlite3.Connection], Answered]
    ) -> Answered:
        """Ask about one step."""
        return self.ask_figures(question, selection_of(step.step))

    def keep(self, change: Callable[[sqlite3.Connection], Answered]) -> Answered:
        """Change the catalog in one transaction, without a look."""

        def keep(connection: sqlite3.Connection) -> Answered:
            connection.execute("BEGIN IMMEDIATE")
            result = change(connection)
            connection.execute("COMMIT")
            return result

        return self._database.ask(keep)

    def step_keys(
        self, where: str = "1", values: Sequence[Any] = (), selection: Selection = EVERYTHING, seen: Seen | None = None
    ) -> list[StepKey]:
        """Return the steps of trajectories that match a condition, of `t`, and that a selection takes, in order."""
        order = "ORDER BY t.step IS NULL, t.step, t.validate"
        select = f"SELECT DISTINCT t.step, t.validate FROM trajectories t WHERE {where} {order}"
        rows = self.ask(lambda connection, _: connection.execute(select, values).fetchall(), selection, seen)
        return [(step, bool(of)) for step, of in rows if selection.takes_step(step, validate=bool(of))]

    def recorded(
        self, where: str, values: Sequence[Any], selection: Selection = EVERYTHING, seen: Seen | None = None
    ) -> Iterator[RecordedTrajectory]:
        """Return the trajectories that match a condition, of `t`, in the order of their places."""
        known: dict[str, TrajectorySummary] = {}

        def summary_of(trace_id: str) -> TrajectorySummary | None:
            # If one is asked for, the others will be.
            if not known:
                found = self._database.ask(lambda connection: load(connection, where, values))
                known.update((each.trace_id, each) for each in found)
            return known.get(trace_id)

        def question(connection: sqlite3.Connection, _: Found) -> list[RecordedTrajectory]:
            of_traces = f"p.trace_id IN (SELECT t.trace_id FROM trajectories t WHERE {where})"
            parts = parts_of(connection, self._folders, of_traces, values)
            return [RecordedTrajectory(main_row(each), each, self._find, summary_of) for each in parts.values()]

        return _one_by_one(self.ask(question, selection, seen))

    def infer(
        self, where: str = "1", values: Sequence[Any] = (), selection: Selection = EVERYTHING, seen: Seen | None = None
    ) -> None:
        """Compute the facts that only messages show, of trajectories that match a condition, of `t`, and lack them."""
        select = "SELECT trace_id, t.step, t.validate FROM inferred JOIN trajectories t USING (trace_id)"
        select += f" WHERE NOT is_known AND {where} ORDER BY t.step, trace_id"
        for _ in range(_ATTEMPTS):
            rows = self.ask(lambda connection, _: connection.execute(select, values).fetchall(), selection, seen)
            lacking = [trace_id for trace_id, step, of in rows if selection.takes_step(step, validate=bool(of))]
            if not lacking:
                return
            seen = {}
            long = monotonic() + SECONDS_UNTIL_PROGRESS
            for at in range(0, len(lacking), INFERRED_AT_ONCE):
                ids = lacking[at : at + INFERRED_AT_ONCE]
                read: dict[str, tuple[int, TrajectorySummary | None]] = {}
                for number, each in enumerate(self.recorded(OF_IDS, (json_list(ids),), selection, seen), at + 1):
                    summary = None
                    with suppress(UnreadableTraceError):
                        summary = each.read_summary()
                    read[each.trace_id] = each.span_count, summary
                    if monotonic() >= long:
                        self.on_progress(number, len(lacking), "trajectory")
                self.keep(partial(_keep_inferred, read=read))
            self.on_progress(len(lacking), len(lacking), "trajectory")

    def _find(self, trace_id: str) -> list[Part]:
        """Return the parts of a trace, wherever they are now."""
        if (seen := getattr(self._looks, "seen", None)) is not None:
            seen.clear()
        with suppress(NoTracesError):
            parts = self.ask(lambda connection, _: parts_of(connection, self._folders, "p.trace_id = ?", (trace_id,)))
            return parts.get(trace_id, [])
        return []


def _keep_inferred(connection: sqlite3.Connection, read: Mapping[str, tuple[int, TrajectorySummary | None]]) -> None:
    """Keep the facts that were inferred of trajectories that have not changed meanwhile, and mark the steps of these.

    The caller commits.

    Args:
        connection: The catalog.
        read: By trace id, the spans that were listed, and the summary; None of a trajectory that can't be read.
    """
    facts = ", ".join(f"{name} = ?" for name in INFERRED)
    for trace_id, (spans, summary) in read.items():
        is_same = "SELECT 1 FROM trajectories WHERE trace_id = ? AND spans = ?"
        if connection.execute(is_same, (trace_id, spans)).fetchone() is None:
            continue
        if summary is not None:
            values = [getattr(summary, name) for name in INFERRED]
            connection.execute(f"UPDATE trajectories SET {facts} WHERE trace_id = ?", (*values, trace_id))
        connection.execute("UPDATE inferred SET is_known = 1 WHERE trace_id = ?", (trace_id,))
    select = f"SELECT DISTINCT step, validate FROM trajectories t WHERE {OF_IDS}"
    connection.executemany(MARK, connection.execute(select, (json_list(read),)).fetchall())


def json_list(values: Iterable[str]) -> str:
    """Return texts as a JSON array, for `json_each`."""
    return orjson.dumps(list(values)).decode()


def selection_of(step: int | None) -> Selection:
    """Return the selection of one step."""
    return Selection({None} if step is None else step)


def _one_by_one(recorded: list[RecordedTrajectory]) -> Iterator[RecordedTrajectory]:
    """Yield trajectories, and keep none: each holds its spans once they were read."""
    # In place: a copy would leave the caller's list as it is.
    recorded.reverse()
    while recorded:
        yield recorded.pop()
