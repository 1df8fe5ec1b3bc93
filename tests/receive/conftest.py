"""Receivers, each in a process of its own."""

from __future__ import annotations

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
