"""Servers that tests share: each starts once in a test run, see shared.py.

A test traces into a project of its own, so that none needs an empty store. Tests that make a server fail, or start it
with options, have one of their own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NoReturn

import pytest

from scripts import environments, otelcol
from tests.servers import shared
from tests.servers.process import new_folder
from tests.servers.shared import WEAVE_STORE

__all__ = ["WEAVE_STORE", "missing"]

REQUIRE_SERVERS = "REQUIRE_SERVERS"

Uncaptured = Callable[[], AbstractContextManager[None]]


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it with REQUIRE_SERVERS set, as in CI."""
    if os.environ.get(REQUIRE_SERVERS):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def environment() -> Callable[[str], Path]:
    """Return a virtual environment of tests/servers by its name; skip, saying why, where it can't be made."""

    def ensure(name: str) -> Path:
        try:
            return environments.ensure(name)
        except subprocess.CalledProcessError as error:
            missing(f"the {name} environment can't be made here: {error}")

    return ensure


@pytest.fixture(scope="session")
def collector_program() -> Path:
    """The OpenTelemetry Collector; skip, saying why, where there is none."""
    try:
        return otelcol.ensure()
    except otelcol.NotHereError as error:
        _no_collector(error)


def _no_collector(error: otelcol.NotHereError) -> NoReturn:
    if otelcol.shared_folder() is None:
        pytest.skip(str(error))
    missing(str(error))


@pytest.fixture(scope="session")
def uncaptured(request: pytest.FixtureRequest) -> Uncaptured:
    """Make a context in which what is printed reaches the terminal."""
    return request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled


def _shared(name: str, description: str) -> Callable[..., Any]:
    """Make the fixture that hands out a server of the run; it skips, saying why, where there is none."""

    def hand_out(uncaptured: Uncaptured) -> Any:
        try:
            return shared.server(name, uncaptured)
        except (shared.MissingError, subprocess.CalledProcessError) as error:
            missing(f"{name}: {error}")
        except otelcol.NotHereError as error:
            _no_collector(error)

    hand_out.__doc__ = description
    return pytest.fixture(scope="session", name=name)(hand_out)


browser = _shared("browser", "A headless chromium, for the tests of what a page shows.")
collector = _shared("collector", "An OpenTelemetry Collector in front of Phoenix.")
phoenix = _shared("phoenix", "A Phoenix.")
mlflow_server = _shared("mlflow_server", "The MLflow server of the newest tested version.")
trackio_server = _shared("trackio_server", "trackio's dashboard over a folder.")
s3_server = _shared("s3_server", "An S3 without buckets.")
weave_server = _shared(
    "weave_server",
    "A Weave trace server; with TEST_WEAVE_CLICKHOUSE=1 on the production store, which shows duplicates.",
)
postgresql = _shared("postgresql", "A PostgreSQL, with MLflow's tables in its database `tables`.")
mariadb = _shared("mariadb", "A MariaDB, with MLflow's tables in its database `tables`.")
pgbouncer = _shared("pgbouncer", "A PgBouncer in transaction mode before the PostgreSQL.")


@pytest.fixture(scope="session")
def empty_database() -> Path:
    """An SQLite file with MLflow's tables and no traces; tests copy it, because making one takes seconds."""
    pytest.importorskip("mlflow")
    return shared.once("empty_database", _make_database)


def _make_database() -> Path:
    from otel_rollout_mlflow.sql_store import SqlStore
    from otel_rollout_mlflow.tracking_uri import parse_tracking_uri

    path = new_folder("mlflow-database-") / "empty.db"
    store = SqlStore(parse_tracking_uri(f"sqlite:///{path}"))
    store.ensure_experiment("Default")
    store.close()
    return path


class _Run:
    """Begins and ends the run's servers."""

    def __init__(self, config: pytest.Config) -> None:
        self._run = None if hasattr(config, "workerinput") else shared.Run()

    def pytest_unconfigure(self) -> None:
        """End all servers."""
        if self._run is not None:
            self._run.end()


def pytest_configure(config: pytest.Config) -> None:
    """Begin the run, in the process that the others are started from."""
    config.pluginmanager.register(_Run(config), "servers of the run")
