"""A training run as its trace folders have it: steps, groups and trajectories, from the catalog of the folders."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path
from threading import Lock, local
from typing import Any, TypeVar

import orjson

from otel_rollout.catalog import schema
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
from otel_rollout.catalog.search import Search, SearchQuery
from otel_rollout.catalog.step_making import SummarisedRun, summarise_runs
from otel_rollout.catalog.step_summary import StepSummary, with_run_ids
from otel_rollout.errors import NoTracesError, UnreadableTraceError
from otel_rollout.facts.json_types import from_json, to_json
from otel_rollout.facts.shapes import SpanShape
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.reader import ReadProblem, RecordedTrajectory
from otel_rollout.folder.selection import Selection
from otel_rollout.folder.stored_file import Part
from otel_rollout.folder.trace_files import EVERYTHING

Answer = TypeVar("Answer")

_OF_TRACE = "p.trace_id = ?"
_OF_STEP = "p.trace_id IN (SELECT trace_id FROM trajectories WHERE step IS ? AND validate = ?)"


class Run:
    """The trajectories of trace folders, with the summaries of steps and groups; thread-safe.

    Each call looks at the folders, reads what has changed into their catalog, and answers from that.

    Args:
        folders: The trace folders: several hold parts of one run, or runs to compare.
        on_problem: Called once for everything that can't be read; by default nothing is.
        on_progress: Called with the number of files that have been read, and of those to read.
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

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Look at the folders once for everything that is asked in the block by this thread."""
        before = getattr(self._looks, "seen", None)
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

    def steps(self) -> list[StepSummary]:
        """Return the summaries of all steps in order, training before validation, one for each run of each experiment.

        If several runs of an experiment have the same rollouts, each step has its run's id.

        Raises:
            NoTracesError: None of the folders has traces.
        """
        steps = self._ask(self._made_steps)
        return [step for step in with_run_ids(steps) if self._takes(step)]

    def _takes(self, step: StepSummary) -> bool:
        if self._experiment is not None and step.experiment_name != self._experiment:
            return False
        return self._is_of_run(step.run_id or step.sole_run_id)

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
        runs = self._runs(step, validate, experiment, run_id)
        return [each for run in runs for each in run.step.trajectories]

    def groups(
        self, step: int | None, validate: bool = False, experiment: str | None = None, run_id: str | None = None
    ) -> list[GroupSummary]:
        """Return a step's groups in the order of prompts; the arguments are the same as for `summaries`."""
        return [group for run in self._runs(step, validate, experiment, run_id) for group in run.groups]

    def group(
        self,
        step: int | None,
        validate: bool,
        sample_index: int | str | None,
        experiment: str | None = None,
        run_id: str | None = None,
    ) -> tuple[GroupSummary, list[TrajectorySummary]]:
        """Return a group and its trajectories in the order of rollouts; the arguments are the same as for `summaries`.

        Raises:
            KeyError: There is no such group.
        """
        for run in self._runs(step, validate, experiment, run_id):
            for group in run.groups:
                if str(group.sample_index) == str(sample_index):
                    ids = set(group.trace_ids)
                    return group, [each for each in run.step.trajectories if each.trace_id in ids]
        raise KeyError(f"step {step} has no prompt {sample_index}")

    def same_prompt(
        self, sample_index: int | str, validate: bool = False, experiment: str | None = None
    ) -> list[GroupSummary]:
        """Return the groups of a prompt at all steps, in order.

        Args:
            sample_index: The prompt.
            validate: Groups of validation, not of training.
            experiment: Only groups of this experiment.
        """
        values = _values_of(str(sample_index))

        def question(connection: sqlite3.Connection, _: Found) -> list[tuple[int, bool]]:
            marks = ", ".join("?" * len(values))
            return connection.execute(
                f"SELECT DISTINCT step, validate FROM trajectories WHERE sample_index IN ({marks})"
                " AND validate = ? AND step IS NOT NULL ORDER BY step",
                (*values, validate),
            ).fetchall()

        runs = [run for key in self._ask(question) for run in self._summarised(*key)]
        found = [group for run in runs for group in run.groups if str(group.sample_index) == str(sample_index)]
        named = {None, experiment, self._experiment} - {None}
        return [group for group in found if named <= {group.experiment_name}]

    def trajectory(self, trace_id: str) -> RecordedTrajectory:
        """Return a trajectory, whose spans are read on first use.

        Raises:
            KeyError: There is none with this id.
        """
        found = self._ask(
            lambda connection, found: self._reader(connection, found).trajectories(_OF_TRACE, (trace_id,))
        )
        if not found:
            raise KeyError(f"there is no trajectory {trace_id}")
        return found[0]

    def summary(self, trace_id: str) -> TrajectorySummary:
        """Return a trajectory's summary.

        Raises:
            KeyError: There is none with this id.
        """
        found = self._ask(lambda connection, _: schema.load(connection, "trace_id = ?", (trace_id,)))
        if not found:
            raise KeyError(f"there is no trajectory {trace_id}")
        return found[0]

    def shapes(self, summaries: Iterable[TrajectorySummary]) -> Iterator[Sequence[SpanShape]]:
        """Yield the places of each trajectory's spans on a timeline; nothing if its frame can't be read.

        Args:
            summaries: Trajectories of this run, sorted by step.
        """
        for (step, validate), asked in groupby(summaries, lambda each: (each.step, each.validate)):
            recorded = self._recorded(step, validate)
            for each in asked:
                try:
                    yield recorded.pop(each.trace_id).shapes
                except (LookupError, UnreadableTraceError):  # noqa: PERF203 - each is a trajectory
                    yield ()

    def search(self, query: SearchQuery) -> Search:
        """Search the trajectories in order; the hits come while the search goes on.

        Raises:
            ValueError: The query is empty, or of another kind.
        """
        return Search(query, self._searched(query))

    def _searched(self, query: SearchQuery) -> Iterator[RecordedTrajectory]:
        for step, validate in self._ask(lambda connection, _: _step_keys(connection)):
            if query.step is not None and query.step != ("none" if step is None else step):
                continue
            if query.validate not in (None, validate):
                continue
            for each in self._recorded(step, validate).values():
                if (
                    query.experiment in (None, each.experiment_name)
                    and query.run_id in (None, each.run_id)
                    and self._experiment in (None, each.experiment_name)
                    and self._is_of_run(each.run_id)
                ):
                    yield each

    def _ask(
        self, question: Callable[[sqlite3.Connection, Found], Answer], selection: Selection = EVERYTHING
    ) -> Answer:
        """Return what a function finds in the catalog after a look at the folders.

        Args:
            question: Called with the catalog and the files.
            selection: Look only at the files that can have these trajectories.
        """

        def answer(connection: sqlite3.Connection) -> Answer:
            seen: dict[Any, Found] | None = getattr(self._looks, "seen", None)
            found = None if seen is None else seen.get(connection)
            if found is None:
                found = self._filling.fill(connection, selection)
                note_problems(connection, found, self._note)
                if seen is not None and selection is EVERYTHING:
                    seen[connection] = found
            return question(connection, found)

        return self._database.ask(answer)

    def _reader(self, connection: sqlite3.Connection, found: Found) -> Reader:
        return Reader(connection, self.folders, found, self._find)

    def _recorded(self, step: int | None, validate: bool) -> dict[str, RecordedTrajectory]:
        """Return the trajectories of a step by their ids, in the order of their places."""
        found = self._ask(
            lambda connection, found: self._reader(connection, found).trajectories(_OF_STEP, (step, validate)),
            Selection(_steps_of(step)),
        )
        return {each.trace_id: each for each in found}

    def _made_steps(self, connection: sqlite3.Connection, _: Found) -> list[StepSummary]:
        """Return the summaries of all steps; those of steps that have changed are made."""
        for step, validate in connection.execute("SELECT step, validate FROM changed_steps").fetchall():
            connection.execute("BEGIN IMMEDIATE")
            where, key = "step IS ? AND validate IS ?", (step, validate)
            made = [run.summary for run in summarise_runs(schema.load(connection, where, key))]
            connection.execute(f"DELETE FROM made WHERE {where}", key)
            if made:
                connection.execute("INSERT INTO made VALUES (?, ?, ?)", (step, validate, to_json(made).decode()))
            connection.execute(f"DELETE FROM changed_steps WHERE {where}", key)
            connection.execute("COMMIT")
        made_steps = connection.execute("SELECT steps FROM made ORDER BY step IS NULL, step, validate")
        return [from_json(StepSummary, each) for (steps,) in made_steps for each in orjson.loads(steps)]

    def _summarised(self, step: int | None, validate: bool) -> list[SummarisedRun]:
        found = self._ask(
            lambda connection, _: schema.load(connection, "step IS ? AND validate = ?", (step, validate)),
            Selection(_steps_of(step)),
        )
        return summarise_runs(found)

    def _runs(
        self, step: int | None, validate: bool, experiment: str | None, run_id: str | None
    ) -> Iterator[SummarisedRun]:
        for run in self._summarised(step, validate):
            found = run.summary
            is_of_run = found.run_id is None or run_id in (None, found.run_id)
            if is_of_run and experiment in (None, found.experiment_name) and self._takes(found):
                yield run

    def _find(self, trace_id: str) -> list[Part]:
        """Return the parts of a trace, wherever they are now."""
        if (seen := getattr(self._looks, "seen", None)) is not None:
            seen.clear()
        with suppress(NoTracesError):
            return self._ask(
                lambda connection, found: self._reader(connection, found).parts(_OF_TRACE, (trace_id,))
            ).get(trace_id, [])
        return []

    def _note(self, problem: ReadProblem) -> None:
        with self._problems_lock:
            is_new = problem not in self._problems
            self._problems.add(problem)
        if is_new and self._on_problem is not None:
            self._on_problem(problem)


def _step_keys(connection: sqlite3.Connection) -> list[tuple[int | None, bool]]:
    """Return the steps, and whether they are validation passes, in order."""
    rows = connection.execute("SELECT DISTINCT step, validate FROM trajectories ORDER BY step IS NULL, step, validate")
    return [(step, bool(validate)) for step, validate in rows]


def _steps_of(step: int | None) -> Any:
    return {None} if step is None else step


def _values_of(sample: str) -> list[int | str]:
    """Return the values that are this text: the text, and the number."""
    return [sample, int(sample)] if sample.lstrip("-").isdecimal() and len(sample) < 20 else [sample]
