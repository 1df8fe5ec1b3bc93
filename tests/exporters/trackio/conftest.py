"""Exporters whose worker processes have the real trackio."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_rollout_trackio import TrackioSpanExporter
from tests.servers.trackio_server import TrackioServer

VARIABLES = ("TRACKIO_DIR", "TRACKIO_SERVER_URL", "TRACKIO_SPACE_ID", "TRACKIO_STORAGE_MODE", "TRACKIO_WRITE_TOKEN")


@pytest.fixture(scope="module")
def packages(trackio_server: TrackioServer) -> Iterator[Path]:
    """The folder of trackio's packages, on the path that worker processes get from this one."""
    (folder,) = (trackio_server.environment / "lib").glob("python*/site-packages")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(folder)])
        for variable in VARIABLES:
            patch.delenv(variable, raising=False)
        yield folder


@pytest.fixture(scope="module")
def exporter(trackio_server: TrackioServer, packages: Path) -> Iterator[TrackioSpanExporter]:
    """An exporter that writes into the dashboard's folder; tests of a module share its process."""
    made = TrackioSpanExporter(folder=trackio_server.folder)
    yield made
    made.shutdown()


@pytest.fixture
def project(request: pytest.FixtureRequest) -> str:
    """A project of the test's own."""
    return request.node.name
