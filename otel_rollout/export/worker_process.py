"""A child process that does an exporter's work with a backend's package, and ends with this process.

The package is not imported into the trainer: its import, its settings of loggers and its CPU time stay out of it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Final

from otel_rollout.guard.log_once import warn_once

SECONDS_TO_START: Final = 60.0
SECONDS_TO_END: Final = 5.0
SECONDS_TO_ANSWER: Final = 300.0
SECONDS_BETWEEN_LOOKS: Final = 5.0
"""The seconds after which the end of the parent is seen if a forked child of it keeps the pipe open."""
SECONDS_BEFORE_NICE: Final = 20.0
"""The CPU time after which the trainer's processes go first.

On a busy machine a program that ends soon would wait for its imports, tables and few spans in vain, and a process that
makes the tables of a database keeps all others waiting."""

_PROGRAM: Final = """\
import json, signal, sys
# A signal to the trainer's process group ends the trainer, which ends this process after its last request.
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
descriptor, parent, module, sys.path[:] = json.loads(sys.argv[1])
from otel_rollout.export.worker_process import serve
serve(descriptor, parent, module)
"""


class WorkerGoneError(Exception):
    """The worker process has ended, or does not answer."""


class Worker:
    """A child process that answers requests by a module's functions, neither of which raises.

    It is started when it is first needed, after its end, and in a forked child.

    Args:
        module: The module, which is imported there: `prepare()` is called once, `answer(request)` for each request.
        environment: Variables to set there on top of this process's own.
        place: The place that it writes to, for messages.
    """

    def __init__(self, module: str, environment: Mapping[str, str], place: str) -> None:
        self._module = module
        self._environment = environment
        self._place = place
        self._pid = 0
        self._connection: Connection | None = None
        self._finalizer: weakref.finalize[..., Worker] | None = None
        self._is_impossible = False

    def start(self) -> bool:
        """Start the process if there is none; return False if that is impossible: the work is this process's then."""
        if self._pid != os.getpid():
            # Forked: the process is the parent's.
            self.close()
        if self._connection is None and not self._is_impossible:
            try:
                self._start()
            except (OSError, EOFError, ValueError, RuntimeError) as error:
                # RuntimeError: since Python 3.12 no process can be started once the interpreter is exiting.
                self._is_impossible = True
                words = "no process could be started that writes to %s (%s): it is written to in this one"
                warn_once(f"worker {self._place}", words, self._place, error)
        return self._connection is not None

    def call(self, request: bytes, seconds: float | None = None) -> bytes:
        """Return the answer to a request.

        Raises:
            WorkerGoneError: There is none; the next request starts another process.
        """
        connection = self._connection
        if connection is None:
            return b""
        try:
            connection.send_bytes(request)
            if not connection.poll(SECONDS_TO_ANSWER if seconds is None else seconds):
                raise TimeoutError
            return connection.recv_bytes()
        except (OSError, EOFError) as error:
            self.close()
            what = "does not answer" if isinstance(error, TimeoutError) else "has ended"
            reason = f"the process that writes to {self._place} {what} ({type(error).__name__})"
            raise WorkerGoneError(reason) from error

    def close(self) -> None:
        """End the process after its current request, if this process started it."""
        self._connection, finalizer = None, self._finalizer
        if finalizer is not None:
            finalizer()

    def _start(self) -> None:
        if not sys.executable:
            raise ValueError("sys.executable is not set")
        self._pid = os.getpid()
        connection, theirs = Pipe()
        path = [str(Path(entry).absolute()) for entry in sys.path]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this Python and a program of ours
                [sys.executable, "-c", _PROGRAM, json.dumps([theirs.fileno(), self._pid, self._module, path])],
                stdin=subprocess.DEVNULL,
                # The package's progress lines; errors come back as answers.
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # Auto-instrumentation by environment variables would trace the writing of traces.
                env={
                    **os.environ,
                    "OTEL_SDK_DISABLED": "true",
                    "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "*",
                    **self._environment,
                },
            )
        except BaseException:
            connection.close()
            raise
        finally:
            theirs.close()
        self._finalizer = weakref.finalize(self, _end, self._pid, connection, self._process)
        # An atexit call would come before the last batch; the child sees by itself that this process is gone.
        self._finalizer.atexit = False
        try:
            if not connection.poll(SECONDS_TO_START):
                raise EOFError("it does not start")
            connection.recv_bytes()
        except BaseException:
            self._finalizer()
            raise
        self._connection = connection


def _end(pid: int, connection: Connection, process: subprocess.Popen[bytes]) -> None:
    if pid == os.getpid():
        # An explicit message: a child that was forked meanwhile may keep the pipe open.
        with suppress(OSError, ValueError):
            connection.send_bytes(b"")
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


def serve(descriptor: int, parent: int, module: str) -> None:
    """Answer requests from a pipe until an empty one comes or the other end closes it; runs in the child."""
    threading.Thread(target=_end_after, args=(parent,), name="otel-rollout-parent", daemon=True).start()
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        connection.send_bytes(b"ready")
        worker = importlib.import_module(module)
        worker.prepare()
        # The packages leave hundreds of thousands of objects, which the garbage collector would look through each time.
        gc.freeze()
        is_nice = False
        while request := connection.recv_bytes():
            connection.send_bytes(worker.answer(request))
            if not is_nice and time.process_time() > SECONDS_BEFORE_NICE:
                is_nice = True
                # Windows has no nice.
                with suppress(AttributeError, OSError):
                    os.nice(10)


def _end_after(parent: int) -> None:
    """End this process some time after its parent, even amid a call that hangs."""
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    # For the rest of its requests.
    time.sleep(30.0)
    os._exit(1)
