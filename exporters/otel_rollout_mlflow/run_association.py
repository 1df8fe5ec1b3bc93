"""Which run the traces belong to: the one given, the process's active one, or one that all workers share."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from typing import Final

from otel_rollout.delivery.outcome import Outcome, Verdict
from otel_rollout.log_once import warn_once
from otel_rollout_mlflow.attempt import AttemptError
from otel_rollout_mlflow.store import MAX_LINKED_TRACES, Store

__all__ = ["RunAssociation", "active_run_id"]

VARIABLE: Final = "MLFLOW_RUN_ID"
SECONDS_TO_SETTLE: Final = 5.0
"""After so long, every worker that made a run at the same time as we did has been seen."""


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


class RunAssociation:
    """Finds the run for each batch.

    Args:
        run_id: The run, if it is given.
        is_created: Whether to make a run for (project, experiment name) where there is none.
    """

    def __init__(self, run_id: str | None, *, is_created: bool) -> None:
        self._given = run_id
        self._is_created = is_created
        self._known: dict[str, bool] = {}
        self._created: dict[tuple[str, str], _CreatedRun] = {}

    def run_id(self, store: Store, experiment_id: str, experiment_name: str) -> str | None:
        """Return the run that a batch belongs to, if any.

        Args:
            store: Where the runs are.
            experiment_id: The MLflow experiment of the batch.
            experiment_name: What `init` calls the experiment: the run's name, where one is made.
        """
        for candidate in (self._given, active_run_id(), os.environ.get(VARIABLE)):
            if candidate and self._is_known(store, candidate):
                return candidate
        if not self._is_created or not experiment_name:
            return None
        created = self._created.get((experiment_id, experiment_name))
        if created is None:
            created = self._created[experiment_id, experiment_name] = _CreatedRun(experiment_id, experiment_name)
        return created.run_id(store)

    def note(self, run_id: str, trace_ids: list[str]) -> None:
        """Remember what was associated with a run while it isn't certain yet that the workers agree on it."""
        for created in self._created.values():
            created.note(run_id, trace_ids)

    def finish(self, store: Store) -> None:
        """Settle on the runs that were made and mark them as finished."""
        for created in self._created.values():
            created.finish(store)

    def _is_known(self, store: Store, run_id: str) -> bool:
        # MLflow's OTLP endpoint says nothing when it doesn't know the run: so it is asked for, once.
        if run_id not in self._known:
            self._known[run_id] = store.has_run(run_id)
            if not self._known[run_id]:
                warn_once(
                    f"mlflow run {run_id}",
                    "MLflow has no run %s at this tracking URI: trajectories are not associated with it",
                    run_id,
                )
        return self._known[run_id]


class _CreatedRun:
    """One run that all workers of (project, experiment name) share, though nobody tells them of each other.

    Each worker looks for the run and makes one if there is none. Where several did so at once, all of them go on with
    one: the first that a worker has settled on, else the first made. The others are deleted by those who made them.
    """

    def __init__(self, experiment_id: str, experiment_name: str) -> None:
        self._experiment_id = experiment_id
        self._name = experiment_name
        self._key = hashlib.sha256(self._name.encode("utf-8", "replace")).hexdigest()[:32]
        self._run_id: str | None = None
        self._own: str | None = None
        self._chosen_at = 0.0
        self._is_settled = False
        self._linked: list[str] = []

    def run_id(self, store: Store) -> str:
        """Return the run as things stand now."""
        if self._run_id is None:
            if self._own is None and not store.find_runs(self._experiment_id, self._key):
                self._own = store.create_run(self._experiment_id, self._name, self._key)
            chosen = self._choose(store)
            self._chosen_at = time.monotonic()
            return chosen
        if not self._is_settled and time.monotonic() - self._chosen_at >= SECONDS_TO_SETTLE:
            self._settle(store)
        return self._run_id

    def note(self, run_id: str, trace_ids: list[str]) -> None:
        """Remember what was associated with the run, in case it turns out to be another one."""
        if run_id == self._run_id and not self._is_settled:
            self._linked += trace_ids

    def finish(self, store: Store) -> None:
        """Settle on the run and mark it as finished."""
        if self._run_id is not None:
            if not self._is_settled:
                self._settle(store)
            store.finish_run(self._run_id)

    def _settle(self, store: Store) -> None:
        store.settle_run(self._choose(store))
        self._is_settled = True
        self._linked.clear()

    def _choose(self, store: Store) -> str:
        found = store.find_runs(self._experiment_id, self._key)
        chosen = next((run_id for run_id, is_settled in found if is_settled), None)
        if chosen is None:
            chosen = found[0][0] if found else self._own or self._run_id
        if chosen is None:
            raise AttemptError(Outcome(Verdict.RETRY, f"the MLflow run {self._name!r} was deleted just now"))
        if self._run_id not in (None, chosen):
            for first in range(0, len(self._linked), MAX_LINKED_TRACES):
                store.link(self._linked[first : first + MAX_LINKED_TRACES], chosen)
        self._run_id = chosen
        if self._own is not None and self._own != chosen:
            store.delete_run(self._own)
            self._own = None
        return chosen
