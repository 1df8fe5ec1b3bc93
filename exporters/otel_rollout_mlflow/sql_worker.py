"""The child process of `SqlProcess`, which writes to the tracking database."""

from __future__ import annotations

import pickle
from contextlib import suppress
from functools import cache
from typing import Any, Final

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_mlflow.database import connect_without_prepared_statements
from otel_rollout_mlflow.mlflow_log import LogCatcher
from otel_rollout_mlflow.plain_spans import unpack
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import AttemptError
from otel_rollout_mlflow.tracking_uri import TrackingUri

__all__ = ["answer", "prepare"]

_LOG: Final = LogCatcher()


def prepare() -> None:
    """Import MLflow, and catch its log lines."""
    # A package that is missing is reported when the database is opened.
    with suppress(Exception):
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401 - so that its loggers are there

        connect_without_prepared_statements()
    _LOG.install()


def answer(request: bytes) -> bytes:
    """Call a method of the database's store; return its result, or its failure, and the log lines since."""
    uri, method, arguments = pickle.loads(request)  # noqa: S301 - it comes from the process that started this one
    return pickle.dumps((*_answer(_store_of(uri), method, arguments), _LOG.take()), pickle.HIGHEST_PROTOCOL)


@cache
def _store_of(uri: TrackingUri) -> SqlStore:
    return SqlStore(uri)


def _answer(store: SqlStore, method: str, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
    try:
        if method == "write":
            experiment_id, packed = arguments
            store.write(experiment_id, unpack(packed))
            return None, None
        return getattr(store, method)(*arguments), None
    except AttemptError as error:
        return None, (error.outcome, error.is_missing, error.is_taken)
    except Exception as error:
        return None, (Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}"), False, False)
