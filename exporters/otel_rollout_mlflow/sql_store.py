"""A tracking database, written to in this process by MLflow's own store."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.export.recent import RecentDict
from otel_rollout.guard.clock import monotonic
from otel_rollout.guard.log_once import warn_once
from otel_rollout_mlflow import database
from otel_rollout_mlflow.mlflow_store import (
    FIRST_VERSION,
    TEXTS_VERSION,
    Fault,
    assessment_of,
    attempt,
    explained,
    fault_of,
    import_mlflow,
    is_broken,
    reason_of,
)
from otel_rollout_mlflow.sqlite_file import check_sqlite_file, ensure_sqlite_file
from otel_rollout_mlflow.store import (
    FINISHED,
    RUN_KEY_TAG,
    RUN_SETTLED_TAG,
    AttemptError,
    Feedback,
    Store,
    check_experiment,
    configuration_error,
    get_or_create_experiment,
    upsert_reward,
)
from otel_rollout_mlflow.tracking_uri import TrackingUri, check_driver
from otel_rollout_mlflow.translate import stored_spans, tags_of_traces

if TYPE_CHECKING:
    from otel_rollout_mlflow.bulk_store import BulkStore

MAX_TAGS: Final = 20_000
"""The written trace tags that are remembered."""
SECONDS_FOR_OTHERS: Final = 60.0
"""The seconds that another program may take to make the database before it counts as broken."""


_Result = TypeVar("_Result")


class SqlStore(Store):
    """One tracking database."""

    def __init__(self, uri: TrackingUri) -> None:
        self._uri = uri
        self._tracing: Any = None
        self._client: Any = None
        self._version: tuple[int, ...] = FIRST_VERSION
        self._pid = 0
        self._inode: int | None = None
        self._waiting_since: float | None = None
        self._tags: RecentDict[tuple[int, str], str] = RecentDict(MAX_TAGS)
        self._bulk: BulkStore | None = None
        self._names: dict[str, str] = {}

    def prepare(self) -> None:
        """Open the database, and make its tables if it has none."""
        self._open()

    def ensure_experiment(self, name: str) -> str:
        def find() -> tuple[str, bool] | None:
            found = self._call(lambda client: client.get_experiment_by_name(name))
            return None if found is None else (str(found.experiment_id), found.lifecycle_stage == "deleted")

        experiment_id = get_or_create_experiment(
            name, find, lambda: str(self._call(lambda client: client.create_experiment(name)))
        )
        self._names[experiment_id] = name
        return experiment_id

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        self._open()
        tags = tags_of_traces(spans)
        # A tag costs the store more than a span: it is written once, not with each batch of its trace.
        new = {
            trace_id: {name: value for name, value in found.items() if self._tags.get((trace_id, name)) != value}
            for trace_id, found in tags.items()
        }
        left = self._write_in_bulk(experiment_id, spans, new)
        if left:
            self._write_by_mlflow(experiment_id, left, new)
        for trace_id, found in new.items():
            for name, value in found.items():
                self._tags[trace_id, name] = value

    def _write_in_bulk(
        self, experiment_id: str, spans: Sequence[ReadableSpan], tags: Mapping[int, Mapping[str, str]]
    ) -> Sequence[ReadableSpan]:
        """Write spans by statements of our own; return those that are left to MLflow's store."""
        if self._bulk is None:
            return spans
        try:
            return self._bulk.write(experiment_id, self._names.get(experiment_id), spans, tags)
        except Exception as error:
            self._explain_bulk(error)
            return spans

    def _write_by_mlflow(
        self, experiment_id: str, spans: Sequence[ReadableSpan], tags: Mapping[int, Mapping[str, str]]
    ) -> None:
        from mlflow.entities import Span

        experiment = self._call(lambda client: client.get_experiment(experiment_id))
        name = self._names.get(experiment_id)
        check_experiment(experiment_id, (experiment.name, experiment.lifecycle_stage), name)
        stored = stored_spans(spans, unwraps_texts=self._version < TEXTS_VERSION, tags=tags)
        records = [Span(span) for span in stored]
        attempt(lambda: self._tracing.log_spans(experiment_id, records))

    def _explain_bulk(self, error: Exception) -> None:
        """Raise if the database is away or busy; else MLflow's store is asked, and reports bad data."""
        if isinstance(error, AttemptError):
            raise error
        fault = fault_of(error)
        if fault == Fault.DENIED or is_broken(str(error)):
            raise explained(error) from error
        if fault in (Fault.CONNECTION, Fault.DEADLOCK, Fault.READ_ONLY):
            raise AttemptError(Outcome(Verdict.RETRY, reason_of(error))) from error
        if fault != Fault.CONSTRAINT:
            warn_once(
                f"mlflow bulk {type(error).__name__}",
                "spans can't be written into the MLflow database in bulk (%s): MLflow's own store writes them",
                reason_of(error),
            )

    def link(self, trace_ids: Sequence[str], run_id: str) -> None:
        self._call(lambda client: client.link_traces_to_run(list(trace_ids), run_id))

    def record(self, rewards: Sequence[Feedback]) -> None:
        self._open()
        left = rewards
        if self._bulk is not None:
            try:
                left = self._bulk.record(rewards)
            except Exception as error:
                self._explain_bulk(error)
        for feedback in left:
            self._record(feedback, assessment_of(feedback))

    def _record(self, feedback: Feedback, assessment: Any) -> None:
        ids, store = (feedback.trace_id, feedback.assessment_id), self._tracing.store
        changes = {
            "feedback": assessment.feedback,
            "metadata": feedback.metadata,
            "rationale": feedback.rationale or None,
        }
        upsert_reward(
            feedback,
            lambda: attempt(lambda: store.create_assessment(assessment)),
            lambda: attempt(lambda: store.get_assessment(*ids)).metadata,
            lambda: attempt(lambda: store.update_assessment(*ids, **changes)),
        )

    def span_ids(self, trace_id: str) -> set[str] | None:
        self._open()
        store = self._tracing.store
        traces = attempt(lambda: store.batch_get_traces([trace_id]))
        return {str(span.span_id) for trace in traces for span in trace.data.spans}

    def run_status(self, run_id: str) -> str | None:
        try:
            info = self._call(lambda client: client.get_run(run_id)).info
        except AttemptError as error:
            if error.is_missing or error.outcome.verdict is Verdict.REFUSED:
                return None
            raise
        return None if info.lifecycle_stage == "deleted" else str(info.status)

    def find_runs(self, experiment_id: str, key: str) -> list[tuple[str, bool]]:
        runs = self._call(
            lambda client: client.search_runs(
                [experiment_id],
                filter_string=f"tags.`{RUN_KEY_TAG}` = '{key}'",
                order_by=["attributes.start_time ASC", "attributes.run_id ASC"],
            )
        )
        return [(str(run.info.run_id), RUN_SETTLED_TAG in run.data.tags) for run in runs]

    def create_run(self, experiment_id: str, name: str, key: str) -> str:
        run = self._call(lambda client: client.create_run(experiment_id, run_name=name, tags={RUN_KEY_TAG: key}))
        return str(run.info.run_id)

    def delete_run(self, run_id: str) -> None:
        self._call(lambda client: client.delete_run(run_id))

    def settle_run(self, run_id: str) -> None:
        self._call(lambda client: client.set_tag(run_id, RUN_SETTLED_TAG, "true"))

    def set_run_status(self, run_id: str, status: str) -> None:
        method = "set_terminated" if status == FINISHED else "update_run"
        self._call(lambda client: getattr(client, method)(run_id, status=status))

    def close(self) -> None:
        tracing, self._tracing, self._client = self._tracing, None, None
        if tracing is not None and self._pid == os.getpid():
            _dispose(tracing, close=True)
        self._close_bulk()

    def _close_bulk(self) -> None:
        bulk, self._bulk = self._bulk, None
        if bulk is not None and self._pid == os.getpid():
            bulk.close()

    def _call(self, work: Callable[[Any], _Result]) -> _Result:
        client = self._open()
        return attempt(lambda: work(client))

    def _open(self) -> Any:
        """Return MLflow's client of the database; create a SQLite file that doesn't exist."""
        path = self._uri.sqlite_path
        if self._client is not None:
            if self._pid == os.getpid() and (path is None or self._inode == _inode(path)):
                return self._client
            # After a fork connections must not be shared; after the file was replaced they lead to the old one.
            _dispose(self._tracing, close=self._pid == os.getpid())
            self._client = self._tracing = None
            self._close_bulk()
        self._tags.clear()
        mlflow, self._version = import_mlflow()
        if path is not None:
            self._ensure_file(path, mlflow)
        engine = self._opened(lambda: database.make_engine(self._uri.uri))
        database.try_connection(engine, self._uri.uri)

        def make() -> Any:
            return self._opened(lambda: mlflow.tracing.client.TracingClient(self._uri.uri))

        self._tracing = attempt(lambda: database.opened(engine, make))
        self._client = self._opened(lambda: mlflow.tracking.MlflowClient(tracking_uri=self._uri.uri))
        self._pid, self._inode = os.getpid(), _inode(path) if path is not None else None
        self._bulk = self._opened_bulk(engine)
        return self._client

    def _opened_bulk(self, engine: Any) -> BulkStore | None:
        """Return the store that writes in bulk; None if MLflow's own has to."""
        try:
            from mlflow.store.tracking.utils.sql_trace_rollups import rollups_enabled

            if rollups_enabled():
                # MLflow keeps tables of sums, which it must then update itself.
                return None
        except ImportError:
            # Before 3.17.
            pass
        # The store for workspaces asks more of each query.
        is_known = type(self._tracing.store).__name__ == "SqlAlchemyStore"
        try:
            from otel_rollout_mlflow import bulk_sql, bulk_store

            is_known &= engine.dialect.driver in bulk_sql.DRIVERS
            is_known &= attempt(lambda: database.revision_of(engine)) in bulk_store.REVISIONS
        except ImportError:
            # This version of MLflow lacks a function that decides on the content of rows.
            is_known = False
        if not is_known:
            warn_once(
                f"mlflow layout {self._uri.uri}",
                "mlflow %s: the layout of its database is not known: its own store writes the spans, more slowly",
                ".".join(map(str, self._version)),
            )
            return None
        return bulk_store.BulkStore(self._uri.uri)

    def _opened(self, make: Callable[[], _Result]) -> _Result:
        """Make a client; raise CONFIGURATION_ERROR for what only another setting or package fixes."""
        from sqlalchemy.exc import ArgumentError

        try:
            if not self._uri.uri.startswith("sqlite"):
                check_driver(self._uri.uri)
            return attempt(make)
        except AttemptError as error:
            if isinstance(error.__cause__, (ImportError, ArgumentError, ValueError)):
                raise configuration_error(error.outcome.reason) from error
            raise
        except ConfigurationError as error:
            raise configuration_error(str(error)) from error

    def _ensure_file(self, path: Path, mlflow: Any) -> None:
        def initialise(file: Path) -> None:
            store, uri = mlflow.store.tracking.sqlalchemy_store.SqlAlchemyStore, f"sqlite:///{file}"
            try:
                store(uri, str(path.parent / "mlruns")).engine.dispose()
            finally:
                # MLflow keeps engines by URI: after a failure the next attempt would write to the removed file.
                engine = getattr(store, "_engine_map", {}).pop(uri, None)
                if engine is not None:
                    engine.dispose()

        try:
            check_sqlite_file(path)
        except ConfigurationError as error:
            raise configuration_error(str(error)) from error
        try:
            is_complete = attempt(lambda: ensure_sqlite_file(path, initialise))
        except OSError as error:
            raise configuration_error(f"{path}: {error}") from error
        now = monotonic()
        if is_complete:
            self._waiting_since = None
        elif self._waiting_since is None or now - self._waiting_since < SECONDS_FOR_OTHERS:
            self._waiting_since = self._waiting_since or now
            raise AttemptError(Outcome(Verdict.RETRY, f"{path} is being made by another program", retry_after=0.5))
        else:
            raise configuration_error(
                f"{path} is an incomplete MLflow database, perhaps left by an interrupted start: remove it, or try "
                f"`mlflow db upgrade {self._uri.uri}`"
            )


def _dispose(tracing: Any, *, close: bool) -> None:
    with suppress(Exception):
        tracing.store.engine.dispose(close=close)


def _inode(path: Path) -> int | None:
    """Return the number of a file; None if there is none, or nothing in it: the tables are to be made again."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino if found.st_size else None
