"""A tracking database, written to in this process by MLflow's own store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.export.recent import RecentDict
from otel_rollout.installing import install_line
from otel_rollout_mlflow.one_transaction import create_assessments
from otel_rollout_mlflow.sqlite_file import ensure_sqlite_file
from otel_rollout_mlflow.store import (
    FINISHED,
    REWARD_SOURCE,
    RUN_KEY_TAG,
    RUN_SETTLED_TAG,
    AttemptError,
    Feedback,
    Store,
    configuration_error,
    get_or_create_experiment,
    upsert_reward,
)
from otel_rollout_mlflow.tracking_uri import TrackingUri, check_driver
from otel_rollout_mlflow.translate import stored_spans, tags_of_traces

__all__ = ["FIRST_VERSION", "SqlStore"]

FIRST_VERSION: Final = (3, 14)
"""The first version whose store takes several traces at once and makes trace tags of resource attributes."""
TEXTS_VERSION: Final = (3, 18)
"""The first version whose store keeps a text that looks like JSON as text."""
MAX_TAGS: Final = 20_000
"""How many written trace tags are remembered."""
SECONDS_FOR_OTHERS: Final = 60.0
"""How long another program may take to make the database before it counts as broken."""

_PASSING: Final = frozenset({"TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED"})
_INVALID: Final = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST"})

_Result = TypeVar("_Result")


class SqlStore(Store):
    """One tracking database.

    Args:
        uri: The database.
    """

    def __init__(self, uri: TrackingUri) -> None:
        self._uri = uri
        self._tracing: Any = None
        self._client: Any = None
        self._version: tuple[int, ...] = FIRST_VERSION
        self._pid = 0
        self._inode: int | None = None
        self._waiting_since: float | None = None
        self._tags: RecentDict[tuple[int, str], str] = RecentDict(MAX_TAGS)

    def ensure_experiment(self, name: str) -> str:
        def find() -> tuple[str, bool] | None:
            found = self._call(lambda client: client.get_experiment_by_name(name))
            return None if found is None else (str(found.experiment_id), found.lifecycle_stage == "deleted")

        return get_or_create_experiment(
            name, find, lambda: str(self._call(lambda client: client.create_experiment(name)))
        )

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        self._open()
        from mlflow.entities import Span

        tags = tags_of_traces(spans)
        # A tag costs the store more than a span: it is written once, not with each batch of its trace.
        new = {
            trace_id: {name: value for name, value in found.items() if self._tags.get((trace_id, name)) != value}
            for trace_id, found in tags.items()
        }
        stored = stored_spans(spans, unwraps_texts=self._version < TEXTS_VERSION, tags=new)
        records = [Span(span) for span in stored]
        _attempt(lambda: self._tracing.log_spans(experiment_id, records))
        for trace_id, found in new.items():
            for name, value in found.items():
                self._tags[trace_id, name] = value

    def link(self, trace_ids: Sequence[str], run_id: str) -> None:
        self._call(lambda client: client.link_traces_to_run(list(trace_ids), run_id))

    def record(self, rewards: Sequence[Feedback]) -> None:
        self._open()
        assessments = [_assessment(feedback) for feedback in rewards]
        if len(assessments) > 1:
            try:
                if _attempt(lambda: create_assessments(self._tracing.store, assessments)):
                    return
            except AttemptError as error:
                if error.outcome.verdict in (Verdict.RETRY, Verdict.CONFIGURATION_ERROR):
                    raise
        # One by one: one is stored already, or can't be stored.
        for feedback, assessment in zip(rewards, assessments, strict=True):
            self._record(feedback, assessment)

    def _record(self, feedback: Feedback, assessment: Any) -> None:
        ids, store = (feedback.trace_id, feedback.assessment_id), self._tracing.store
        changes = {"feedback": assessment.feedback, "metadata": feedback.metadata}
        upsert_reward(
            feedback,
            lambda: _attempt(lambda: store.create_assessment(assessment)),
            lambda: _attempt(lambda: store.get_assessment(*ids)).metadata,
            lambda: _attempt(lambda: store.update_assessment(*ids, **changes)),
        )

    def span_ids(self, trace_id: str) -> set[str] | None:
        self._open()
        store = self._tracing.store
        traces = _attempt(lambda: store.batch_get_traces([trace_id]))
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

    def _call(self, work: Callable[[Any], _Result]) -> _Result:
        client = self._open()
        return _attempt(lambda: work(client))

    def _open(self) -> Any:
        """Return MLflow's client of the database; create a SQLite file that doesn't exist."""
        path = self._uri.sqlite_path
        if self._client is not None:
            if self._pid == os.getpid() and (path is None or self._inode == _inode(path)):
                return self._client
            # After a fork connections must not be shared; after the file was replaced they lead to the old one.
            _dispose(self._tracing, close=self._pid == os.getpid())
            self._client = self._tracing = None
        self._tags.clear()
        mlflow, self._version = _import_mlflow()
        if path is not None:
            self._ensure_file(path, mlflow)
        self._tracing = self._opened(lambda: mlflow.tracing.client.TracingClient(self._uri.uri))
        self._client = self._opened(lambda: mlflow.tracking.MlflowClient(tracking_uri=self._uri.uri))
        self._pid, self._inode = os.getpid(), _inode(path) if path is not None else None
        return self._client

    def _opened(self, make: Callable[[], _Result]) -> _Result:
        """Make a client; raise CONFIGURATION_ERROR for what only another setting or package fixes."""
        from sqlalchemy.exc import ArgumentError

        try:
            if not self._uri.uri.startswith("sqlite"):
                check_driver(self._uri.uri)
            return _attempt(make)
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
            is_complete = _attempt(lambda: ensure_sqlite_file(path, initialise))
        except OSError as error:
            raise configuration_error(f"{path}: {error}") from error
        now = time.monotonic()
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


def _assessment(reward: Feedback) -> Any:
    from mlflow.entities import AssessmentSource
    from mlflow.entities import Feedback as MlflowFeedback

    moment = reward.time_ns // 1_000_000
    assessment = MlflowFeedback(
        name=reward.name,
        value=reward.value,
        source=AssessmentSource(source_type="CODE", source_id=REWARD_SOURCE),
        rationale=reward.rationale or None,
        trace_id=reward.trace_id,
        create_time_ms=moment,
        last_update_time_ms=moment,
        metadata=reward.metadata,
    )
    assessment.assessment_id = reward.assessment_id
    return assessment


def _import_mlflow() -> tuple[Any, tuple[int, ...]]:
    try:
        import mlflow
        import mlflow.tracing.client
        import mlflow.tracking
    except ImportError as error:
        raise configuration_error(
            f"an SQL tracking URI needs mlflow in this process ({error}): {install_line('mlflow')}"
        ) from error
    version = tuple(int(part) for part in mlflow.__version__.split(".")[:2])
    if version < FIRST_VERSION:
        needed = ".".join(str(part) for part in FIRST_VERSION)
        raise configuration_error(
            f"mlflow {mlflow.__version__} is installed; writing traces to a database needs {needed} or later "
            f"({install_line('mlflow')}), or give MLFLOW_TRACKING_URI a server, which may be older"
        )
    try:
        import mlflow.store.tracking.sqlalchemy_store
    except ImportError as error:
        raise configuration_error(
            f"an SQL tracking URI needs sqlalchemy and alembic ({error}): {install_line('mlflow')}"
        ) from error
    return mlflow, version


def _attempt(call: Callable[[], _Result]) -> _Result:
    """Call MLflow; raise its exceptions as `AttemptError`."""
    try:
        return call()
    except (AttemptError, OSError):
        raise
    except Exception as error:
        raise _explained(error) from error


def _explained(error: Exception) -> AttemptError:
    lines = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {lines[0][:300] if lines else ''}"
    code = str(getattr(error, "error_code", ""))
    if "readonly database" in reason:
        return configuration_error(f"{reason}: MLFLOW_TRACKING_URI must be a database that this process may write to")
    if code in _PASSING or type(error).__name__ in ("OperationalError", "InterfaceError"):
        return AttemptError(Outcome(Verdict.RETRY, reason))
    if code in _INVALID or isinstance(error.__cause__, (OverflowError, TypeError, ValueError)):
        return AttemptError(Outcome(Verdict.REFUSED, reason))
    if "out-of-date" in str(error) or "db upgrade" in str(error):
        return configuration_error(reason)
    return AttemptError(
        Outcome(Verdict.UNEXPLAINED, reason),
        is_missing=code == "RESOURCE_DOES_NOT_EXIST",
        is_taken=code == "RESOURCE_ALREADY_EXISTS",
    )


def _dispose(tracing: Any, *, close: bool) -> None:
    with suppress(Exception):
        tracing.store.engine.dispose(close=close)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
