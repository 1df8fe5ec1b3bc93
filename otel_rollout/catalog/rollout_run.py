"""A training run as its trace folders have it: steps, groups and trajectories, from the catalog of the folders."""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from sys import getsizeof
from threading import Lock, local
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import orjson

from otel_rollout.catalog import figures, schema
from otel_rollout.catalog.database import Database
from otel_rollout.catalog.filling import (
    Filling,
    Found,
    OnProblem,
    OnProgress,
    Reader,
    find_files,
    note_problems,
    version_of,
)
from otel_rollout.catalog.group_summary import GroupSummary
from otel_rollout.catalog.live import LiveRun, read_live
from otel_rollout.catalog.query import (
    MAX_ANSWER_BYTES,
    MAX_SPAN_BYTES,
    OF_SPANS,
    Answer,
    QueryError,
    columns_read,
    narrowed,
    take_rows,
)
from otel_rollout.catalog.search import Search, SearchQuery
from otel_rollout.catalog.spans import MAX_BYTES, fill_step, filled_steps, keep_shapes
from otel_rollout.catalog.step_signals import JudgedStep, StepSignals, signals_of
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.errors import MissingExtraError, NoTracesError, UnreadableTraceError
from otel_rollout.facts.json_types import from_json, to_json
from otel_rollout.facts.shapes import Shape
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.layout import worker_of
from otel_rollout.folder.losses import LostSpans, read_losses
from otel_rollout.folder.reader import RecordedTrajectory, main_row
from otel_rollout.folder.selection import Filters, Selection
from otel_rollout.folder.stored_file import Part, ReadProblem
from otel_rollout.folder.trace_files import EVERYTHING
from otel_rollout.text.plain_text import counted

if TYPE_CHECKING:
    from typing_extensions import Unpack

Answered = TypeVar("Answered")

_Seen: TypeAlias = "dict[tuple[sqlite3.Connection, Selection], Found]"
"""The files that were found in a look, for each connection: a new catalog is empty."""

_OF_FIGURES = {"steps", "groups", "step_runs", "group_figures", *OF_SPANS}
"""The tables that are made anew for a step that has changed."""
_INTEGER = re.compile("0|-?[1-9][0-9]{0,17}").fullmatch

_OF_STEP = 'run."step" IS ? AND run."validate" = ?'
_OF_IDS = "t.trace_id IN (SELECT value FROM json_each(?))"
_IN_STEP = "t.step IS ? AND t.validate = ?"


