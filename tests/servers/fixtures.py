"""Servers that tests share: each starts once in a process of the test run, when a test there first asks for it.

A test traces into a project of its own, so that none needs an empty store. Tests that make a server fail, or start it
with options, have one of their own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NoReturn

import pytest

from scripts import environments, otelcol
from tests.servers.browser import Browser, chromium_program
from tests.servers.databases import Mariadb, PgBouncer, Postgresql, missing_programs
from tests.servers.mlflow_server import Mlflow
from tests.servers.phoenix_server import Phoenix
from tests.servers.trackio_server import TrackioServer
from tests.servers.weave_server import WeaveServer

__all__ = ["WEAVE_STORE", "missing"]

REQUIRE_SERVERS = "OTEL_ROLLOUT_REQUIRE_SERVERS"
WEAVE_STORE = "clickhouse" if os.environ.get("TEST_WEAVE_CLICKHOUSE") == "1" else "memory"

Uncaptured = Callable[[], AbstractContextManager[None]]


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it with OTEL_ROLLOUT_REQUIRE_SERVERS set, as in CI."""
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
        if otelcol.shared_folder() is None:
            pytest.skip(str(error))
        missing(str(error))


@pytest.fixture(scope="session")
def uncaptured(request: pytest.FixtureRequest) -> Uncaptured:
    """Make a context in which what is printed reaches the terminal."""
    return request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled


@pytest.fixture(scope="session")
def browser(uncaptured: Uncaptured) -> Iterator[Browser]:
    """A headless chromium, for the tests of what a page shows."""
    program = chromium_program()
    if program is None:
        missing("chromium is not installed: apt-get install chromium")
    with Browser(program, uncaptured=uncaptured) as running:
        yield running


@pytest.fixture(scope="session")
def phoenix(
    environment: Callable[[str], Path], uncaptured: Uncaptured, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Phoenix]:
    """A Phoenix."""
    folder = tmp_path_factory.mktemp("phoenix")
    with Phoenix(environment("phoenix"), folder=folder, uncaptured=uncaptured) as server:
        yield server


@pytest.fixture(scope="session")
def mlflow_server(environment: Callable[[str], Path], uncaptured: Uncaptured) -> Iterator[Mlflow]:
    """The MLflow server of the newest tested version."""
    with Mlflow(environment("mlflow"), uncaptured=uncaptured) as server:
        yield server


@pytest.fixture(scope="session")
def trackio_server(
    environment: Callable[[str], Path], uncaptured: Uncaptured, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TrackioServer]:
    """trackio's dashboard over a folder."""
    folder = tmp_path_factory.mktemp("trackio")
    with TrackioServer(environment("trackio"), folder, uncaptured=uncaptured) as server:
        yield server


@pytest.fixture(scope="session")
def weave_server(environment: Callable[[str], Path], uncaptured: Uncaptured) -> Iterator[WeaveServer]:
    """A Weave trace server; with TEST_WEAVE_CLICKHOUSE=1 on the production store, which alone shows duplicates."""
    with WeaveServer(environment("weave"), store=WEAVE_STORE, uncaptured=uncaptured) as server:
        yield server


def _with_tables(uri: str) -> None:
    """Have MLflow's tables made in an empty database."""
    from otel_rollout_mlflow import MlflowSpanExporter

    store = MlflowSpanExporter(tracking_uri=uri)._opened()
    store.ensure_experiment("Default")
    store.close()


@pytest.fixture(scope="session")
def postgresql(uncaptured: Uncaptured) -> Iterator[Postgresql]:
    """A PostgreSQL, with MLflow's tables in its database `tables`."""
    if names := missing_programs("postgres"):
        missing(f"not installed: {', '.join(names)}")
    with Postgresql(uncaptured=uncaptured) as server:
        server.execute("CREATE DATABASE tables")
        _with_tables(server.uri("tables"))
        yield server


@pytest.fixture(scope="session")
def mariadb(uncaptured: Uncaptured) -> Iterator[Mariadb]:
    """A MariaDB, with MLflow's tables in its database `tables`."""
    if names := missing_programs("mariadbd"):
        missing(f"not installed: {', '.join(names)}")
    with Mariadb(uncaptured=uncaptured) as server:
        server.execute("CREATE DATABASE tables")
        _with_tables(server.uri("tables"))
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgresql: Postgresql, uncaptured: Uncaptured) -> Iterator[PgBouncer]:
    """A PgBouncer in transaction mode before the PostgreSQL."""
    if names := missing_programs("pgbouncer"):
        missing(f"not installed: {', '.join(names)}")
    with PgBouncer(postgresql, uncaptured=uncaptured) as pooler:
        yield pooler
