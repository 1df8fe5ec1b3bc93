"""The trajectory as a decorator, with `async with`, and what `as trajectory` gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import Trajectory, flush, init, rollout_trace_attr, rollout_trace_op, shutdown
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED, Outcome
from otel_rollout.testing import InMemorySpanExporter, span_tree


@rollout_trace_op
def double(number: int) -> int:
    return 2 * number


class TestDecorator:
    """`@rollout_trace_attr(…)`."""

    def test_each_call_is_a_trajectory(self, rollout_spans: InMemorySpanExporter):
        """A function's calls are traces of their own, with its result."""

        @rollout_trace_attr(step=1, name="solve")
        def solve(number: int) -> int:
            return double(number)

        assert [solve(1), solve(2)] == [2, 4]
        assert solve.__name__ == "solve"
        assert flush()
        assert span_tree(rollout_spans.spans) == [["solve", ["double"]]] * 2
        assert {(span.attributes or {})["rollout.step"] for span in rollout_spans.spans} == {1}

    def test_a_coroutine_function(self, rollout_spans: InMemorySpanExporter):
        """The trajectory is as long as the await, and concurrent ones don't mix."""

        @rollout_trace_attr(step=1)
        async def solve(number: int) -> int:
            await asyncio.sleep(0)
            return double(number)

        async def main() -> list[int]:
            return await asyncio.gather(solve(1), solve(2))

        assert asyncio.run(main()) == [2, 4]
        assert flush()
        assert span_tree(rollout_spans.spans) == [["rollout_trace", ["double"]]] * 2

    def test_it_may_be_decorated_before_init(self):
        """A function that is decorated while tracing is off is traced later."""

        @rollout_trace_attr(step=1)
        def solve() -> None: ...

        solve()
        exporter = InMemorySpanExporter()
        init("p", "e", backend=exporter)
        solve()

        assert flush()
        assert [span.name for span in exporter.spans] == ["rollout_trace"]

    def test_generator_functions_are_refused(self):
        """A generator's caller runs between its steps: decorating one is an error that says what to do."""

        def steps() -> Iterator[int]:
            yield 1

        async def turns() -> AsyncIterator[int]:
            yield 1

        for function in (steps, turns):
            with pytest.raises(TypeError, match="use `with` around the loop"):
                rollout_trace_attr(step=1)(function)


class TestHandle:
    """`with rollout_trace_attr(…) as trajectory`."""

    def test_has_the_trace_id(self, rollout_spans: InMemorySpanExporter):
        """The trace's id is there during and after the trajectory."""
        with rollout_trace_attr(step=1) as trajectory:
            during = trajectory.trace_id

        assert flush()
        context = rollout_spans.spans[0].context
        assert context is not None
        assert during == trajectory.trace_id == f"{context.trace_id:032x}"

    def test_async_with(self, rollout_spans: InMemorySpanExporter):
        """`async with` is the same."""

        async def main() -> Trajectory:
            async with rollout_trace_attr(step=1) as trajectory:
                double(1)
            return trajectory

        assert asyncio.run(main()).trace_id is not None
        assert flush()
        assert span_tree(rollout_spans.spans) == [["rollout_trace", ["double"]]]

    @pytest.mark.parametrize("is_on", [True, False])
    def test_has_the_identity(self, is_on: bool):
        """What `rollout_trace_attr` was given is there, with tracing on or off."""
        if is_on:
            init("p", "e", backend=InMemorySpanExporter())

        with rollout_trace_attr("uid", 2, 3, "name", True) as trajectory:
            pass

        given = (trajectory.sample_index, trajectory.step, trajectory.rollout_n, trajectory.name, trajectory.validate)
        assert given == ("uid", 2, 3, "name", True)
        assert (trajectory.trace_id is not None) == is_on

    def test_without_a_trace(self, rollout_spans: InMemorySpanExporter):
        """Inside `trace=False`, and with tracing off, there is a handle with no id and no address."""
        with rollout_trace_attr(step=1, trace=False) as silent, rollout_trace_attr(step=1) as inside:
            pass
        shutdown()
        with rollout_trace_attr(step=1) as off:
            pass

        assert [each.trace_id for each in (silent, inside, off)] == [None] * 3
        assert [each.address for each in (silent, inside, off)] == [None] * 3

    def test_a_handle_that_is_used_again(self, rollout_spans: InMemorySpanExporter):
        """A second `with` is another trajectory."""
        trajectory = rollout_trace_attr(step=1)
        with trajectory:
            first = trajectory.trace_id
        with trajectory:
            pass

        assert first != trajectory.trace_id

    def test_the_address_is_the_first_backends_that_has_one(self):
        """An exporter with pages is asked with the ids and the project; others are passed over."""

        class Pages(OutcomeSpanExporter):
            def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
                return DELIVERED

            def trajectory_address(self, trace_id: str, root_id: str, project_name: str) -> str | None:
                return f"http://host/{project_name}/{trace_id}/{root_id}"

        class NoPages(Pages):
            def trajectory_address(self, trace_id: str, root_id: str, project_name: str) -> str | None:
                return None

        kept = InMemorySpanExporter()
        init("my-project", "e", backend=[kept, NoPages(), Pages()])
        with rollout_trace_attr(step=1) as trajectory:
            pass

        assert flush()
        context = kept.spans[0].context
        assert context is not None
        ids = f"{context.trace_id:032x}/{context.span_id:016x}"
        assert trajectory.address == f"http://host/my-project/{ids}"