class Run:
    """The trajectories of trace folders, with the summaries of steps and groups; thread-safe.

    Each call looks at the folders, reads what has changed into their catalog, and answers from that.

    Args:
        folders: The trace folders: several hold parts of one run, or runs to compare.
        on_problem: Called once for everything that can't be read; by default nothing is.
        on_progress: Called with the number of files that have been read, and of those to read, if that takes a while.
        experiment: The only experiment whose steps there are; None for all.
        run: The beginning of the id of the only run whose steps there are; None for all.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        on_problem: OnProblem | None = None,
        on_progress: OnProgress | None = None,
        *,
        experiment: str | None = None,
        run: str | None = None,
    ) -> None:
        self.folders = tuple(map(Path, folders))
        self._experiment, self._run = experiment, run
        self._on_problem = on_problem
        self._problems: set[ReadProblem] = set()
        self._problems_lock = Lock()
        self._database = Database(self.folders)
        self._filling = Filling(self.folders, on_progress or (lambda done, total: None))
        self._looks = local()

    def require_folders(self) -> None:
        """Check that each of the folders has traces.

        Raises:
            NoTracesError: One has none.
        """
        for folder in self.folders:
            find_files([folder])

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Look at the folders once for everything that is asked in the block by this thread."""
        before: _Seen | None = getattr(self._looks, "seen", None)
        self._looks.seen = {} if before is None else before
        try:
            yield
        finally:
            self._looks.seen = before

    def version(self) -> str:
        """Return a text that differs once a file of the folders has changed.

        Raises:
            NoTracesError: None of the folders has traces.
        """
        return version_of(find_files(self.folders))

    def steps(self, step: int | Container[int | None] | None = None) -> list[StepSummary]:
        """Return the summaries of steps in order, training before validation, one for each run of each experiment.

        If several runs of an experiment have the same rollouts, each step has its run's id.

        Args:
            step: Only these steps, for which only their files are read; None for all.

        Raises:
            NoTracesError: None of the folders has traces.
        """
        # A look at everything serves all questions of a block.
        selection = EVERYTHING if step is None else Selection(step)

        def question(connection: sqlite3.Connection, _: Found) -> list[StepSummary]:
            self._refresh(connection, selection=selection)
            return figures.steps(connection)

        found = self._ask(question, selection)
        return [each for each in found if selection.takes_step(each.step, validate=each.validate) and self._takes(each)]

    def _takes(self, step: StepSummary) -> bool:
        if self._experiment is not None and step.experiment_name != self._experiment:
            return False
        return self._is_of_run(step.run_id or step.sole_run_id)

    def _takes_each(self, trajectory: RecordedTrajectory) -> bool:
        return self._experiment in (None, trajectory.experiment_name) and self._is_of_run(trajectory.run_id)

    def _is_of_run(self, run_id: str | None) -> bool:
        return self._run is None or (run_id or "").startswith(self._run)

    def open_steps(self) -> set[tuple[int | None, bool]]:
        """Return the steps that have spans in the journal of a living process, and whether they are validation passes.

        Raises:
            NoTracesError: None of the folders has traces.
        """

        def question(connection: sqlite3.Connection, found: Found) -> set[tuple[int | None, bool]]:
            rows = connection.execute(
                "SELECT DISTINCT f.place, t.step, t.validate FROM files f JOIN parts p ON p.file = f.id"
                " JOIN trajectories t ON t.trace_id = p.trace_id WHERE f.steps = 'null'"
            ).fetchall()
            places = {place for place, _, _ in rows if place in found and found[place].file.is_journal}
            written = {place for place in places if found[place].file.is_being_written()}
            return {(step, bool(validate)) for place, step, validate in rows if place in written}

        return self._ask(question)

    def of_living(self, steps: Iterable[StepSummary]) -> list[StepSummary]:
        """Return the steps that have a trajectory of a process that is writing the folder."""

        def question(connection: sqlite3.Connection, found: Found) -> list[StepSummary]:
            workers = {worker_of(each.file.place) for each in found.values() if each.file.is_being_written()}
            names = orjson.dumps(sorted(workers)).decode()
            sql = f"SELECT 1 FROM trajectories t WHERE {_IN_STEP} AND t.experiment_name IS ?"
            sql += " AND t.worker IN (SELECT value FROM json_each(?)) LIMIT 1"
            return [
                each
                for each in steps
                if workers and connection.execute(sql, (*each.identity[:3], names)).fetchone() is not None
            ]

        return self._ask(question)

    def is_being_written(self) -> bool:
        """Return True if a process holds a file of the folders open to write to it.

        Raises:
            NoTracesError: None of the folders has traces.
        """
        return any(each.file.is_being_written() for each in find_files(self.folders).values())

    def live(self) -> LiveRun:
        """Return the running trajectories, as the processes that run them report."""
        return read_live(self.folders, self._count_ended, experiment=self._experiment, run=self._run)

    def _count_ended(self, step: int | None, validate: bool, experiment: str | None) -> int:
        where, values = (
            f"{_IN_STEP} AND t.has_root AND ?3 IN (t.experiment_name, '')",
            (step, validate, experiment or ""),
        )

        def question(connection: sqlite3.Connection, _: Found) -> int:
            [(count,)] = connection.execute(f"SELECT count(*) FROM trajectories t WHERE {where}", values)
            return int(count)

        with suppress(MissingExtraError, NoTracesError, OSError):
            return self._ask(question, _selection_of(step))
        return 0

    def summaries(
        self, step: int | None, validate: bool = False, experiment: str | None = None, run_id: str | None = None
    ) -> list[TrajectorySummary]:
        """Return a step's trajectories in the order of prompts and rollouts.

        Args:
            step: The step; None for trajectories without one.
            validate: The step's validation.
            experiment: Only trajectories of this experiment.
            run_id: Only trajectories of this run, as step summaries name it, and of steps that don't name any.
        """

        def question(connection: sqlite3.Connection, _: Found) -> list[TrajectorySummary]:
            steps = self._steps(connection, step, validate, experiment, run_id)
            return [each for found in steps for each in figures.trajectories_of(connection, found)]

        return self._ask(question, _selection_of(step))

    def judged(self, steps: Iterable[StepSummary]) -> list[JudgedStep]:
        """Return steps with their signs of trouble, which are computed from their trajectories, and kept."""

        def question(connection: sqlite3.Connection, _: Found, step: StepSummary) -> JudgedStep:
            self._refresh(connection, step.step, step.validate)
            return JudgedStep.of(step, _signals_of(connection, step))

        judged = [self._ask(partial(question, step=step), _selection_of(step.step)) for step in steps]
        lost: dict[object, Counter[str]] = {}
        for each in self.losses():
            home = _home_of(each, self.steps())
            if home is not None:
                lost.setdefault(home.identity, Counter())[each.loss.reason] += each.spans
        return [replace(step, lost=lost[step.identity]) if step.identity in lost else step for step in judged]

    def losses(self) -> list[LostSpans]:
        """Return the spans that the folders lack, because an exporter lost them."""
        found = read_losses(self.folders)
        return [
            each
            for each in found
            if self._experiment in (None, each.loss.experiment_name) and self._run in (None, each.run_id)
        ]

    def groups(
        self, step: int | None, validate: bool = False, experiment: str | None = None, run_id: str | None = None
    ) -> list[GroupSummary]:
        """Return a step's groups in the order of prompts; the arguments are the same as for `summaries`."""
        return self._groups(_OF_STEP, (step, validate), step, validate, experiment, run_id)

    def groups_of_prompt(
        self,
        step: int | None,
        validate: bool,
        sample_index: int | str | None,
        experiment: str | None = None,
        run_id: str | None = None,
    ) -> list[GroupSummary]:
        """Return a step's groups of one prompt, one for each run; the arguments are the same as for `summaries`."""
        condition, values = _of_prompt(sample_index)
        where = f"{_OF_STEP} AND {condition}"
        return self._groups(where, (step, validate, *values), step, validate, experiment, run_id)

    def prompts(self, step: StepSummary) -> list[int | str | None]:
        """Return the prompts of a step's groups in order."""

        def question(connection: sqlite3.Connection, _: Found) -> list[int | str | None]:
            self._refresh(connection, step.step, step.validate)
            return figures.prompts_of(connection, step.identity)

        return self._ask(question, _selection_of(step.step))

    def rollouts(self, group: GroupSummary) -> list[TrajectorySummary]:
        """Return the trajectories of a group in the order of rollouts."""
        places = {trace_id: place for place, trace_id in enumerate(group.trace_ids)}
        ids = orjson.dumps([*places]).decode()
        found = self._ask(lambda connection, _: schema.load(connection, _OF_IDS, (ids,)), _selection_of(group.step))
        return sorted(found, key=lambda each: places[each.trace_id])

    def same_prompt(
        self, sample_index: int | str, validate: bool = False, experiment: str | None = None
    ) -> list[GroupSummary]:
        """Return the groups of a prompt at all steps, in order.

        Args:
            sample_index: The prompt.
            validate: Groups of validation, not of training.
            experiment: Only groups of this experiment.
        """
        condition, values = _of_prompt(sample_index)

        def question(connection: sqlite3.Connection, _: Found) -> list[GroupSummary]:
            self._refresh(connection)
            where = f'{condition} AND run."validate" = ? AND run."step" IS NOT NULL'
            return figures.groups(connection, where, (*values, validate))

        named = {None, experiment, self._experiment} - {None}
        return [group for group in self._ask(question) if named <= {group.experiment_name}]

    def trajectory(self, trace_id: str) -> RecordedTrajectory:
        """Return a trajectory, whose spans are read on first use.

        Raises:
            KeyError: There is none with this id.
        """
        found = self._ask(
            lambda connection, found: self._reader(connection, found).trajectories("p.trace_id = ?", (trace_id,))
        )
        if not found:
            raise KeyError(f"there is no trajectory {trace_id}")
        return found[0]

    def summary(self, trace_id: str) -> TrajectorySummary:
        """Return a trajectory's summary.

        Raises:
            KeyError: There is none with this id.
        """
        found = self._ask(lambda connection, _: schema.load(connection, "t.trace_id = ?", (trace_id,)))
        if not found:
            raise KeyError(f"there is no trajectory {trace_id}")
        return found[0]

    def facts(self, step: StepSummary, names: Sequence[str]) -> list[list[Any]]:
        """Return facts of a step's trajectories by their names, in the order of prompts and rollouts."""

        def question(connection: sqlite3.Connection, _: Found) -> list[list[Any]]:
            self._refresh(connection, step.step, step.validate)
            return figures.facts_of(connection, step, names)

        return self._ask(question, _selection_of(step.step))

    def shapes(self, step: StepSummary) -> dict[str, Sequence[Shape]]:
        """Return the places of spans on a timeline by trace id; they are read from frames once, and kept.

        Args:
            step: The step; a trajectory of it that can't be read is left out.
        """
        facts = self.facts(step, ("trace_id", "spans", "end_time"))
        selection = _selection_of(step.step)
        found = self._ask(lambda connection, _: figures.shapes_of(connection, step), selection)
        missing = [known for known in facts if known[0] not in found]
        if missing:
            ids = orjson.dumps([trace_id for trace_id, *_ in missing]).decode()
            recorded = {each.trace_id: each for each in self._recorded(_OF_IDS, (ids,), selection)}
            read = []
            for known in missing:
                with suppress(LookupError, UnreadableTraceError):
                    read.append((*known, recorded.pop(known[0]).shapes))
            self._database.ask(partial(keep_shapes, read=read))
            found |= {trace_id: shapes for trace_id, *_, shapes in read}
        return found

    def read(self, trace: str = "", **filters: Unpack[Filters]) -> Iterator[RecordedTrajectory]:
        """Read the trajectories that filters let through, step by step, with their summaries.

        Args:
            trace: The beginning of the trace id.
            filters: The filters of `read_trajectories`.
        """
        selection = Selection(**filters)
        conditions, values = _conditions_of(trace, filters)

        def keys_of(connection: sqlite3.Connection, _: Found) -> list[tuple[int | None, bool]]:
            return _step_keys(connection, " AND ".join(conditions), values)

        seen: _Seen = {}
        for step, validate in self._ask(keys_of, selection, seen):
            if selection.takes_step(step, validate=validate):
                where = " AND ".join((*conditions, _IN_STEP))
                for each in _one_by_one(self._recorded(where, (*values, step, validate), selection, seen)):
                    if selection.takes(main_row(each.parts)) and self._takes_each(each):
                        yield each

    def query(
        self,
        sql: str,
        step: int | Container[int | None] | None = None,
        *,
        max_rows: int,
        seconds: float,
        on_step: OnProgress = lambda done, total: None,
    ) -> Answer:
        """Answer a question in SQL over the catalog's tables; spans and messages are filled first, if it reads them.

        Args:
            sql: One SELECT.
            step: Only these steps; None for all.
            max_rows: The most rows of the answer.
            seconds: The time that the answer may take, without the filling.
            on_step: Called with the number of steps whose spans have been read, and of those to read.

        Raises:
            QueryError: It is no question, takes longer, or wants the spans of too many trajectories.
            NoTracesError: None of the folders has traces.
        """

        def take(cursor: sqlite3.Cursor) -> Answer:
            rows: list[Sequence[Any]] = []
            answer = Answer([each[0] for each in cursor.description or ()], rows, False)
            size = 0
            for row in cursor:
                if len(rows) == max_rows or size > MAX_ANSWER_BYTES:
                    return replace(answer, is_cut=True)
                rows.append(row)
                size += sum(map(getsizeof, row))
            return answer

        answer, unreadable = self.take(sql, take, step, seconds=seconds, on_step=on_step)
        return replace(answer, unreadable=unreadable)

    def take(
        self,
        sql: str,
        take: Callable[[sqlite3.Cursor], Answered],
        step: int | Container[int | None] | None = None,
        *,
        seconds: float,
        on_step: OnProgress = lambda done, total: None,
    ) -> tuple[Answered, Sequence[str]]:
        """Ask a question as `query` does; return what is made of its rows, and the trajectories that can't be read.

        Args:
            sql: One SELECT.
            take: Makes something of the rows, without a trace of an earlier call: a damaged catalog is asked anew.
            step: Only these steps; None for all.
            seconds: The time that the answer may take, without the filling.
            on_step: Called with the number of steps whose spans have been read, and of those to read.

        Raises:
            QueryError: It is no question, takes longer, or wants the spans of too many trajectories.
            NoTracesError: None of the folders has traces.
        """
        with self.one_look():

            def tables(connection: sqlite3.Connection, _: Found) -> tuple[set[str], list[tuple[int | None, bool]]]:
                read = set(columns_read(connection, sql))
                if read & _OF_FIGURES:
                    self._refresh(connection)
                selection = Selection(step)
                keys = [
                    each for each in _step_keys(connection, "", ()) if selection.takes_step(each[0], validate=each[1])
                ]
                return read, keys

            read, keys = self._ask(tables)
            unreadable = self._fill_spans(keys, on_step) if read & OF_SPANS else []
            asked = None if step is None else keys

            def question(connection: sqlite3.Connection, _: Found) -> Answered:
                with narrowed(connection, asked, self._experiment, self._run):
                    return take_rows(connection, sql, take, seconds)

            return self._ask(question), unreadable

    def columns_read(self, sql: str) -> Mapping[str, set[str]]:
        """Return the tables that a question reads, each with the columns that it reads.

        Raises:
            QueryError: It is no question.
        """
        return self._ask(lambda connection, _: columns_read(connection, sql))

    def _fill_spans(self, keys: Sequence[tuple[int | None, bool]], on_step: OnProgress) -> list[str]:
        """Fill the spans of steps, and return the trace ids of trajectories that can't be read."""

        def missing_of(connection: sqlite3.Connection, _: Found) -> list[tuple[int | None, bool]]:
            sizes = dict.fromkeys(keys, 0)
            for number, validate, size in connection.execute(
                "SELECT step, validate, sum(bytes) FROM trajectories GROUP BY step, validate"
            ):
                if (number, bool(validate)) in sizes:
                    sizes[number, bool(validate)] = size
            if sum(sizes.values()) > MAX_SPAN_BYTES:
                size = f"{sum(sizes.values()) / 2**30:.1f} GiB"
                raise QueryError(
                    f"it reads the spans of {counted(len(keys), 'step')}, {size}; the limit is "
                    f"{MAX_SPAN_BYTES / 2**30:g} GiB: name fewer steps"
                )
            filled = filled_steps(connection)
            return [key for key in keys if key not in filled]

        unreadable: list[str] = []
        missing = self._ask(missing_of)
        for done, key in enumerate(missing):
            on_step(done, len(missing))
            recorded = self._recorded(_IN_STEP, key, _selection_of(key[0]))

            def fill(connection: sqlite3.Connection, key: tuple[int | None, bool], recorded: Any) -> list[str]:
                connection.execute("BEGIN IMMEDIATE")
                found = fill_step(connection, *key, recorded, max(MAX_BYTES, 2 * MAX_SPAN_BYTES))
                connection.execute("COMMIT")
                return found

            unreadable += self._database.ask(partial(fill, key=key, recorded=_one_by_one(recorded)))
        if missing:
            on_step(len(missing), len(missing))
        return unreadable

    def search(self, query: SearchQuery) -> Search:
        """Search the trajectories in order; the hits come while the search goes on.

        Raises:
            ValueError: The query is empty, or of another kind.
        """
        return Search(query, self._searched(query))

    def _searched(self, query: SearchQuery) -> Iterator[RecordedTrajectory]:
        seen: _Seen = {}
        for step, validate in self._ask(lambda connection, _: _step_keys(connection, "", ()), EVERYTHING, seen):
            if query.step is not None and query.step != ("none" if step is None else step):
                continue
            if query.validate not in (None, validate):
                continue
            for each in _one_by_one(self._recorded(_IN_STEP, (step, validate), EVERYTHING, seen)):
                if (
                    query.experiment in (None, each.experiment_name)
                    and query.run_id in (None, each.run_id)
                    and self._takes_each(each)
                ):
                    yield each

    def _ask(
        self,
        question: Callable[[sqlite3.Connection, Found], Answered],
        selection: Selection = EVERYTHING,
        seen: _Seen | None = None,
    ) -> Answered:
        """Ask the catalog after a look at the folders.

        Args:
            question: Called with the catalog and the files.
            selection: Look only at the files that can have these trajectories.
            seen: The latest looks, which are not repeated; by default, the thread's.
        """
        looks = getattr(self._looks, "seen", None) if seen is None else seen

        def answer(connection: sqlite3.Connection) -> Answered:
            found: Found | None = None
            if looks is not None:
                found = looks.get((connection, EVERYTHING)) or looks.get((connection, selection))
            if found is None:
                found = self._filling.fill(connection, selection)
                note_problems(connection, found, self._note)
                if looks is not None:
                    looks[connection, selection] = found
            return question(connection, found)

        return self._database.ask(answer)

    def _reader(self, connection: sqlite3.Connection, found: Found) -> Reader:
        return Reader(connection, self.folders, found, self._find)

    def _recorded(
        self, where: str, values: Sequence[Any], selection: Selection, seen: _Seen | None = None
    ) -> list[RecordedTrajectory]:
        """Return the trajectories that match a condition, in the order of their places."""
        known: dict[str, TrajectorySummary] = {}

        def summary_of(trace_id: str) -> TrajectorySummary | None:
            # If one is asked for, the others will be.
            if not known:
                found = self._database.ask(lambda connection: schema.load(connection, where, values))
                known.update((each.trace_id, each) for each in found)
            return known.get(trace_id)

        def question(connection: sqlite3.Connection, found: Found) -> list[RecordedTrajectory]:
            of_traces = f"p.trace_id IN (SELECT t.trace_id FROM trajectories t WHERE {where})"
            return self._reader(connection, found).trajectories(of_traces, values, summary_of)

        return self._ask(question, selection, seen)

    def _refresh(self, connection: sqlite3.Connection, *step: Any, selection: Selection = EVERYTHING) -> None:
        """Compute the figures of a step, or of all steps that a selection takes, if they have changed."""
        where = " WHERE step IS ? AND validate = ?" if step else ""
        changed = connection.execute(f"SELECT step, validate FROM changed_steps{where}", step).fetchall()
        for each in changed:
            if not selection.takes_step(each[0], validate=bool(each[1])):
                continue
            connection.execute("BEGIN IMMEDIATE")
            figures.refresh_step(connection, *each)
            connection.execute("DELETE FROM signals WHERE step IS ? AND validate = ?", each)
            connection.execute("COMMIT")
        # Not by what has changed: a reader can be killed before it judges what it has computed.
        if not figures.is_judged(connection):
            connection.execute("BEGIN IMMEDIATE")
            figures.judge(connection)
            connection.execute("COMMIT")

    def _steps(
        self,
        connection: sqlite3.Connection,
        step: int | None,
        validate: bool,
        experiment: str | None,
        run_id: str | None,
    ) -> list[StepSummary]:
        """Return the summaries of a step's runs that are asked for."""
        self._refresh(connection, step, validate)
        return [
            found
            for found in figures.steps(connection, _OF_STEP, (step, validate))
            if (found.run_id is None or run_id in (None, found.run_id))
            and experiment in (None, found.experiment_name)
            and self._takes(found)
        ]

    def _groups(
        self,
        where: str,
        values: Sequence[Any],
        step: int | None,
        validate: bool,
        experiment: str | None,
        run_id: str | None,
    ) -> list[GroupSummary]:
        """Return the groups of a step that match a condition."""

        def question(connection: sqlite3.Connection, _: Found) -> list[GroupSummary]:
            steps = self._steps(connection, step, validate, experiment, run_id)
            runs = {(found.experiment_name, found.run_id) for found in steps}
            groups = figures.groups(connection, where, values)
            return [group for group in groups if (group.experiment_name, group.run_id) in runs]

        return self._ask(question, _selection_of(step))

    def _find(self, trace_id: str) -> list[Part]:
        """Return the parts of a trace, wherever they are now."""
        if (seen := getattr(self._looks, "seen", None)) is not None:
            seen.clear()
        with suppress(NoTracesError):
            return self._ask(
                lambda connection, found: self._reader(connection, found).parts("p.trace_id = ?", (trace_id,))
            ).get(trace_id, [])
        return []

    def _note(self, problem: ReadProblem) -> None:
        with self._problems_lock:
            is_new = problem not in self._problems
            self._problems.add(problem)
        if is_new and self._on_problem is not None:
            self._on_problem(problem)


