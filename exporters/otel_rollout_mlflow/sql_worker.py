"""The process in which a tracking database is written to, on behalf of the one that started it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Final

from otel_rollout.delivery.outcome import Outcome, Verdict
from otel_rollout_mlflow.attempt import AttemptError
from otel_rollout_mlflow.plain_spans import unpack
from otel_rollout_mlflow.sql_store import SqlStore

__all__ = ["serve"]

SECONDS_BETWEEN_LOOKS: Final = 5.0
"""How soon the end of the parent is seen where a child that it has forked keeps its end of the pipe open."""


def serve(descriptor: int, parent: int) -> None:
    """Do what is asked through a pipe until nobody can ask any more.

    Args:
        descriptor: The pipe's file descriptor.
        parent: The process that asks.
    """
    # Whoever interrupts or ends the trainer's group of processes ends this one by its parent's end of the pipe, once
    # the parent has sent its last spans.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        connection.send("ready")
        store = SqlStore(connection.recv())
        try:
            while True:
                while not connection.poll(SECONDS_BETWEEN_LOOKS):
                    if os.getppid() != parent:
                        return
                method, arguments = connection.recv()
                connection.send(_answer(store, method, arguments))
        finally:
            store.close()


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
