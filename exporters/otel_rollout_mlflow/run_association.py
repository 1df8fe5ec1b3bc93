"""The run of traces: the given one, the process's active one, or one that all workers share."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import Final, NamedTuple

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import warn_once
from otel_rollout.settings import Setting, read_bool, read_text
from otel_rollout_mlflow.store import FINISHED, MAX_LINKED_TRACES, RUNNING, AttemptError, Store, configuration_error

RUN_ID: Final = Setting("MLFLOW_RUN_ID", read_text, None, "the run that traces are associated with", "run_id")
CREATE_RUN: Final = Setting(
    "OTEL_ROLLOUT_MLFLOW_CREATE_RUN",
    read_bool,
    False,
    "`true`: create a run for all workers if there is none",
    "create_run",
)
KEY_VARIABLE: Final = "OTEL_ROLLOUT_RUN_ID"
SECONDS_TO_SETTLE: Final = 5.0
"""After so long, the run of every worker that started when we did is found."""
SECONDS_BETWEEN_LOOKS: Final = 10.0
"""The seconds for which the answer is cached that a run exists, or that the active run is another server's."""


def active_run_id() -> str | None:
    """Return the run that is active in any thread of this process; else the last active one.

    mlflow keeps the active run per thread, and has no public function to read another thread's.
    """
    fluent = sys.modules.get("mlflow.tracking.fluent")
    try:
        stacks = fluent._active_run_stack.get_all_thread_values().values()  # type: ignore[union-attr] # noqa: SLF001
        active = [stack[-1].info for stack in stacks if stack]
        if active:
            return str(max(active, key=lambda info: info.start_time).run_id)
        last = fluent._last_active_run_id.get_all_thread_values().values()  # type: ignore[union-attr] # noqa: SLF001
        return next((str(run_id) for run_id in last if run_id), None)
    except (AttributeError, TypeError, IndexError):
        return None


class RunCandidates(NamedTuple):
    """The candidates for the run of some traces, as known when their spans are stored.

    Args:
        experiment_id: The traces' MLflow experiment.
        experiment_name: The experiment name given to `init`; the name of a run that is created.
        active: The process's active run.
        named: The run that `MLFLOW_RUN_ID` names.
    """

    experiment_id: str
    experiment_name: str
    active: str | None
    named: str | None


class RunAssociation:
    """Finds the run of traces and associates them with it.

    Args:
        run_id: The run, if it is given.
        is_created: Create a run for (project, experiment name) if there is none.
    """

    def __init__(self, run_id: str | None, *, is_created: bool) -> None:
        self._given = run_id
        self._is_created = is_created
        self._looked: dict[str, tuple[bool, float]] = {}
        self._created: dict[tuple[str, str], _CreatedRun] = {}

    def candidates(self, experiment_id: str, experiment_name: str) -> RunCandidates | None:
        """Return the candidates for the run of some traces; None if there are none."""
        active, named = active_run_id(), RUN_ID.value()
        if self._given or active or named or (self._is_created and experiment_name):
            return RunCandidates(experiment_id, experiment_name, active, named)
        return None

    def link(self, store: Store, candidates: RunCandidates, trace_ids: list[str]) -> None:
        """Associate at most `MAX_LINKED_TRACES` stored traces with their run.

        Raises:
            AttemptError: The store failed, or the named run doesn't exist, or not yet.
        """
        for candidate in (self._given, candidates.active, candidates.named):
            if candidate and self._is_there(store, candidate, is_active=candidate == candidates.active):
                store.link(trace_ids, candidate)
                return
        if self._is_created and candidates.experiment_name:
            key = candidates.experiment_id, candidates.experiment_name
            if key not in self._created:
                self._created[key] = _CreatedRun(*key)
            self._created[key].link(store, trace_ids)
        elif self._given or candidates.named:
            raise configuration_error(
                f"MLflow has no run {self._given or candidates.named} at this tracking URI, or it is deleted"
            )
        else:
            warn_once(
                f"mlflow run {candidates.active}",
                "MLflow has no run %s at this tracking URI: trajectories are not associated with it",
                candidates.active,
            )

    def finish(self, store: Store) -> None:
        """Settle on the runs that were created and mark them as finished."""
        for created in self._created.values():
            created.finish(store)

    def _is_there(self, store: Store, run_id: str, *, is_active: bool) -> bool:
        # MLflow associates traces with an unknown run without an error.
        is_there, looked_at = self._looked.get(run_id, (False, float("-inf")))
        if (is_there or is_active) and monotonic() - looked_at < SECONDS_BETWEEN_LOOKS:
            return is_there
        is_there = store.run_status(run_id) is not None
        self._looked[run_id] = is_there, monotonic()
        return is_there


