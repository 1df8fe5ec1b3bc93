"""The lines before the first test, and the line of skipped tests at the end."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from importlib.util import find_spec

import pytest

from scripts import environments, otelcol
from tests.file_seconds import recorded
from tests.servers.browser import chromium_program
from tests.servers.databases import missing_programs

APT = "apt-get install"


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return what is here, what isn't and how to get it, and how long it takes."""
    made = environments.cache_folder()
    waiting = [name for name in sorted(environments.FAST) if not environments.is_made(name)]
    lines = [f"servers start when a test needs them, in environments that lie in {made}"]
    if waiting:
        lines.append(f"made now, once, a few minutes: {', '.join(waiting)}")
    if lacking := _lacking():
        lines.append(f"skipped for lack of: {'; '.join(lacking)}")
    if not config.args or config.args == config.getini("testpaths"):
        lines.append(_duration())
    return lines


def _lacking() -> list[str]:
    """Return each program that isn't here, with the way to get it."""
    programs = {
        "PostgreSQL": (not missing_programs("postgres"), f"{APT} postgresql"),
        "MariaDB": (not missing_programs("mariadbd"), f"{APT} mariadb-server"),
        "PgBouncer": (not missing_programs("pgbouncer"), f"{APT} pgbouncer"),
        "chromium": (chromium_program() is not None, f"{APT} chromium"),
        "the OpenTelemetry Collector": (_has_collector(), "see CONTRIBUTING.md"),
        "torch": (find_spec("torch") is not None, "pip install torch"),
        "root, to mount file systems": (os.geteuid() == 0, "sudo"),
        "zsh": (shutil.which("zsh") is not None, f"{APT} zsh"),
    }
    return [f"{name} ({way})" for name, (is_here, way) in programs.items() if not is_here]


def _has_collector() -> bool:
    try:
        return bool(otelcol.ensure())
    except otelcol.NotHereError:
        return False


def _duration() -> str:
    seconds = sum(recorded().values())
    return f"about {seconds / 2 / 60:.0f} minutes in two processes; the slow tests are in `make test-slow`"


class _Skipped:
    def __init__(self) -> None:
        self._reasons: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a skipped test."""
        if report.skipped and not hasattr(report, "wasxfail"):
            self._count(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a file that is skipped as a whole."""
        if report.skipped:
            self._count(report)

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        self._reasons[reason.removeprefix("Skipped: ")] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Write why tests were skipped, in one line."""
        if self._reasons:
            reasons = (f"{count} {reason}" for reason, count in self._reasons.most_common())
            terminalreporter.write_line(f"skipped: {'; '.join(reasons)}")


def pytest_configure(config: pytest.Config) -> None:
    """Count in the process that the others report to."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Skipped(), "skipped tests")
