"""Receivers, each in a process of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("zstandard")

from tests.receive.receiving import ReceiverProcess


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ReceiverProcess]]:
    """Starts receivers; without a folder theirs is `traces` of the test."""
    started: list[ReceiverProcess] = []

    def run(*options: str, folder: Path = tmp_path / "traces", **given: Any) -> ReceiverProcess:
        started.append(ReceiverProcess(folder, *options, **given))
        return started[-1]

    yield run
    for receiver in started:
        receiver.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Mounts a file system of so many bytes, which only root may do; elsewhere the test is skipped."""
    folder = tmp_path / "disk"

    def mount(size: int) -> Path:
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        return folder

    yield mount
    if folder.exists():
        subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
