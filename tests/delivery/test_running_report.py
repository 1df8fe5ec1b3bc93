"""Delivery tells an exporter which trajectories run, if it has the method `note_open`."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from otel_rollout import init, rollout_trace_attr, rollout_trace_op, shutdown
from otel_rollout.deliver import running_report
from otel_rollout.deliver.running_report import RunningReport
from otel_rollout.record import OpenTrajectories, OpenTrajectory
from otel_rollout.testing import InMemorySpanExporter

SECRET = "sk-ant-api03-" + "a1B2" * 20


@rollout_trace_op(kind="LLM", name="generate")
def generate() -> None:
    pass


class Told(InMemorySpanExporter):
    """Keeps what it is told of running trajectories."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Sequence[OpenTrajectory]] = []
        self.is_told = threading.Event()

    def note_open(self, trajectories: Sequence[OpenTrajectory]) -> None:
        """Keep them."""
        self.told.append(trajectories)
        if trajectories:
            self.is_told.set()

    def await_notes(self, count: int) -> None:
        """Wait for a number of notes."""
        deadline = time.monotonic() + 60
        while len(self.told) < count:
            assert time.monotonic() < deadline
            time.sleep(0.001)


class TestNotes:
    """An exporter with the method `note_open`."""

    @pytest.fixture
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Tell of every trajectory, at each turn of the delivery thread."""
        monkeypatch.setattr(running_report, "SECONDS_RUNNING", 0.0)
        monkeypatch.setattr(running_report, "LONGEST_BETWEEN", 0.0001)

    def test_it_is_told(self, at_once: None) -> None:
        """Delivery tells of running trajectories with secrets replaced, though no span has ended."""
        exporter = Told()
        init("project", "experiment", backend=exporter, schedule_delay_ms=10)
        with rollout_trace_attr(sample_index=SECRET, step=7, name=SECRET):
            assert exporter.is_told.wait(60)
        shutdown()
        [told] = next(each for each in exporter.told if each)
        assert SECRET not in repr(told)
        assert told.tags["rollout.step"] == 7

    def test_it_is_told_the_input_of_the_running_op(self, at_once: None) -> None:
        """The arguments of the op that a trajectory is in are JSON, with secrets replaced, and bounded."""
        exporter = Told()
        init("project", "experiment", backend=exporter, schedule_delay_ms=10)
        started, done = threading.Event(), threading.Event()

        @rollout_trace_op(kind="TOOL", name="sandbox.run")
        def run(code: str, api_key: str, more: str) -> None:
            started.set()
            done.wait(30)

        def roll_out() -> None:
            with rollout_trace_attr(sample_index=1, step=7):
                run("print(1)", SECRET, "x" * 10_000)

        thread = threading.Thread(target=roll_out)
        thread.start()
        assert started.wait(60)
        exporter.told.clear()
        exporter.await_notes(2)
        done.set()
        thread.join()
        shutdown()
        given = next(each[0].op.input for each in exporter.told if each and each[0].op and each[0].op.input)
        assert isinstance(given, str)
        assert given.startswith('{"code":"print(1)"')
        assert SECRET not in given
        assert len(given) <= 2048

    def test_functions_of_the_users(self, at_once: None) -> None:
        """With functions that change a span after its end, its input isn't shown before."""
        exporter = Told()
        init("project", "experiment", backend=exporter, schedule_delay_ms=10, transforms=[lambda span: None])

        @rollout_trace_op(kind="LLM", name="chat")
        def chat(prompt: str) -> None:
            exporter.told.clear()
            exporter.await_notes(2)

        with rollout_trace_attr(sample_index=1, step=7):
            chat("Ada")
        shutdown()
        assert {each[0].op.input for each in exporter.told if each and each[0].op} == {None}

    def test_a_large_input_is_not_read(self, at_once: None) -> None:
        """The size takes its place: reading it would hold up delivery."""
        exporter = Told()
        init("project", "experiment", backend=exporter, schedule_delay_ms=10)

        @rollout_trace_op(kind="LLM", name="chat")
        def chat(prompt: str) -> None:
            exporter.told.clear()
            exporter.await_notes(2)

        with rollout_trace_attr(sample_index=1, step=7):
            chat("x" * 100_000)
        shutdown()
        given = next(each[0].op.input for each in exporter.told if each and each[0].op)
        assert isinstance(given, str)
        assert given.startswith("…[100,")
        assert given.endswith(" bytes]")

    @pytest.mark.parametrize("took", [0.001, 0.1, 60.0])
    def test_notes_that_take_long(self, monkeypatch: pytest.MonkeyPatch, took: float) -> None:
        """The longer a note takes the longer is the pause, which stays below the time that tells of a dead process."""
        clock = [1000.0]

        def take_long(_: object) -> None:
            clock[0] += took

        monkeypatch.setattr(running_report, "monotonic", lambda: clock[0])
        exporter: Any = SimpleNamespace(note_open=take_long)
        notes = RunningReport(exporter, OpenTrajectories(), None)
        notes.note()
        assert notes.seconds_left() == pytest.approx(min(8.0, max(2.0, 50 * took)))
        notes.note()
        assert clock[0] == 1000.0 + took

    @pytest.mark.parametrize("error", [OSError("full"), SystemExit(1)])
    def test_a_failure_stays_inside(self, at_once: None, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        """An exporter that fails to note them gets its spans all the same."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")

        class Failing(Told):
            def note_open(self, trajectories: Sequence[OpenTrajectory]) -> None:
                super().note_open(trajectories)
                raise error

        exporter = Failing()
        init("project", "experiment", backend=exporter, schedule_delay_ms=10)
        with rollout_trace_attr(sample_index=1, step=7):
            assert exporter.is_told.wait(60)
        assert shutdown()
        assert len(exporter.spans) == 1
