"""Servers that all processes of a test run share: each starts once, when a test of any of them first needs it.

The run has a folder. A server's lock there makes one process start it and the others wait; a file there holds what they
need to reach it. When the run has ended, in whatever way, a process of its own ends all servers that it has started.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from scripts import environments, otelcol
from tests.servers import run_end
from tests.servers.browser import Browser, chromium_program
from tests.servers.databases import Mariadb, PgBouncer, Postgresql, missing_programs
from tests.servers.mlflow_server import Mlflow
from tests.servers.otelcol_server import relay_to
from tests.servers.phoenix_server import Phoenix
from tests.servers.process import RUN_FOLDER
from tests.servers.s3_server import S3Server
from tests.servers.trackio_server import TrackioServer
from tests.servers.weave_server import WeaveServer

__all__ = ["SERVERS", "WEAVE_STORE", "MissingError", "Run", "once", "server"]

WEAVE_STORE = "clickhouse" if os.environ.get("TEST_WEAVE_CLICKHOUSE") == "1" else "memory"
SECONDS_TO_END = 60.0

Uncaptured = Callable[[], AbstractContextManager[None]]


class MissingError(Exception):
    """A program that the server needs isn't installed; the message says which."""


class Run:
    """The folder of a run, which is removed at its end, and the process that ends its servers."""

    def __init__(self) -> None:
        # Not below pytest's folder: PostgreSQL runs as another user, who may not enter that.
        self.folder = Path(tempfile.mkdtemp(prefix="otel-rollout-tests-"))
        self.folder.chmod(0o755)
        os.environ[RUN_FOLDER] = str(self.folder)
        self._ending = subprocess.Popen(
            [sys.executable, run_end.__file__, str(self.folder)], stdin=subprocess.PIPE, start_new_session=True
        )

    def end(self) -> None:
        """End all servers of the run, and wait until they have ended."""
        self._ending.communicate(timeout=SECONDS_TO_END)
        os.environ.pop(RUN_FOLDER, None)


def server(name: str, uncaptured: Uncaptured = nullcontext) -> Any:
    """Return a server of the run, started now if no process has started it yet.

    Args:
        name: One of `SERVERS`.
        uncaptured: See `ServerProcess`.

    Raises:
        MissingError: A program that it needs isn't installed.
        CalledProcessError: Its environment can't be made.
        ServerFailedError: It doesn't start.
    """

    def start() -> Any:
        made = SERVERS[name](uncaptured)
        made.__enter__()
        _started.append(made)
        return made

    return once(name, start)


def once(name: str, make: Callable[[], Any]) -> Any:
    """Return what `make` returns, which the run's first process to ask calls; the others get a pickled copy."""
    folder = Path(os.environ[RUN_FOLDER])
    known = folder / f"{name}.pickle"
    with (folder / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if known.exists():
            return pickle.loads(known.read_bytes())
        made = make()
        known.write_bytes(pickle.dumps(made))
        return made


_started: list[Any] = []
"""Kept: a process that is forgotten before its end warns."""


def _phoenix(uncaptured: Uncaptured) -> Phoenix:
    return Phoenix(environments.ensure("phoenix"), uncaptured=uncaptured)


def _mlflow(uncaptured: Uncaptured) -> Mlflow:
    return Mlflow(environments.ensure("mlflow"), uncaptured=uncaptured)


def _trackio(uncaptured: Uncaptured) -> TrackioServer:
    folder = Path(tempfile.mkdtemp(prefix="trackio-", dir=os.environ[RUN_FOLDER]))
    return TrackioServer(environments.ensure("trackio"), folder, uncaptured=uncaptured)


def _s3(uncaptured: Uncaptured) -> S3Server:
    return S3Server(environments.ensure("s3"), uncaptured=uncaptured)


def _weave(uncaptured: Uncaptured) -> WeaveServer:
    return WeaveServer(environments.ensure("weave"), store=WEAVE_STORE, uncaptured=uncaptured)


def _browser(uncaptured: Uncaptured) -> Browser:
    program = chromium_program()
    if program is None:
        raise MissingError("chromium is not installed: apt-get install chromium")
    return Browser(program, uncaptured=uncaptured)


def _collector(uncaptured: Uncaptured) -> Any:
    program = otelcol.ensure()
    folder = Path(tempfile.mkdtemp(prefix="collector-", dir=os.environ[RUN_FOLDER]))
    return relay_to(program, server("phoenix", uncaptured).grpc_address, folder)


def _need(*programs: str) -> None:
    if names := missing_programs(*programs):
        raise MissingError(f"not installed: {', '.join(names)}")


def _postgresql(uncaptured: Uncaptured) -> Postgresql:
    _need("postgres")
    return Postgresql(uncaptured=uncaptured, with_tables=True)


def _mariadb(uncaptured: Uncaptured) -> Mariadb:
    _need("mariadbd")
    return Mariadb(uncaptured=uncaptured, with_tables=True)


def _pgbouncer(uncaptured: Uncaptured) -> PgBouncer:
    _need("postgres", "pgbouncer")
    return PgBouncer(server("postgresql", uncaptured), uncaptured=uncaptured)


SERVERS: dict[str, Callable[[Uncaptured], Any]] = {
    "browser": _browser,
    "collector": _collector,
    "mariadb": _mariadb,
    "mlflow_server": _mlflow,
    "pgbouncer": _pgbouncer,
    "phoenix": _phoenix,
    "postgresql": _postgresql,
    "s3_server": _s3,
    "trackio_server": _trackio,
    "weave_server": _weave,
}
"""What makes each server, by the name of the fixture that hands it out."""
