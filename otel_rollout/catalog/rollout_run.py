"""A training run as its trace folders have it: steps, groups and trajectories, from the catalog of the folders."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from sys import getsizeof
from typing import TYPE_CHECKING, Any

import orjson

from otel_rollout.catalog import figures
from otel_rollout.catalog.attempts import Overtaken, overtaken_of
from otel_rollout.catalog.catalog import IN_STEP, OF_IDS, Answered, Catalog, Seen, StepKey, json_list, selection_of
from otel_rollout.catalog.figures import OF_RUN, ORDER, members_of, refresh
from otel_rollout.catalog.filling import Found, OnProblem, OnProgress, find_files, version_of
from otel_rollout.catalog.group_summary import GroupSummary
from otel_rollout.catalog.query import MAX_ANSWER_BYTES, Answer, asked_tables, of_attempt, of_run, take_rows, understood
from otel_rollout.catalog.records import facts_of, load
from otel_rollout.catalog.span_columns import OF_SPANS
from otel_rollout.catalog.spans import ask_filled, check_size, keep_shapes, show_rows, take_counted
from otel_rollout.catalog.step_summary import StepIdentity, StepSummary
from otel_rollout.errors import MissingExtraError, NoTracesError, UnreadableTraceError
from otel_rollout.facts.json_types import from_json
from otel_rollout.facts.shapes import Shape
from otel_rollout.facts.table import INFERRED, TrajectorySummary
from otel_rollout.folder.layout import worker_of
from otel_rollout.folder.losses import LostSpans, read_losses
from otel_rollout.folder.reader import RecordedTrajectory, main_row
from otel_rollout.folder.selection import Filters, Selection
from otel_rollout.folder.trace_files import EVERYTHING
from otel_rollout.text.plain_text import counted

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from otel_rollout.catalog.live import LiveRun
    from otel_rollout.catalog.step_signals import JudgedStep, StepSignals

_OF_PROMPT = "CAST(sample_index AS TEXT) IS ?"
"""The condition of a prompt, by its number as text: 7 and "7" are the same."""
_INFERRED = frozenset(INFERRED)
MAX_SHOWN = 20
"""The most steps that a notebook shows."""
MAX_INFERRED = 2048
"""The most trajectories of a run whose messages `judged` compares."""


class Run:
    """The trajectories of trace folders, with the summaries of steps and groups; thread-safe.

    Each call looks at the folders, reads what has changed into their catalog, and answers from that.

    Args:
        folders: The trace folders: several hold parts of one run, or runs to compare.
        on_problem: Called once for everything that can't be read; by default nothing is.
        on_progress: See `OnProgress`.
        experiment: The only experiment whose steps there are; None for all.
        run: The beginning of the id of the only run whose steps there are, or of one of its processes; None for all.
        attempt: The only attempt of resumed runs that `read`, `query` and `take` have, with what later ones have
            overtaken; None for what counts.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        on_problem: OnProblem | None = None,
        on_progress: OnProgress | None = None,
        *,
        experiment: str | None = None,
        run: str | None = None,
        attempt: int | None = None,
    ) -> None:
        self.folders = tuple(map(Path, folders))
        self._experiment, self._run, self._attempt = experiment, run, attempt
        self._catalog = Catalog(self.folders, on_problem, on_progress)

    def __repr__(self) -> str:
        return f"<Run {', '.join(map(str, self.folders))}>"

    def _repr_html_(self) -> str:
        from otel_rollout.text.html_table import html_table

        names = ("experiment_name", "step", "validate", "trajectories", "reward_mean", "solved", "errors")
        steps = self.steps()
        more = f", the last {MAX_SHOWN} of {counted(len(steps), 'step')}" if len(steps) > MAX_SHOWN else ""
        rows = ([getattr(each, name) for name in names] for each in steps[-MAX_SHOWN:])
        return html_table(names, rows, f"{', '.join(map(str, self.folders))}{more}")

    def require_folders(self) -> None:
        """Check that each of the folders has traces.

        Raises:
            NoTracesError: One has none.
        """
        for folder in self.folders:
            find_files([folder])

    def one_look(self) -> AbstractContextManager[None]:
        """Look at the folders once for everything that is asked in the block by this thread."""
        return self._catalog.one_look()

    def version(self) -> str:
        """Return a text that differs once a file of the folders has changed.

        Raises:
            NoTracesError: None of the folders has traces.
        """
        return version_of(find_files(self.folders))

    def infer(self, step: int | Container[int | None] | None = None) -> None:
        """Compute the facts of trajectories that only their messages show, where nothing else did.

        Args:
            step: Only of these steps; None for all.
        """
        self._catalog.infer(selection=EVERYTHING if step is None else Selection(step))

    # Steps

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
        where = of_run("coalesce(run_id, sole_run_id)", self._experiment, self._run)
        found = self._catalog.ask_figures(lambda connection: figures.steps(connection, where), selection)
        return [each for each in found if selection.takes_step(each.step, validate=each.validate)]

    def overtaken(self) -> list[Overtaken]:
        """Return the overtaken trajectories of each attempt, as the latest question found them."""
        found = self._catalog.known(overtaken_of)
        return [each for each in found if self._experiment in (None, each.experiment_name)]

    def folders_of_runs(self) -> dict[str, str]:
        """Return the folder of each run that has one of its own, if several runs have the same steps."""
        # The place of a file begins with the number of its folder.
        first = "SELECT f.place FROM trajectories t JOIN parts p USING (trace_id) JOIN files f ON f.id = p.file"
        first += " WHERE t.step IS s.step AND t.validate = s.validate AND t.experiment_name IS s.experiment_name"
        first += " AND t.run_id = s.run_id LIMIT 1"
        select = f"SELECT s.run_id, ({first}) FROM steps s WHERE s.run_id IS NOT NULL GROUP BY s.run_id"
        found = self._catalog.ask(lambda connection, _: connection.execute(select).fetchall())
        places = {run: place.partition(b"/")[0] for run, place in found if place is not None}
        counts = Counter(places.values())
        return {run: str(self.folders[int(number)]) for run, number in places.items() if counts[number] == 1}

    def attempt_of(self, trace_id: str) -> tuple[int | None, bool]:
        """Return the attempt of a trajectory, if its run was resumed, and whether a later one has overtaken it."""
        select = "SELECT attempt, overtaken FROM trajectories WHERE trace_id = ?"
        found = self._catalog.known(lambda connection: connection.execute(select, (trace_id,)).fetchone())
        return (None, False) if found is None else (found[0], bool(found[1]))

    def open_steps(self) -> set[StepKey]:
        """Return the steps that have spans in the journal of a living process.

        Raises:
            NoTracesError: None of the folders has traces.
        """

        def question(connection: sqlite3.Connection, found: Found) -> set[StepKey]:
            rows = connection.execute(
                "SELECT DISTINCT f.place, t.step, t.validate FROM files f JOIN parts p ON p.file = f.id"
                " JOIN trajectories t ON t.trace_id = p.trace_id WHERE f.steps = 'null'"
            ).fetchall()
            places = {place for place, _, _ in rows if place in found and found[place].file.is_journal}
            written = {place for place in places if found[place].file.is_being_written()}
            return {(step, bool(validate)) for place, step, validate in rows if place in written}

        return self._catalog.ask(question)

    def of_living(self, steps: Iterable[StepSummary]) -> list[StepSummary]:
        """Return the steps that have a trajectory of a process that is writing the folder."""

        def question(connection: sqlite3.Connection, found: Found) -> list[StepSummary]:
            workers = {worker_of(each.file.place) for each in found.values() if each.file.is_being_written()}
            names = orjson.dumps(sorted(workers)).decode()
            sql = f"SELECT 1 FROM trajectories t WHERE {IN_STEP} AND t.experiment_name IS ?"
            sql += " AND t.worker IN (SELECT value FROM json_each(?)) LIMIT 1"
            return [
                each
                for each in steps
                if workers and connection.execute(sql, (*each.identity[:3], names)).fetchone() is not None
            ]

        return self._catalog.ask(question)

    def is_being_written(self, most: int | None = None) -> bool:
        """Return True if a process holds a file of the folders open to write to it.

        Args:
            most: The most files to look at, those that changed last; None for all.
        """
        with suppress(NoTracesError, OSError):
            files = sorted(find_files(self.folders).values(), key=lambda each: -int(each.status.split(" ")[2]))
            return any(each.file.is_being_written() for each in files[:most])
        return False

    def live(self) -> LiveRun:
        """Return the running trajectories, as the processes that run them report."""
        from otel_rollout.catalog.live import read_live

        takes_run = None if self._run is None else partial(self._takes_run, runs=self._runs())
        return read_live(self.folders, self._count_ended, experiment=self._experiment, takes_run=takes_run)

    def _runs(self) -> dict[str | None, str | None]:
        """Return the run of each process's run id: another one if its run was resumed."""
        select = "SELECT DISTINCT process_run_id, run_id FROM processes"
        return dict(self._catalog.known(lambda connection: connection.execute(select).fetchall()))

    def _takes_run(self, run_id: str | None, runs: Mapping[str | None, str | None]) -> bool:
        asked = self._run or ""
        return any((each or "").startswith(asked) for each in (run_id, runs.get(run_id)))

    def _count_ended(self, step: int | None, validate: bool, experiment: str | None) -> int:
        sql = f"SELECT count(*) FROM trajectories t WHERE {IN_STEP} AND t.has_root AND {of_attempt(None)}"
        sql += " AND ?3 IN (t.experiment_name, '')"
        values = (step, validate, experiment or "")
        with suppress(MissingExtraError, NoTracesError, OSError):
            return self._catalog.ask(
                lambda connection, _: int(connection.execute(sql, values).fetchone()[0]), selection_of(step)
            )
        return 0

    def judged(self, steps: Iterable[StepSummary]) -> list[JudgedStep]:
        """Return steps with their signs of trouble, which are computed from their trajectories, and kept.

        Facts are inferred for 2,048 trajectories at most, spread over the steps.
        """
        from otel_rollout.catalog.step_signals import JudgedStep

        steps = list(steps)
        inferred = [self._catalog.ask_step(step, partial(_inferred_of, step=step)) for step in steps]
        self._catalog.infer(OF_IDS, (json_list(_spread(inferred, MAX_INFERRED)),))
        lost: dict[object, Counter[str]] = {}
        losses = self.losses()
        steps_of_all = self.steps() if losses else []
        for each in losses:
            if (home := _home_of(each, steps_of_all)) is not None:
                lost.setdefault(home.identity, Counter())[each.loss.reason] += each.spans
        judged = []
        for step in steps:
            signals, looked_at, two_sides = self._catalog.ask_step(step, partial(_signals_of, step=step))
            known = {**vars(step), "two_sides": two_sides, "lost": lost.get(step.identity, {})}
            judged.append(JudgedStep(**known, signals=signals, looked_at=looked_at))
        return judged

    def losses(self) -> list[LostSpans]:
        """Return the spans that the folders lack, because an exporter lost them."""
        found, runs = read_losses(self.folders), self._runs()
        return [
            each._replace(run_id=runs.get(each.run_id, each.run_id))
            for each in found
            if self._experiment in (None, each.loss.experiment_name) and self._takes_run(each.run_id, runs)
        ]

    def same_prompt(self, sample_index: int | str, step: StepIdentity) -> list[GroupSummary]:
        """Return the groups of a prompt at all steps of a step's run, of training or of validation as it is."""
        where = f"{_OF_PROMPT} AND step IS NOT NULL AND validate = ? AND experiment_name IS ? AND run_id IS ?"
        values = str(sample_index), *step.identity[1:]
        return self._catalog.ask_figures(lambda connection: figures.groups(connection, where, values))

    # One step

    def summaries(self, step: StepIdentity) -> list[TrajectorySummary]:
        """Return a step's trajectories in the order of prompts and rollouts."""
        return self._load(*members_of(step), selection_of(step.step), ORDER)

    def listed(self, step: StepIdentity) -> list[TrajectorySummary]:
        """Return the same trajectories without what would have to be inferred for them."""
        return self._catalog.ask_step(step, lambda connection: load(connection, *members_of(step), ORDER))

    def _load(
        self, where: str, values: Sequence[Any], selection: Selection = EVERYTHING, order: str = "t.rowid"
    ) -> list[TrajectorySummary]:
        with self.one_look():
            self._catalog.infer(where, values, selection)
            return self._catalog.ask(lambda connection, _: load(connection, where, values, order), selection)

    def facts(self, step: StepIdentity, names: Sequence[str]) -> list[list[Any]]:
        """Return facts of a step's trajectories by their names, in the order of prompts and rollouts."""
        where, values = members_of(step)
        with self.one_look():
            if not _INFERRED.isdisjoint(names):
                self._catalog.infer(where, values, selection_of(step.step))
            return self._catalog.ask_step(step, lambda connection: facts_of(connection, names, where, values, ORDER))

    def groups(self, step: StepIdentity) -> list[GroupSummary]:
        """Return a step's groups in the order of prompts."""
        return self._catalog.ask_step(step, lambda connection: figures.groups(connection, OF_RUN, step.identity))

    def group(self, step: StepIdentity, sample_index: int | str | None) -> GroupSummary | None:
        """Return the group of a prompt in a step; None if there is none."""
        of_step = f"{OF_RUN} AND {_OF_PROMPT}", (*step.identity, None if sample_index is None else str(sample_index))
        found = self._catalog.ask_step(step, lambda connection: figures.groups(connection, *of_step))
        return found[0] if found else None

    def shapes(self, step: StepIdentity) -> dict[str, Sequence[Shape]]:
        """Return the places of spans on a timeline by trace id; they are read from frames once, and kept.

        Args:
            step: The step; a trajectory of it that can't be read is left out.
        """
        facts = self.facts(step, ("trace_id", "spans", "end_time"))
        where, values = members_of(step)
        select = f"SELECT s.* FROM shapes s WHERE s.trace_id IN (SELECT trace_id FROM trajectories WHERE {where})"
        kept = self._catalog.ask_step(step, lambda connection: connection.execute(select, values).fetchall())
        found = {trace_id: orjson.loads(shapes) for _, trace_id, shapes in kept}
        missing = {trace_id: known for trace_id, *known in facts if trace_id not in found}
        if missing:
            read = []
            for each in self._catalog.recorded(OF_IDS, (json_list(missing),), selection_of(step.step)):
                with suppress(LookupError, UnreadableTraceError):
                    read.append((each.trace_id, *missing[each.trace_id], each.shapes))
            self._catalog.keep(partial(keep_shapes, read=read))
            found |= {trace_id: shapes for trace_id, *_, shapes in read}
        return found

    # Trajectories

    def rollouts(self, group: GroupSummary) -> list[TrajectorySummary]:
        """Return the trajectories of a group in the order of rollouts."""
        found = self._load(OF_IDS, (json_list(group.trace_ids),), selection_of(group.step))
        places = {trace_id: place for place, trace_id in enumerate(group.trace_ids)}
        return sorted(found, key=lambda each: places[each.trace_id])

    def group_of(self, summary: TrajectorySummary) -> GroupSummary | None:
        """Return the group that a trajectory is in; None if it has gone."""
        of_step = "step IS ? AND validate = ? AND instr(trace_ids, ?)"
        values = summary.step, summary.validate, summary.trace_id
        found = self._catalog.ask_step(summary, lambda connection: figures.groups(connection, of_step, values))
        return found[0] if found else None

    def trajectory(self, trace_id: str) -> RecordedTrajectory:
        """Return a trajectory, whose spans are read on first use.

        Raises:
            KeyError: There is none with this id.
        """
        for each in self._catalog.recorded("t.trace_id = ?", (trace_id,)):
            return each
        raise KeyError(f"there is no trajectory {trace_id}")

    def summary(self, trace_id: str) -> TrajectorySummary:
        """Return a trajectory's summary.

        Raises:
            KeyError: There is none with this id.
        """
        found = self._load("t.trace_id = ?", (trace_id,))
        if not found:
            raise KeyError(f"there is no trajectory {trace_id}")
        return found[0]

    def read(
        self, trace: str = "", *, has_inferred: bool = False, **filters: Unpack[Filters]
    ) -> Iterator[RecordedTrajectory]:
        """Read the trajectories that filters let through, step by step, with their summaries.

        Args:
            trace: The beginning of the trace id.
            has_inferred: True if their summaries need the facts that are inferred.
            filters: The filters of `read_trajectories`.
        """
        where, values = _condition_of(trace, filters)
        where += f" AND {of_run('t.run_id', filters.pop('experiment', None), filters.pop('run', None))}"
        where += f" AND {of_run('t.run_id', self._experiment, self._run)}"
        if self._attempt is not None or not trace:
            where += f" AND {of_attempt(self._attempt)}"
        selection = Selection(**filters)
        seen: Seen = {}
        for key in self._catalog.step_keys(where, values, selection, seen):
            of_step = f"{where} AND {IN_STEP}", (*values, *key), selection
            if has_inferred:
                self._catalog.infer(*of_step, seen)
            for each in self._catalog.recorded(*of_step, seen):
                if selection.takes(main_row(each.parts)):
                    yield each

    # Questions in SQL

    def query(
        self,
        sql: str,
        step: int | Container[int | None] | None = None,
        *,
        max_rows: int,
        seconds: float,
        has_regexp: bool = False,
    ) -> Answer:
        """Answer a question in SQL over the catalog's tables; spans and messages are filled first, if it reads them.

        Args:
            sql: One SELECT.
            step: Only these steps; None for all.
            max_rows: The most rows of the answer.
            seconds: The time that the answer may take, without the filling.
            has_regexp: True if REGEXP is answered, whose patterns only the user's own command line may give.

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

        answer, unreadable, read_as = self.take(sql, take, step, seconds=seconds, has_regexp=has_regexp)
        return replace(answer, unreadable=unreadable, read_as=read_as)

    def take(
        self,
        sql: str,
        take: Callable[[sqlite3.Cursor], Answered],
        step: int | Container[int | None] | None = None,
        *,
        seconds: float,
        has_regexp: bool = False,
    ) -> tuple[Answered, Sequence[str], Mapping[str, str]]:
        """Ask a question; the other arguments are the same as for `query`.

        Args:
            sql: One SELECT.
            take: Makes something of the rows, without a trace of an earlier call: a damaged catalog is asked anew.
            step: Only these steps; None for all.
            seconds: The time that the answer may take, without the filling.
            has_regexp: True if REGEXP is answered.

        Returns:
            What is made of the rows, the trajectories that can't be read, and the names that were read as columns.
        """
        with self.one_look():
            asked = understood(sql, has_regexp=has_regexp)
            if not all(_INFERRED.isdisjoint(asked.columns.get(table, ())) for table in ("trajectories", "steps")):
                self.infer(step)
            if not asked.columns.keys().isdisjoint({"steps", "groups"}):
                self._catalog.ask(lambda connection, _: refresh(connection))
            # All trajectories are looked at: a question may have a condition on other steps.
            keys = self._step_keys(step)
            steps = None if step is None else keys
            of_spans = {table: asked.columns[table] for table in OF_SPANS if table in asked.columns}

            def question(connection: sqlite3.Connection) -> Answered:
                if of_spans:
                    show_rows(connection, keys, of_spans)
                with asked_tables(connection, steps, self._experiment, self._run, self._attempt):
                    return take_rows(connection, asked.sql, take, seconds)

            if of_spans:
                check_size(self._catalog, keys)
            return *ask_filled(self._catalog, keys if of_spans else (), question), asked.read_as

    def _step_keys(self, step: int | Container[int | None] | None) -> list[StepKey]:
        return [key for key in self._catalog.step_keys() if Selection(step).takes_step(key[0], validate=key[1])]

    def span_rows(
        self,
        table: str,
        columns: Sequence[str],
        step: int | Container[int | None] | None,
        take: Callable[[list[list[Any]]], Answered],
    ) -> tuple[list[Answered], Sequence[str]]:
        """Return rows of spans, messages or conversations, and the trajectories that can't be read.

        Args:
            table: The table.
            columns: The names of its columns.
            step: Only these steps; None for all.
            take: Makes something of the values of each column, of some rows at a time.
        """
        taken: list[Answered] = []
        unreadable: list[str] = []
        with self.one_look():
            # One step at a time is kept for this.
            for key in self._step_keys(step):
                of_step = partial(take_counted, key=key, table=table, columns=columns, take=take)
                found, missing = ask_filled(self._catalog, [key], of_step)
                taken += found
                unreadable += missing
        return taken, unreadable


def _condition_of(trace: str, filters: Filters) -> tuple[str, list[Any]]:
    """Return the condition of filters that the catalog finds quickly, and its values."""
    conditions: list[str] = ["1"]
    values: list[Any] = []
    if trace:
        conditions.append("t.trace_id BETWEEN ? AND ?")
        values += (trace, f"{trace}g")
    if (sample := filters.get("sample_index")) is not None:
        conditions.append(_OF_PROMPT)
        values.append(str(sample))
    if (step := filters.get("step")) is not None and isinstance(step, int):
        conditions.append("t.step = ?")
        values.append(step)
    return " AND ".join(conditions), values


def _signals_of(connection: sqlite3.Connection, step: StepSummary) -> tuple[StepSignals, int, int]:
    """Return the signals of a step, which are computed once, until it changes; and its sides.

    Returns:
        The signals, the trajectories whose inferred facts are known, and those among them with two sides.
    """
    from otel_rollout.catalog.step_signals import StepSignals, signals_of

    where, values = members_of(step)
    kept = connection.execute(f"SELECT signals FROM signals WHERE {OF_RUN}", step.identity).fetchone()
    if kept is not None:
        signals = from_json(StepSignals, orjson.loads(kept[0]))
    else:
        connection.execute("BEGIN IMMEDIATE")
        signals = signals_of(load(connection, where, values, ORDER))
        text = orjson.dumps(signals, default=tuple).decode()
        connection.execute("INSERT INTO signals VALUES (?, ?, ?, ?, ?)", (*step.identity, text))
        connection.execute("COMMIT")
    select = f"SELECT count(*), total(two_sides) FROM trajectories WHERE {where}"
    select += " AND trace_id NOT IN (SELECT trace_id FROM inferred WHERE NOT is_known)"
    [(looked_at, two_sides)] = connection.execute(select, values)
    return signals, looked_at, int(two_sides)


def _inferred_of(connection: sqlite3.Connection, step: StepIdentity) -> list[str]:
    """Return the trajectories of a step with facts that are inferred, known or not, in a fixed order."""
    where, values = members_of(step)
    select = f"SELECT trace_id FROM inferred JOIN trajectories t USING (trace_id) WHERE {where} ORDER BY trace_id"
    return [trace_id for (trace_id,) in connection.execute(select, values)]


def _spread(of_steps: Sequence[Sequence[str]], most: int) -> list[str]:
    """Return trajectories whose facts are to be inferred, as many of each step as there are, in all at most so many.

    Args:
        of_steps: The trajectories of each step in any fixed order.
        most: The most trajectories.
    """
    count = len(of_steps)
    chosen = of_steps if count <= most else [of_steps[at * count // most] for at in range(most)]
    ranks = (each for rank in zip_longest(*chosen) for each in rank if each is not None)
    return list(islice(ranks, most))


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
