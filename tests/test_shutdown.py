"""`flush` and `shutdown` return the truth, within their time, whatever exporters and clocks do."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

import otel_rollout
from otel_rollout import flush, init, rollout_trace_op, shutdown, stats
from otel_rollout.errors import ConfigurationError


class Exporter(SpanExporter):
    """An exporter whose results a test decides."""

    def __init__(self, result: Any = SpanExportResult.SUCCESS) -> None:
        self.result = result
        self.gate = threading.Event()
        self.gate.set()
        self.flushes: list[int] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Wait for the gate, then return or raise."""
        self.gate.wait()
        result, self.result = self.result, SpanExportResult.SUCCESS
        if isinstance(result, type) and issubclass(result, BaseException):
            raise result
        return result  # type: ignore[no-any-return]

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Note the time that is left."""
        self.flushes.append(timeout_millis)
        return True


@rollout_trace_op
def op() -> None:
    """Do nothing."""


class TestShutdown:
    """The second shutdown, and one beside another."""

    def test_a_second_one_returns_the_same(self) -> None:
        """After a shutdown that lost spans, another one returns False too, until the next `init`."""
        exporter = Exporter()
        exporter.gate.clear()
        init("project", "experiment", backend=exporter)
        op()
        assert shutdown(0.2) is False
        assert shutdown(0.2) is False
        exporter.gate.set()
        init("project", "experiment", backend=Exporter())
        assert shutdown() is True

    def test_one_beside_another_waits_for_it(self) -> None:
        """A second thread gets the result of the first one's shutdown, when the spans are delivered."""
        exporter = Exporter()
        exporter.gate.clear()
        init("project", "experiment", backend=exporter)
        op()
        results: list[tuple[bool, int]] = []
        threads = [
            threading.Thread(target=lambda: results.append((shutdown(10), stats().exporters["Exporter"].delivered)))
            for _ in range(2)
        ]
        for thread in threads:
            thread.start()
        threading.Timer(0.2, exporter.gate.set).start()
        for thread in threads:
            thread.join(120)
        assert results == [(True, 1), (True, 1)]

    def test_a_frozen_clock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With `time.monotonic` replaced by a clock that stands, a hung backend delays the end no longer."""
        exporter = Exporter()
        exporter.gate.clear()
        init("project", "experiment", backend=exporter)
        op()
        monkeypatch.setattr(time, "monotonic", lambda: 1.0)
        assert shutdown(0.3) is False
        exporter.gate.set()


class TestFlush:
    """`flush` and what exporters do."""

    def test_it_flushes_the_exporter(self) -> None:
        """An exporter that buffers spans itself is flushed, within the time that is left."""
        exporter = Exporter()
        init("project", "experiment", backend=exporter)
        op()
        assert flush(60) is True
        assert len(exporter.flushes) == 1
        assert 0 < exporter.flushes[0] <= 60_000

    def test_an_exporter_that_returns_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        """None counts as success, with one warning: a retry would store the spans twice."""
        init("project", "experiment", backend=Exporter(None))
        op()
        assert flush(60) is True
        assert stats().exporters["Exporter"].delivered == 1
        assert caplog.text.count("returned None") == 1

    @pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, SystemExit])
    def test_an_exporter_that_ends_its_thread(self, error: type[BaseException]) -> None:
        """What would end the delivery thread is a failed attempt, and the next one delivers."""
        init("project", "experiment", backend=Exporter(error))
        op()
        assert flush(60) is True
        op()
        assert flush(60) is True
        assert stats().exporters["Exporter"].delivered == 2


IN_A_SUBINTERPRETER = """
import importlib, sys
try:
    interpreters = importlib.import_module("_interpreters")
    made = interpreters.create("legacy")
except ImportError:
    interpreters = importlib.import_module("_xxsubinterpreters")
    made = interpreters.create(isolated=False)
interpreters.run_string(made, '''
import otel_rollout
try:
    otel_rollout.init("project", "experiment", backend="console")
except otel_rollout.errors.ConfigurationError as error:
    print(error)
''')
interpreters.destroy(made)
print("ended")
"""


class TestInterpreter:
    """Interpreters and threads that tracing is not made for."""

    def test_in_a_subinterpreter(self) -> None:
        """There `init` refuses, as its threads would abort the process, and says what to use in its place."""
        ran = subprocess.run([sys.executable, "-c", IN_A_SUBINTERPRETER], capture_output=True, text=True, check=True)
        assert "main interpreter alone" in ran.stdout
        assert ran.stdout.endswith("ended\n")

    def test_without_the_global_lock(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """On a Python without the lock `init` refuses, and says how to start it."""
        monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
        with pytest.raises(ConfigurationError, match="PYTHON_GIL=1"):
            otel_rollout.init("project", "experiment", backend=Exporter())