def _one_by_one(recorded: list[RecordedTrajectory]) -> Iterator[RecordedTrajectory]:
    """Yield trajectories, and keep none: each holds its spans once they were read."""
    # In place: a copy would leave the caller's list as it is.
    recorded.reverse()
    while recorded:
        yield recorded.pop()


def _step_keys(connection: sqlite3.Connection, where: str, values: Sequence[Any]) -> list[tuple[int | None, bool]]:
    """Return the steps of trajectories that match, and whether they are validation passes, in order."""
    condition = f" WHERE {where}" if where else ""
    order = "ORDER BY t.step IS NULL, t.step, t.validate"
    rows = connection.execute(f"SELECT DISTINCT t.step, t.validate FROM trajectories t{condition} {order}", values)
    return [(step, bool(validate)) for step, validate in rows]


def _conditions_of(trace: str, filters: Filters) -> tuple[list[str], list[Any]]:
    """Return the conditions of filters that the catalog finds quickly, and their values."""
    conditions: list[str] = []
    values: list[Any] = []
    if trace:
        conditions.append("t.trace_id BETWEEN ? AND ?")
        values += (trace, f"{trace}g")
    if (sample := filters.get("sample_index")) is not None:
        either = _either(sample)
        conditions.append(f"t.sample_index IN ({', '.join('?' * len(either))})")
        values += either
    if (step := filters.get("step")) is not None and isinstance(step, int):
        conditions.append("t.step = ?")
        values.append(step)
    return conditions, values


