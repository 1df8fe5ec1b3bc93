"""The longest test files run first, so that the processes of a run end together; `--record-seconds` records them."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

RECORD = Path(__file__).with_suffix(".txt")
"""Seconds and file, in a line each; a file that isn't there takes less than `LEAST_SECONDS`."""
LEAST_SECONDS = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--record-seconds", action="store_true", help=f"write {RECORD.name}, from a run of all tests")


def recorded() -> dict[str, float]:
    """Return the seconds of each file that is in the record."""
    lines = [line.split(maxsplit=1) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    return {file: float(seconds) for seconds, file in lines}


def file_of(nodeid: str) -> str:
    """Return the file of a test."""
    return nodeid.partition("::")[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; the tests of a file stay in their order."""
    seconds = recorded()
    items.sort(key=lambda item: -seconds.get(file_of(item.nodeid), 0.0))


class _Recorder:
    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test."""
        self._seconds[file_of(report.nodeid)] += report.duration

    def pytest_unconfigure(self) -> None:
        """Write the record, the longest first."""
        long = {file: seconds for file, seconds in self._seconds.items() if seconds >= LEAST_SECONDS}
        lines = [f"{long[file]:.0f} {file}\n" for file in sorted(long, key=lambda file: (-round(long[file]), file))]
        RECORD.write_text("".join(lines), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Record, where it is asked for, in the process that the others report to."""
    if config.option.record_seconds and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(), "recorder of seconds")
