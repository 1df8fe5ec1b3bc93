"""Disks for the tests of trace folders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from otel_rollout.folder.folder_writer import FolderWriter

# Helpers that no installed package holds.
sys.path.append(str(Path(__file__).resolve().parent))


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of 1 MiB, which only root may do; elsewhere the test is skipped."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


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
