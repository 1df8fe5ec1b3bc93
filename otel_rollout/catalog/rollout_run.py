"""A training run as its trace folders have it: steps, groups and trajectories by their summaries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

from otel_rollout.catalog.figures import SummarisedRun, summarise_runs
from otel_rollout.catalog.group_summary import GroupSummary
from otel_rollout.catalog.search import Search, SearchQuery
from otel_rollout.catalog.step_places import (
    Bundle,
    LooseTraces,
    OnProblem,
    Places,
    find_places,
    parts_by_step,
    parts_of,
    read_loose,
)
from otel_rollout.catalog.step_signals import JudgedStep, StepSignals, signals_of
from otel_rollout.catalog.step_summary import StepSummary, with_run_ids
from otel_rollout.errors import NoTracesError, UnreadableTraceError
from otel_rollout.facts.shapes import SpanShape
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.folder.index import place_of
from otel_rollout.folder.reader import ReadProblem, RecordedTrajectory, join_parts
from otel_rollout.folder.stored_file import Part
from otel_rollout.folder.summaries import summaries_of
from otel_rollout.folder.trace_files import StepKey

MAX_TRAJECTORIES: Final = 2**15
"""The most trajectories of the steps that are kept, without the step that was asked for last."""

MAX_PARTS: Final = 2**17
"""Index entries of further bundles are read again."""

_TRACE_ID: Final = place_of("trace_id")
_OFFSET: Final = place_of("offset")


@dataclass(frozen=True, slots=True)
class _LoadedStep:
    """A step's trajectories.

    Args:
        version: The places of its parts.
        runs: The summaries.
        recorded: The trajectories, by trace id.
    """

    version: Any
    runs: list[SummarisedRun]
    recorded: dict[str, RecordedTrajectory]
    summaries: dict[str, TrajectorySummary]


class Run:
    """The trajectories of trace folders, with the summaries of steps and groups; thread-safe.

    A folder that is being written is looked at anew at each call. What was read is kept until its files change; of the
    trajectories only the last steps that were asked for.

    Args:
        folders: The trace folders: several hold parts of one run, or runs to compare.
        on_problem: Called once for everything that can't be read; by default nothing is.
        on_progress: Called with the number of bundles of steps that have been read, and of all.
        experiment: The only experiment whose steps there are; None for all.
        run: The beginning of the id of the only run whose steps there are; None for all.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        on_problem: OnProblem | None = None,
        on_progress: Callable[[int, int], None] | None = None,
        *,
        experiment: str | None = None,
        run: str | None = None,
    ) -> None:
        self.folders = tuple(map(Path, folders))
        self._experiment, self._run = experiment, run
        self._on_problem = on_problem
        self._on_progress = on_progress or (lambda done, total: None)
        self._problems: set[ReadProblem] = set()
        self._lock = Lock()
        self._loading = Lock()
        self._bundles: OrderedDict[Any, Mapping[StepKey, list[Part]]] = OrderedDict()
        self._steps: dict[StepKey, tuple[Any, list[StepSummary]]] = {}
        self._signals: dict[Any, tuple[Any, StepSignals]] = {}
        self._loaded: OrderedDict[StepKey, _LoadedStep] = OrderedDict()
        self._loose: LooseTraces | None = None

    def version(self) -> str:
        """Return a text that differs once a file of the folders has changed.

        Raises:
            NoTracesError: None of the folders has traces.
        """
        return find_places(self.folders).version

    def steps(self) -> list[StepSummary]:
        """Return the summaries of all steps in order, training before validation, one for each run of each experiment.

        If several runs of an experiment have the same rollouts, each step has its run's id. Those that are missing are
        made, which can take seconds a step.

        Raises:
            NoTracesError: None of the folders has traces.
        """
        places, loose = self._look()
        found: dict[StepKey, list[StepSummary]] = {}
        for done, bundle in enumerate(places.bundles):
            self._on_progress(done, len(places.bundles))
            for key, parts in self._parts(bundle).items():
                found[key] = self._step(key, parts, loose)
        for key in loose.steps:
            if key not in found:
                found[key] = self._step(key, [], loose)
        self._on_progress(len(places.bundles), len(places.bundles))
        steps = with_run_ids([step for key in sorted(found) for step in found[key]])
        return [step for step in steps if self._takes(step)]

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
        _, loose = self._look()
        files = {file for traces in loose.steps.values() for parts in traces.values() for file, _ in parts}
        written = {file for file in files if file.is_journal and file.is_being_written()}
        return {
            (None if key.has_no_step else key.step, key.validate)
            for key, traces in loose.steps.items()
            if any(file in written for parts in traces.values() for file, _ in parts)
        }

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
        return [each for run in runs for each in run.trajectories]

    def judged(self, steps: Iterable[StepSummary]) -> list[JudgedStep]:
        """Return steps with their signs of trouble, which are computed from their trajectories, and kept."""
        places, loose = self._look()
        found = []
        for step in steps:
            key = StepKey.of(step.step, validate=step.validate)
            version = _version_of(key, self._parts_of(key, places), loose)
            known = self._signals.get(step.identity)
            if known is None or known[0] != version:
                trajectories = self.summaries(*step.identity)
                own = [each for each in trajectories if each.experiment_name == step.experiment_name]
                self._signals[step.identity] = known = version, signals_of(own)
            found.append(JudgedStep.of(step, known[1]))
        return found

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
                    return group, [each for each in run.trajectories if each.trace_id in ids]
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
        places, loose = self._look()
        found: list[GroupSummary] = []
        for key in self._keys(places, loose):
            if key.validate == validate and not key.has_no_step:
                runs = self._load(key, places, loose).runs
                found += [group for run in runs for group in run.groups if str(group.sample_index) == str(sample_index)]
        named = {None, experiment, self._experiment} - {None}
        return [group for group in found if named <= {group.experiment_name}]

    def trajectory(self, trace_id: str) -> RecordedTrajectory:
        """Return a trajectory, whose spans are read on first use.

        Raises:
            KeyError: There is none with this id.
        """
        return self._step_of(trace_id).recorded[trace_id]

    def summary(self, trace_id: str) -> TrajectorySummary:
        """Return a trajectory's summary.

        Raises:
            KeyError: There is none with this id.
        """
        return self._step_of(trace_id).summaries[trace_id]

    def shapes(self, summaries: Iterable[TrajectorySummary]) -> Iterator[Sequence[SpanShape]]:
        """Yield the places of each trajectory's spans on a timeline; nothing if its frame can't be read.

        Args:
            summaries: Trajectories of this run, sorted by step.
        """
        places, loose = self._look()
        for each in summaries:
            step = self._load(StepKey.of(each.step, validate=each.validate), places, loose)
            try:
                yield step.recorded[each.trace_id].shapes
            except (LookupError, UnreadableTraceError):
                yield ()

    def search(self, query: SearchQuery) -> Search:
        """Search the trajectories in order; the hits come while the search goes on.

        Raises:
            ValueError: The query is empty, or of another kind.
        """
        return Search(query, self._searched(query))

    def _searched(self, query: SearchQuery) -> Iterator[RecordedTrajectory]:
        places, loose = self._look()
        for key in self._keys(places, loose):
            if query.step is not None and query.step != ("none" if key.has_no_step else key.step):
                continue
            if not key.has_no_step and query.validate not in (None, key.validate):
                continue
            recorded = list(self._load(key, places, loose).recorded.values())
            for each in recorded:
                if (
                    _is_in(each, query)
                    and self._experiment in (None, each.experiment_name)
                    and self._is_of_run(each.run_id)
                ):
                    yield each

    def _look(self) -> tuple[Places, LooseTraces]:
        """Return the files as they are now, and the traces of those that are of no step."""
        places = find_places(self.folders)
        with self._lock:
            if self._loose is None or self._loose.sizes != places.loose_sizes:
                self._loose = read_loose(places, self._note)
                if self._loose.steps:
                    # Again: a trajectory that has ended meanwhile is in a bundle.
                    places = find_places(self.folders)
            return places, self._loose

    def _parts(self, bundle: Bundle) -> Mapping[StepKey, list[Part]]:
        """Return the parts of a bundle's steps."""
        with self._lock:
            steps = self._bundles.get(bundle.sizes)
        if steps is None:
            steps = parts_by_step(bundle, self._note)
        with self._lock:
            self._bundles[bundle.sizes] = steps
            self._bundles.move_to_end(bundle.sizes)
            while len(self._bundles) > 1 and sum(map(_count, self._bundles.values())) > MAX_PARTS:
                self._bundles.popitem(last=False)
        return steps

    def _keys(self, places: Places, loose: LooseTraces) -> list[StepKey]:
        return sorted({key for bundle in places.bundles for key in self._parts(bundle)} | set(loose.steps))

    def _step(self, key: StepKey, parts: Sequence[Part], loose: LooseTraces) -> list[StepSummary]:
        version = _version_of(key, parts, loose)
        known = self._steps.get(key)
        if known is None or known[0] != version:
            known = self._steps[key] = version, [run.summary for run in self._loaded_step(key, parts, loose).runs]
        return known[1]

    def _runs(
        self, step: int | None, validate: bool, experiment: str | None, run_id: str | None
    ) -> Iterator[SummarisedRun]:
        places, loose = self._look()
        for run in self._load(StepKey.of(step, validate=validate), places, loose).runs:
            found = run.summary
            # The folder of trajectories without a step has validation's too.
            is_of_run = found.run_id is None or run_id in (None, found.run_id)
            is_asked_for = is_of_run and experiment in (None, found.experiment_name) and self._takes(found)
            if is_asked_for and found.validate == validate:
                yield run

    def _step_of(self, trace_id: str) -> _LoadedStep:
        """Return the step that has a trajectory.

        Raises:
            KeyError: None has.
        """
        places, loose = self._look()
        with self._lock:
            likely = [key for key, step in self._loaded.items() if trace_id in step.recorded]
        for key in [*likely, *self._keys(places, loose)]:
            step = self._load(key, places, loose)
            if trace_id in step.recorded:
                return step
        raise KeyError(f"there is no trajectory {trace_id}")

    def _load(self, key: StepKey, places: Places, loose: LooseTraces) -> _LoadedStep:
        return self._loaded_step(key, self._parts_of(key, places), loose)

    def _parts_of(self, key: StepKey, places: Places) -> list[Part]:
        bundles = [each for each in places.bundles if any(file.steps and file.steps.takes(key) for file in each.files)]
        return [part for each in bundles for part in self._parts(each).get(key, ())]

    def _loaded_step(self, key: StepKey, parts: Sequence[Part], loose: LooseTraces) -> _LoadedStep:
        version = _version_of(key, parts, loose)
        with self._loading:
            step = self._loaded.get(key)
            if step is None or step.version != version:
                recorded = list(join_parts(parts, loose.steps.get(key, {}), self._find))
                summaries = {each.trace_id: each for each in summaries_of(recorded)}
                runs = summarise_runs(summaries.values())
                step = _LoadedStep(version, runs, {each.trace_id: each for each in recorded}, summaries)
            with self._lock:
                self._loaded[key] = step
                self._loaded.move_to_end(key)
                while len(self._loaded) > 1 and sum(len(each.recorded) for each in self._loaded.values()) > (
                    MAX_TRAJECTORIES
                ):
                    self._loaded.popitem(last=False)
            return step

    def _find(self, trace_id: str) -> list[Part]:
        """Return the parts of a trace, wherever they are now."""
        try:
            places = find_places(self.folders)
        except NoTracesError:
            return []
        files = [file for bundle in places.bundles for file in bundle.files]
        return [part for part in parts_of([*files, *places.loose], self._note) if part[1][_TRACE_ID] == trace_id]

    def _note(self, problem: ReadProblem) -> None:
        if problem not in self._problems:
            self._problems.add(problem)
            if self._on_problem is not None:
                self._on_problem(problem)


def _count(steps: Mapping[StepKey, Sequence[Part]]) -> int:
    return sum(map(len, steps.values()))


def _version_of(key: StepKey, parts: Sequence[Part], loose: LooseTraces) -> Any:
    return hash(tuple((file.path, row[_OFFSET]) for file, row in parts)), loose.steps.get(key) and loose.sizes


def _is_in(trajectory: RecordedTrajectory, query: SearchQuery) -> bool:
    return (
        query.validate in (None, trajectory.validate)
        and query.experiment in (None, trajectory.experiment_name)
        and query.run_id in (None, trajectory.run_id)
    )
