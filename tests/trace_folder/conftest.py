"""Disks for the tests of trace folders."""

from __future__ import annotations

import pytest

from otel_rollout.folder.folder_writer import FolderWriter


@pytest.fixture
def writer(tmp_path):
    """A writer into an empty folder."""
    writer = FolderWriter(tmp_path / "traces")
    yield writer
    writer.close()


@pytest.fixture
def folder(tmp_path):
    """The path of a trace folder."""
    return tmp_path / "traces"


@pytest.fixture
def problems():
    """What a reader reports."""
    return []
