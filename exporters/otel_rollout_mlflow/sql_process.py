"""A tracking database, written to by a process of its own.

MLflow's store takes milliseconds of Python per span, and would hold the GIL of the trainer's process for them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.export.worker_process import Worker, WorkerGoneError
from otel_rollout.guard.log_once import warn_once
from otel_rollout.otlp import encode_spans
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import AttemptError, Store
from otel_rollout_mlflow.tracking_uri import TrackingUri

WORKER: Final = "otel_rollout_mlflow.sql_worker"
SPANS_OF_A_PIECE: Final = 64
SECONDS_FOR_TABLES: Final = 900.0
"""PostgreSQL takes minutes on a busy machine."""


def _forwarded(method: str) -> Callable[..., Any]:
    def call(self: SqlProcess, *arguments: Any) -> Any:
        return self._call(method, *arguments)

    return call


class SqlProcess(Store):
    """A `SqlStore` in a process of its own; in this process if none can be started."""

    def __init__(self, uri: TrackingUri) -> None:
        self._uri = uri
        self._worker = Worker(WORKER, {}, "the MLflow database")
        self._here: Store | None = None

    def prepare(self) -> None:
        """Start the process and open the database; a new one gets its tables."""
        self._call("prepare", seconds=SECONDS_FOR_TABLES)

    ensure_experiment = _forwarded("ensure_experiment")
    link = _forwarded("link")
    record = _forwarded("record")
    span_ids = _forwarded("span_ids")
    run_status = _forwarded("run_status")
    find_runs = _forwarded("find_runs")
    create_run = _forwarded("create_run")
    delete_run = _forwarded("delete_run")
    settle_run = _forwarded("settle_run")
    set_run_status = _forwarded("set_run_status")

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        if self._worker.start():
            # A few at a time: one long call would block the trainer's threads.
            firsts = range(0, len(spans), SPANS_OF_A_PIECE)
            self._call("write", experiment_id, [encode_spans(spans[each : each + SPANS_OF_A_PIECE]) for each in firsts])
        else:
            self._call("write", experiment_id, spans)

    def close(self) -> None:
        self._worker.close()
        if self._here is not None:
            self._here.close()

    def _call(self, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        if not self._worker.start():
            self._here = self._here or SqlStore(self._uri)
            return getattr(self._here, method)(*arguments)
        try:
            answer = self._worker.call(pickle.dumps((self._uri, method, arguments), pickle.HIGHEST_PROTOCOL), seconds)
        except WorkerGoneError as error:
            raise AttemptError(Outcome(Verdict.RETRY, str(error), is_unanswered=True)) from error
        result, failure, lines = pickle.loads(answer)  # noqa: S301 - it comes from a process that this one started
        for line in lines:
            warn_once(f"mlflow log {line}", "MLflow, in the process that writes to its database: %s", line)
        if failure is not None:
            outcome, is_missing, is_taken = failure
            raise AttemptError(outcome, is_missing=is_missing, is_taken=is_taken)
        return result