class _CreatedRun:
    """One run that all workers of (project, experiment name) share without a message between them.

    Each worker looks for the run and creates one if there is none. If several do so simultaneously, all use the first
    that a worker has settled on, else the first created; each deletes its own if it is another. If
    `OTEL_ROLLOUT_RUN_ID` names the training run, each training run has an MLflow run of its own.
    """

    def __init__(self, experiment_id: str, experiment_name: str) -> None:
        self._experiment_id = experiment_id
        self._name = experiment_name
        training_run = os.environ.get(KEY_VARIABLE)
        key = f"{experiment_name}\n{training_run}" if training_run else experiment_name
        self._key = hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:32]
        self._run_id: str | None = None
        self._own: str | None = None
        self._chosen_at = 0.0
        self._is_settled = False
        self._linked: list[str] = []

    def link(self, store: Store, trace_ids: list[str]) -> None:
        """Associate traces with the run; create a new one if it was deleted."""
        status = None if self._run_id is None else store.run_status(self._run_id)
        if status is None:
            self._find(store)
        elif not self._is_settled and monotonic() - self._chosen_at >= SECONDS_TO_SETTLE:
            self._settle(store)
        run_id = self._known_run_id()
        if status not in (None, RUNNING):
            # Another worker was shut down before us.
            store.set_run_status(run_id, RUNNING)
        store.link(trace_ids, run_id)
        if not self._is_settled:
            self._linked += trace_ids

    def finish(self, store: Store) -> None:
        """Settle on the run and mark it as finished, unless it was deleted."""
        if self._run_id is None:
            return
        if not self._is_settled and store.find_runs(self._experiment_id, self._key):
            self._settle(store)
        if store.run_status(self._run_id) is not None:
            store.set_run_status(self._run_id, FINISHED)

    def _find(self, store: Store) -> None:
        """Choose a run if there is none yet, or it was deleted: by the worker that created it, or by a person."""
        self._is_settled = False
        if self._own == self._run_id:
            self._own = None
        if self._own is None and not store.find_runs(self._experiment_id, self._key):
            self._own = store.create_run(self._experiment_id, self._name, self._key)
        self._choose(store)
        self._chosen_at = monotonic()

    def _settle(self, store: Store) -> None:
        self._choose(store)
        store.settle_run(self._known_run_id())
        self._is_settled = True
        self._linked.clear()

    def _choose(self, store: Store) -> None:
        found = store.find_runs(self._experiment_id, self._key)
        chosen = next((run_id for run_id, is_settled in found if is_settled), None)
        if chosen is None:
            chosen = found[0][0] if found else self._own or self._run_id
        if self._run_id is not None and chosen is not None and self._run_id != chosen:
            for first in range(0, len(self._linked), MAX_LINKED_TRACES):
                store.link(self._linked[first : first + MAX_LINKED_TRACES], chosen)
        self._run_id = chosen
        if self._own is not None and self._own != chosen:
            store.delete_run(self._own)
            self._own = None

    def _known_run_id(self) -> str:
        if self._run_id is None:
            raise AttemptError(Outcome(Verdict.RETRY, f"the MLflow run {self._name!r} was deleted just now"))
        return self._run_id