def _selection_of(step: int | None) -> Selection:
    return Selection({None} if step is None else step)


def _of_prompt(sample_index: int | str | None) -> tuple[str, list[int | str]]:
    """Return the condition of a prompt's groups, and its values."""
    if sample_index is None:
        return 'f."sample_index" IS NULL', []
    values = _either(sample_index)
    return f'f."sample_index" IN ({", ".join("?" * len(values))})', values


def _either(sample_index: int | str) -> list[int | str]:
    """Return a prompt as text and as a number: 7 and "7" are the same prompt."""
    text = str(sample_index)
    is_number = _INTEGER(text) is not None
    return [text, int(text)] if is_number else [text]


def _signals_of(connection: sqlite3.Connection, step: StepSummary) -> StepSignals:
    """Return the signals of a step; they are computed once, until the step changes."""
    where = "step IS ? AND validate = ? AND experiment_name IS ? AND run_id IS ?"
    for (signals,) in connection.execute(f"SELECT signals FROM signals WHERE {where}", step.identity):
        return from_json(StepSignals, orjson.loads(signals))
    connection.execute("BEGIN IMMEDIATE")
    found = signals_of(figures.trajectories_of(connection, step))
    connection.execute("INSERT INTO signals VALUES (?, ?, ?, ?, ?)", (*step.identity, to_json(found).decode()))
    connection.execute("COMMIT")
    return found


def _home_of(lost: LostSpans, steps: Iterable[StepSummary]) -> StepSummary | None:
    """Return the step that lost spans are shown with: theirs, or the nearest if the folder has nothing of it."""
    own = [
        step
        for step in steps
        if step.validate == lost.loss.validate
        and step.experiment_name == lost.loss.experiment_name
        and step.run_id in (None, lost.run_id)
    ]
    return min(own, key=lambda step: abs((step.step or 0) - (lost.loss.step or 0)), default=None)
