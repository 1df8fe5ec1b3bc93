"""Delivery knows which trajectories run, and in which op each is."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from otel_rollout import init, rollout_trace_attr, rollout_trace_op, shutdown
from otel_rollout.record import OpenOp, OpenTrajectory, open_trajectories, runtime
from otel_rollout.testing import InMemorySpanExporter

pytestmark = pytest.mark.every_python


def running() -> list[OpenTrajectory]:
    """Return what delivery is told."""
    assert runtime.pipeline is not None
    return runtime.pipeline.open_trajectories.running_for(0)


@rollout_trace_op(kind="TOOL", name="search")
def search(found: list[Any], inner: Any = None) -> None:
    if inner is not None:
        inner()
    found.append(running())


@rollout_trace_op(kind="LLM", name="generate")
def generate(inner: Any = None) -> None:
    if inner is not None:
        inner()


@pytest.fixture
def tracing() -> Iterator[None]:
    """Tracing into memory."""
    init("project", "experiment", backend=InMemorySpanExporter())
    yield
    shutdown()


class TestRunning:
    """The trajectories that have not ended."""

    def test_a_trajectory_in_an_op(self, tracing: None) -> None:
        """The root's name, its tags and the op are told while the op runs."""
        found: list[Any] = []
        with rollout_trace_attr(sample_index=3, step=7, rollout_n=1, name="agent") as trajectory:
            search(found)
        [[told]] = found
        assert (told.trace_id, told.name, told.ops) == (trajectory.trace_id, "agent", 1)
        assert told.tags["rollout.sample_index"] == 3
        assert isinstance(told.op, OpenOp)
        assert (told.op.name, told.op.kind) == ("search", "TOOL")
        assert told.start_time <= told.op.start_time <= time.time_ns()

    def test_an_op_that_has_ended(self, tracing: None) -> None:
        """Once an inner op has ended, the outer one is told again, and none between ops."""
        found: list[Any] = []
        with rollout_trace_attr(sample_index=3, step=7):
            search(found, inner=generate)
            between = running()
        assert found[0][0].op.name == "search"
        assert [each.op for each in between] == [None]
        assert running() == []

    def test_ops_side_by_side(self, tracing: None) -> None:
        """Of parallel ops the one that started last is told, and their number."""
        found: list[Any] = []
        with rollout_trace_attr(sample_index=3, step=7):
            search(found, inner=lambda: search(found))
        assert [told[0].ops for told in found] == [2, 1]

    def test_an_op_that_fails(self, tracing: None) -> None:
        """An op that raises is no longer open."""

        def fail() -> None:
            raise KeyError("mine")

        with rollout_trace_attr(sample_index=3, step=7):
            with pytest.raises(KeyError):
                search([], inner=fail)
            assert [each.op for each in running()] == [None]

    def test_the_longest_first(self, tracing: None) -> None:
        """Trajectories that are younger than the limit are left out; the oldest comes first."""
        old, young = (rollout_trace_attr(sample_index=1, step=1, name=name) for name in ("old", "young"))
        with old, young:
            names = [each.name for each in running()]
            assert runtime.pipeline is not None
            assert runtime.pipeline.open_trajectories.running_for(3600) == []
        assert names == ["old", "young"]

    def test_abandoned_trajectories_leave_nothing(self) -> None:
        """Nothing is kept of them, though no exporter asks which trajectories run."""
        init("project", "experiment", backend=InMemorySpanExporter())
        assert runtime.pipeline is not None
        begun = [rollout_trace_attr(sample_index=number, step=1) for number in range(100)]

        def abandon() -> None:
            for trajectory in begun:
                trajectory.__enter__()
            begun.clear()

        thread = threading.Thread(target=abandon)
        thread.start()
        thread.join()
        # Since Python 3.14 a thread keeps the context that it ran in.
        del thread
        known = runtime.pipeline.open_trajectories._known
        deadline = time.monotonic() + 60
        # The loop's variable and the delivery thread may hold one a moment longer.
        while known and time.monotonic() < deadline:
            gc.collect()
        assert known == {}
        shutdown()

    def test_an_op_that_outlives_its_trajectory(self, tracing: None) -> None:
        """The trajectory that has ended refers to its spans no more: only the garbage collector would free the two."""
        assert runtime.pipeline is not None

        @rollout_trace_op(name="stream")
        def stream() -> Iterator[int]:
            yield 1
            yield 2

        with rollout_trace_attr(sample_index=1, step=1):
            items = stream()
            next(items)
            [known] = runtime.pipeline.open_trajectories._known.values()
            state = known()
            assert state is not None
            assert len(state.open_ops) == 1
        assert state.open_ops == {}
        assert list(items) == [2]
        assert state.open_ops == {}

    def test_an_op_that_nobody_awaits(self, tracing: None) -> None:
        """The op of a function that returns a coroutine runs while that is awaited; never, if it never is."""
        found: list[Any] = []

        async def work() -> None:
            found.append(running())

        @rollout_trace_op(name="later")
        def later() -> Coroutine[Any, Any, None]:
            return work()

        with rollout_trace_attr(sample_index=1, step=1):
            never, once = later(), later()
            assert [each.ops for each in running()] == [0]
            asyncio.run(once)
            assert [each.ops for each in running()] == [0]
            never.close()
        [[inside]] = found
        assert (inside.op.name, inside.ops) == ("later", 1)

    def test_a_clock_that_is_set_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What began before that is told all the same, since no later than now, in the op that began last."""
        init("project", "experiment", backend=InMemorySpanExporter())
        found: list[Any] = []

        def set_back() -> None:
            earlier = time.time_ns() - 3600 * 10**9
            monkeypatch.setattr(open_trajectories, "time_ns", lambda: earlier)
            generate(lambda: search(found))
            found.append(runtime.pipeline and runtime.pipeline.open_trajectories.running_for(3))

        with rollout_trace_attr(sample_index=1, step=1):
            search([], inner=set_back)
            now = open_trajectories.time_ns()
        [[inside], [outside]] = found
        assert (inside.op.name, inside.ops, outside.op.name) == ("search", 3, "search")
        assert inside.start_time == outside.start_time == outside.op.start_time == now
        shutdown()

    def test_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Beyond a bound the oldest, which may never end, are forgotten."""
        monkeypatch.setattr(open_trajectories, "MAX_TRAJECTORIES", 2)
        init("project", "experiment", backend=InMemorySpanExporter())
        with ExitStack() as trajectories:
            for name in ("first", "second", "third"):
                trajectories.enter_context(rollout_trace_attr(sample_index=1, step=1, name=name))
            assert [each.name for each in running()] == ["second", "third"]
        assert running() == []
        shutdown()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_forked_child(self) -> None:
        """The parent's trajectories are not told by a child."""
        init("project", "experiment", backend=InMemorySpanExporter())
        context = multiprocessing.get_context("fork")
        with rollout_trace_attr(sample_index=1, step=1):
            ours, theirs = context.Pipe()
            child = context.Process(target=lambda: theirs.send(len(running())))
            child.start()
            assert ours.poll(60)
            assert ours.recv() == 0
            child.join()
            assert len(running()) == 1
        shutdown()
