"""A tracking database, written to by a process of its own.

MLflow's store takes milliseconds of Python per span, and would hold the GIL of the trainer's process for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.safety.log_once import warn_once
from otel_rollout_mlflow.plain_spans import pack
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import AttemptError, Store
from otel_rollout_mlflow.tracking_uri import TrackingUri

__all__ = ["SqlProcess"]

SECONDS_TO_START: Final = 60.0
SECONDS_TO_END: Final = 5.0
SECONDS_TO_ANSWER: Final = 300.0
"""SQLite waits 20 s for a lock, and creating a database takes some; a process that needs longer is killed."""

_PROGRAM: Final = """\
import json, signal, sys
# A signal to the trainer's process group ends the trainer, which ends this process after its last spans.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
descriptor, parent, sys.path[:] = json.loads(sys.argv[1])
from otel_rollout_mlflow.sql_worker import serve
serve(descriptor, parent)
"""


def _forwarded(method: str) -> Callable[..., Any]:
    def call(self: SqlProcess, *arguments: Any) -> Any:
        return self._call(method, *arguments)

    return call


class SqlProcess(Store):
    """A `SqlStore` in a process of its own; in this process if none can be started.

    Args:
        uri: The database.
    """

    def __init__(self, uri: TrackingUri) -> None:
        self._uri = uri
        self._worker: _Worker | None = None
        self._here: Store | None = None

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
        self._call("write", experiment_id, spans if self._start() is None else pack(spans))

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()
        if self._here is not None:
            self._here.close()

    def _start(self) -> _Worker | None:
        """Return the process, and start it if this process has none; None if that fails."""
        if self._here is not None:
            return None
        if self._worker is not None and self._worker.is_ours:
            return self._worker
        if self._worker is not None:
            # Forked: the process is the parent's.
            self._worker.end()
        try:
            self._worker = _Worker(self._uri)
        except (OSError, EOFError, ValueError, RuntimeError) as error:
            # RuntimeError: since Python 3.12 no process can be started once the interpreter is exiting.
            warn_once(
                f"mlflow process {self._uri.uri}",
                "no process could be started that writes to the MLflow database (%s): it is written to in this one",
                error,
            )
            self._worker, self._here = None, SqlStore(self._uri)
        return self._worker

    def _call(self, method: str, *arguments: Any) -> Any:
        worker = self._start()
        if worker is None:
            return getattr(self._here, method)(*arguments)
        try:
            return worker.call(method, arguments)
        except (OSError, EOFError) as error:
            self._worker = None
            worker.end()
            what = "does not answer" if isinstance(error, TimeoutError) else "has ended"
            reason = f"the process that writes to the MLflow database {what} ({type(error).__name__})"
            raise AttemptError(Outcome(Verdict.RETRY, reason)) from error


class _Worker:
    """A worker process, which ends with this one."""

    def __init__(self, uri: TrackingUri) -> None:
        if not sys.executable:
            raise ValueError("sys.executable is not set")
        self._pid = os.getpid()
        self._connection, theirs = Pipe()
        path = [str(Path(entry).absolute()) for entry in sys.path]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this Python and a program of ours
                [sys.executable, "-c", _PROGRAM, json.dumps([theirs.fileno(), self._pid, path])],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Auto-instrumentation by environment variables would trace the writing of traces.
                env={**os.environ, "OTEL_SDK_DISABLED": "true", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"},
            )
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()
        self._finalizer = weakref.finalize(self, _end, self._pid, self._connection, self._process)
        # An atexit call would come before the last batch; the worker sees by itself that this process is gone.
        self._finalizer.atexit = False
        try:
            if not self._connection.poll(SECONDS_TO_START):
                raise EOFError("it does not start")
            self._connection.recv()
            self._connection.send(uri)
        except BaseException:
            self.end()
            raise

    @property
    def is_ours(self) -> bool:
        """True if this process started it; a forked child didn't."""
        return self._pid == os.getpid()

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method of the worker's store; return its result or raise its error."""
        self._connection.send((method, arguments))
        if not self._connection.poll(SECONDS_TO_ANSWER):
            raise TimeoutError(f"no answer within {SECONDS_TO_ANSWER:g} s")
        result, error, lines = self._connection.recv()
        for line in lines:
            warn_once(f"mlflow log {line}", "MLflow, in the process that writes to its database: %s", line)
        if error is not None:
            outcome, is_missing, is_taken = error
            raise AttemptError(outcome, is_missing=is_missing, is_taken=is_taken)
        return result

    def end(self) -> None:
        """End it after its current request, if this process started it."""
        self._finalizer()


def _end(pid: int, connection: Connection, process: subprocess.Popen[bytes]) -> None:
    if pid == os.getpid():
        # An explicit message: a child that was forked meanwhile may keep the pipe open.
        with suppress(OSError, ValueError):
            connection.send(None)
    with suppress(OSError):
        connection.close()
    if pid != os.getpid():
        # Not our child to wait for; without this Popen would warn that it still runs.
        process.returncode = 0
        return
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
