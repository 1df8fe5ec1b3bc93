"""Which run the traces belong to: the one given, the process's active one, or one that all workers share."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from typing import Final, NamedTuple

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.safety.log_once import warn_once
from otel_rollout_mlflow.attempt import AttemptError, denied
from otel_rollout_mlflow.store import FINISHED, MAX_LINKED_TRACES, RUNNING, Store

__all__ = ["RunAssociation", "RunQuestion", "active_run_id"]

VARIABLE: Final = "MLFLOW_RUN_ID"
KEY_VARIABLE: Final = "OTEL_ROLLOUT_RUN_ID"
SECONDS_TO_SETTLE: Final = 5.0
"""After so long, every worker that made a run at the same time as we did has been seen."""
SECONDS_BETWEEN_LOOKS: Final = 10.0
"""For so long a run that was there is taken for one that still is, and another server's active run for unknown."""


def active_run_id() -> str | None:
    """Return the run that is active in this process, in whichever thread; else the one that was active last.

    mlflow keeps the active run per thread, and has no public function that sees the others' from the exporter's.
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


class RunQuestion(NamedTuple):
    """What is known of the run that some traces belong to, when their spans are stored.

    Args:
        experiment_id: Their MLflow experiment.
        experiment_name: What `init` calls the experiment: the run's name, if one is made.
        active: The process's active run.
        named: The run that the environment names.
    """

    experiment_id: str
    experiment_name: str
    active: str | None
    named: str | None


class RunAssociation:
    """Finds the run of traces, and associates them with it.

    Args:
        run_id: The run, if it is given.
        is_created: Whether to make a run for (project, experiment name) where there is none.
    """

    def __init__(self, run_id: str | None, *, is_created: bool) -> None:
        self._given = run_id
        self._is_created = is_created
        self._looked: dict[str, tuple[bool, float]] = {}
        self._created: dict[tuple[str, str], _CreatedRun] = {}

    def question(self, experiment_id: str, experiment_name: str) -> RunQuestion | None:
        """Return what is known now of the run of some traces; None if they belong to none.

        Args:
            experiment_id: Their MLflow experiment.
            experiment_name: What `init` calls the experiment.
        """
        active, named = active_run_id(), os.environ.get(VARIABLE) or None
        if self._given or active or named or (self._is_created and experiment_name):
            return RunQuestion(experiment_id, experiment_name, active, named)
        return None

    def link(self, store: Store, question: RunQuestion, trace_ids: list[str]) -> None:
        """Associate at most `MAX_LINKED_TRACES` stored traces with their run.

        Args:
            store: Where the run and the traces are.
            question: What is known of the run.
            trace_ids: The traces.

        Raises:
            AttemptError: Also if the run that is named is not there, or not yet.
        """
        for candidate in (self._given, question.active, question.named):
            if candidate and self._is_there(store, candidate, is_active=candidate == question.active):
                store.link(trace_ids, candidate)
                return
        if self._is_created and question.experiment_name:
            key = question.experiment_id, question.experiment_name
            if key not in self._created:
                self._created[key] = _CreatedRun(*key)
            self._created[key].link(store, trace_ids)
        elif self._given or question.named:
            raise denied(f"MLflow has no run {self._given or question.named} at this tracking URI, or it is deleted")
        else:
            warn_once(
                f"mlflow run {question.active}",
                "MLflow has no run %s at this tracking URI: trajectories are not associated with it",
                question.active,
            )

    def finish(self, store: Store) -> None:
        """Settle on the runs that were made and mark them as finished."""
        for created in self._created.values():
            created.finish(store)

    def _is_there(self, store: Store, run_id: str, *, is_active: bool) -> bool:
        # MLflow associates traces with a run that it doesn't know, and says nothing.
        is_there, looked_at = self._looked.get(run_id, (False, float("-inf")))
        if (is_there or is_active) and time.monotonic() - looked_at < SECONDS_BETWEEN_LOOKS:
            return is_there
        is_there = store.run_status(run_id) is not None
        self._looked[run_id] = is_there, time.monotonic()
        return is_there


class _CreatedRun:
    """One run that all workers of (project, experiment name) share, though nobody tells them of each other.

    Each worker looks for the run and makes one if there is none. Where several did so at once, all of them go on with
    one: the first that a worker has settled on, else the first made. The others are deleted by those who made them.
    Where `OTEL_ROLLOUT_RUN_ID` names the training run, each training run has an MLflow run of its own.
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
        """Associate traces with the run as things stand now; one that was deleted is made anew."""
        status = None if self._run_id is None else store.run_status(self._run_id)
        if status is None:
            self._find(store)
        elif not self._is_settled and time.monotonic() - self._chosen_at >= SECONDS_TO_SETTLE:
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
        """Choose a run where there is none yet, or it was deleted: by its maker for another one, or by a person."""
        self._is_settled = False
        if self._own == self._run_id:
            self._own = None
        if self._own is None and not store.find_runs(self._experiment_id, self._key):
            self._own = store.create_run(self._experiment_id, self._name, self._key)
        self._choose(store)
        self._chosen_at = time.monotonic()

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
