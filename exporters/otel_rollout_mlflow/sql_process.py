"""A tracking database, written to by a process of its own.

MLflow's store takes milliseconds of Python per span. In the trainer's process these would be the rollout's: threads
of one process take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.safety.log_once import warn_once
from otel_rollout_mlflow.attempt import AttemptError
from otel_rollout_mlflow.plain_spans import pack
from otel_rollout_mlflow.sql_store import SqlStore
from otel_rollout_mlflow.store import Feedback, Store
from otel_rollout_mlflow.tracking_uri import TrackingUri

__all__ = ["SqlProcess"]

SECONDS_TO_START: Final = 60.0
SECONDS_TO_END: Final = 5.0
SECONDS_TO_ANSWER: Final = 300.0
"""SQLite waits 20 s for a lock, and making a database takes some; a process that needs longer is ended."""

_PROGRAM: Final = """\
import json, signal, sys
# Whoever interrupts or ends the trainer's group of processes ends this one by its parent,
# once that has sent its last spans.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
descriptor, parent, sys.path[:] = json.loads(sys.argv[1])
from otel_rollout_mlflow.sql_worker import serve
serve(descriptor, parent)
"""


class SqlProcess:
    """The same as `SqlStore`, in a process of its own; in this one where none can be started.

    Args:
        uri: Which database.
    """

    def __init__(self, uri: TrackingUri) -> None:
        self._uri = uri
        self._worker: _Worker | None = None
        self._here: Store | None = None

    def ensure_experiment(self, name: str) -> str:
        """Return the id of the experiment called `name`, created if there is none."""
        return str(self._call("ensure_experiment", name))

    def write(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> None:
        """Store spans, and their traces' names, tags and sessions."""
        if self._start() is None:
            self._call("write", experiment_id, spans)
        else:
            self._call("write", experiment_id, pack(spans))

    def trace_infos(self, experiment_id: str, spans: Sequence[ReadableSpan]) -> list[tuple[dict[str, Any], bool]]:
        """Return nothing: the store reads from the spans what it is to know of a trace."""
        return []

    def announce(self, infos: Sequence[Mapping[str, Any]]) -> None:
        """Do nothing: there is nothing to announce."""

    def link(self, trace_ids: Sequence[str], run_id: str) -> None:
        """Associate at most `MAX_LINKED_TRACES` stored traces with a run."""
        self._call("link", list(trace_ids), run_id)

    def record(self, rewards: Sequence[Feedback]) -> None:
        """Store at most `MAX_REWARDS` rewards, each in the place of an older one of its trace."""
        self._call("record", list(rewards))

    def span_ids(self, trace_id: str) -> set[str] | None:
        """Return the ids of the spans that a trace has, in 16 hexadecimal digits."""
        found: set[str] | None = self._call("span_ids", trace_id)
        return found

    def run_status(self, run_id: str) -> str | None:
        """Return the status of a run; None if there is none, or it is deleted."""
        status: str | None = self._call("run_status", run_id)
        return status

    def find_runs(self, experiment_id: str, key: str) -> list[tuple[str, bool]]:
        """Return the ids of the runs that were made under `key`, the first made first, and whether each is settled."""
        found: list[tuple[str, bool]] = self._call("find_runs", experiment_id, key)
        return found

    def create_run(self, experiment_id: str, name: str, key: str) -> str:
        """Make a run and return its id."""
        return str(self._call("create_run", experiment_id, name, key))

    def delete_run(self, run_id: str) -> None:
        """Delete a run."""
        self._call("delete_run", run_id)

    def settle_run(self, run_id: str) -> None:
        """Tag a run as the one that those who come later take."""
        self._call("settle_run", run_id)

    def set_run_status(self, run_id: str, status: str) -> None:
        """Mark a run as `RUNNING` or `FINISHED`."""
        self._call("set_run_status", run_id, status)

    def close(self) -> None:
        """End the process; the next call starts another one."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()
        if self._here is not None:
            self._here.close()

    def _start(self) -> _Worker | None:
        """Return the process, started if there is none of ours; None where none can be."""
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
    """One process, which ends when this one does."""

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
                # An instrumentation that comes with the environment would trace the writing of traces.
                env={**os.environ, "OTEL_SDK_DISABLED": "true", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*"},
            )
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()
        self._finalizer = weakref.finalize(self, _end, self._pid, self._connection, self._process)
        # At the exit of this process it would come before the last batch; the other one sees that by itself.
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
        """Whether this process started it."""
        return self._pid == os.getpid()

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Return what a method of the store returns there, or raise what it raises."""
        self._connection.send((method, arguments))
        if not self._connection.poll(SECONDS_TO_ANSWER):
            raise TimeoutError(f"no answer within {SECONDS_TO_ANSWER:g} s")
        result, error = self._connection.recv()
        if error is not None:
            outcome, is_missing, is_taken = error
            raise AttemptError(outcome, is_missing=is_missing, is_taken=is_taken)
        return result

    def end(self) -> None:
        """End it, if it is ours, once it has done what it was asked."""
        self._finalizer()


def _end(pid: int, connection: Connection, process: subprocess.Popen[bytes]) -> None:
    if pid == os.getpid():
        # In words: where a child that was forked meanwhile holds the pipe, closing it tells nothing.
        with suppress(OSError, ValueError):
            connection.send(None)
    with suppress(OSError):
        connection.close()
    if pid != os.getpid():
        # Not ours to wait for; without this the object would complain that it still runs.
        process.returncode = 0
        return
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
