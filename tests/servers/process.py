"""A server process for tests: started on a free loopback port, waited for, logged to a file, stopped."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

from tests.environment import without_settings
from tests.servers import run_end

__all__ = [
    "RUN_FOLDER",
    "ServerFailedError",
    "ServerProcess",
    "answers_http",
    "free_port",
    "listens",
    "new_folder",
    "registered",
    "unregistered",
]

RUN_FOLDER = "TEST_RUN_FOLDER"
"""The variable that holds the folder of the test run; not set where servers are started outside of one."""

LOG_TAIL_LINES = 30
SECONDS_TO_START = 600.0  # a server that can't start ends by itself
SECONDS_TO_STOP = 5.0

# Below the range that Linux picks for outgoing connections (32768 and up): a client that keeps trying an unused port
# inside that range can connect to itself, and then nobody can listen there.
FIRST_PORT, LAST_PORT = 20000, 32000


class ServerFailedError(RuntimeError):
    """The server ended, or did not become healthy in time; the message holds the end of its log."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on, and that no other worker of the test run has been given."""
    for _ in range(200):
        port = random.SystemRandom().randint(FIRST_PORT, LAST_PORT)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if folder := os.environ.get(RUN_FOLDER):
                # A server may be started long after its port was chosen, or twice.
                Path(folder, f"port-{port}").touch(exist_ok=False)
            return port
    raise ServerFailedError("no free port found")


def listens(port: int) -> bool:
    """Return whether somebody accepts connections on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers_http(url: str) -> bool:
    """Return whether a GET of the address is answered with a 2xx status."""
    try:
        with urllib.request.urlopen(url, timeout=2.0) as answer:
            return 200 <= answer.status < 300
    except (urllib.error.URLError, OSError):
        return False


def new_folder(prefix: str) -> Path:
    """Return a new folder, which goes with the test run."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=os.environ.get(RUN_FOLDER)))


def registered(pid: int) -> None:
    """Have the group of a process ended with the test run."""
    if folder := os.environ.get(RUN_FOLDER):
        processes = Path(folder) / "processes"
        processes.mkdir(exist_ok=True)
        (processes / str(pid)).write_text(run_end.started(pid))


def unregistered(pid: int) -> None:
    """Forget a process group that has ended."""
    if folder := os.environ.get(RUN_FOLDER):
        (Path(folder) / "processes" / str(pid)).unlink(missing_ok=True)


class ServerProcess:
    """One server that can be started, stopped and started again with the same command.

    Args:
        name: What to call it in progress lines and errors.
        command: The program and its arguments.
        healthy: Called until it returns true; then the server is up.
        environment: Variables to set on top of this process's own, which are without settings.
        folder: Where the log and the server's working folder are; a new temporary folder if not given.
        uncaptured: Makes the context in which progress lines are printed, for test runners that capture stderr.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        healthy: Callable[[], bool],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.name = name
        self.folder = folder or new_folder(f"{name.lower()}-")
        self.log = self.folder / "server.log"
        self._command = list(command)
        self._healthy = healthy
        self._environment = {**without_settings(), **(environment or {})}
        self._uncaptured = uncaptured
        self._process: subprocess.Popen[bytes] | None = None

    def add_environment(self, **variables: str) -> None:
        """Set more variables for the next start."""
        self._environment.update(variables)

    def start(self) -> None:
        """Start the server and wait until it is healthy.

        Raises:
            ServerFailedError: It ended, or was not healthy in time.
        """
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # so that stop() reaches its children too
            )
        try:
            registered(self._process.pid)
            self._wait_until_healthy()
        except BaseException:
            self.stop()
            raise

    def _wait_until_healthy(self) -> None:
        started = time.monotonic()
        next_line = 4.0
        while not self._healthy():
            waited = time.monotonic() - started
            if self._process is None or self._process.poll() is not None:
                raise ServerFailedError(f"{self.name} ended while starting.\n{self.end_of_log()}")
            if waited > SECONDS_TO_START:
                raise ServerFailedError(f"{self.name} not up after {waited:.0f} s.\n{self.end_of_log()}")
            if waited >= next_line:
                self._progress(f"waiting for {self.name} … {waited:.0f} s")
                next_line += 4.0
            time.sleep(0.1)
        self._progress(f"{self.name} is up after {time.monotonic() - started:.0f} s, log in {self.log}")

    def _progress(self, line: str) -> None:
        with self._uncaptured():
            sys.stderr.write(line + "\n")
            sys.stderr.flush()

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self._process is not None
        return self._process.pid

    def end(self, number: int) -> None:
        """End it with a signal, its children too, and wait until it has ended."""
        assert self._process is not None
        os.killpg(self._process.pid, number)
        self._process.wait(60)

    def stop(self) -> None:
        """Stop the server and its children; harmless when it is not running."""
        process, self._process = self._process, None
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.wait(SECONDS_TO_STOP)
                unregistered(process.pid)
                return

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process, which can't stop the server, may know of it."""
        return {"name": self.name, "folder": self.folder, "log": self.log}

    def end_of_log(self) -> str:
        """Return the last lines that the server printed."""
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def __enter__(self) -> ServerProcess:  # noqa: PYI034 - typing.Self needs Python 3.11
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.stop()
