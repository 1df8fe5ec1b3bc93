"""The worker process of `SqlProcess`, which writes to the tracking database."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_mlflow.database import connect_without_prepared_statements
from otel_rollout_mlflow.mlflow_log import LogCatcher
from otel_rollout_mlflow.plain_spans import unpack
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import AttemptError

__all__ = ["serve"]

SECONDS_BETWEEN_LOOKS: Final = 5.0
"""How soon the end of the parent is seen if a forked child of it keeps the pipe open."""
SECONDS_FOR_THE_REST: Final = 30.0
NICENESS: Final = 10


def serve(descriptor: int, parent: int) -> None:
    """Answer requests from a pipe until the other end closes it.

    Args:
        descriptor: The pipe's file descriptor.
        parent: The process that sends the requests.
    """
    threading.Thread(target=_end_after, args=(parent,), name="otel-rollout-parent", daemon=True).start()
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        connection.send("ready")
        store = SqlStore(connection.recv())
        catcher, is_nice = _prepared(), False
        try:
            while True:
                request = connection.recv()
                if request is None:
                    return
                method, arguments = request
                answer = _answer(store, method, arguments)
                connection.send((*answer, catcher.take()))
                if not is_nice:
                    is_nice = _gave_way()
                    # MLflow's hundreds of thousands of objects stay: looked through again and again, they take time.
                    gc.freeze()
        finally:
            store.close()


def _gave_way() -> bool:
    """Let the trainer's processes go first from now on.

    Not before the first answer: beside busy processes the import of MLflow would take minutes, and a process that makes
    the tables keeps all others waiting.
    """
    # Windows has no nice.
    with suppress(AttributeError, OSError):
        os.nice(NICENESS)
    return True


def _prepared() -> LogCatcher:
    """Import MLflow, whose first lines are to be caught too, and return what catches them."""
    catcher = LogCatcher()
    # A package that is missing is reported when the database is opened.
    with suppress(Exception):
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401 - so that its loggers are there

        connect_without_prepared_statements()
    catcher.install()
    return catcher


def _end_after(parent: int) -> None:
    """End this process some time after its parent, even amid a call: a database may block one for hours."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    time.sleep(SECONDS_FOR_THE_REST)
    os._exit(1)


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
