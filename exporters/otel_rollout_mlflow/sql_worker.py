"""The child process of `SqlProcess`, which writes to the tracking database."""

from __future__ import annotations

import logging
import pickle
from contextlib import suppress
from functools import cache
from typing import Any, Final

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.otlp import decode_spans
from otel_rollout_mlflow.database import connect_without_prepared_statements
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import AttemptError
from otel_rollout_mlflow.tracking_uri import TrackingUri

MAX_LINES: Final = 20
MAX_CHARACTERS: Final = 300
_LOGGERS: Final = ("mlflow", "alembic", "sqlalchemy", "otel_rollout")


class LogCatcher(logging.Handler):
    """Keeps MLflow's warnings and errors from the terminal: one line per cause, for the trainer's process.

    In an outage MLflow logs each statement with its parameters, hundreds of lines in a few seconds; delivery reports
    the failures.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines: dict[tuple[str, str], str] = {}
        self._seen: set[tuple[str, str]] = set()

    def install(self) -> None:
        """Take the place of the handlers of MLflow, alembic and SQLAlchemy; MLflow must be imported already."""
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.handlers[:] = [self]
            logger.propagate = False
        for name in list(logging.root.manager.loggerDict):
            if name.startswith("mlflow."):
                logging.getLogger(name).handlers.clear()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the beginning of a record, if it is the first of its cause."""
        try:
            lines = record.getMessage().strip().splitlines()
        except Exception:
            lines = [str(record.msg)]
        # MLflow's "The following exception is caught." has it in the next line; statements begin with a bracket.
        shown = lines[:2] if len(lines) > 1 and not lines[1].startswith("[") else lines[:1]
        line = f"{record.name}: {' '.join(shown)[:MAX_CHARACTERS]}"
        # One place in the code is one cause, whatever the names and parameters in the message; ours are all one place.
        cause = record.name, line if record.name == "otel_rollout" else f"{record.pathname}:{record.lineno}"
        if cause not in self._seen and len(self._seen) < MAX_LINES:
            self._seen.add(cause)
            self._lines[cause] = line

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        lines = list(self._lines.values())
        self._lines.clear()
        return lines


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
            experiment_id, pieces = arguments
            store.write(experiment_id, [span for piece in pieces for span in decode_spans(piece)])
            return None, None
        return getattr(store, method)(*arguments), None
    except AttemptError as error:
        return None, (error.outcome, error.is_missing, error.is_taken)
    except Exception as error:
        return None, (Outcome(Verdict.UNEXPLAINED, f"{type(error).__name__}: {error}"), False, False)
