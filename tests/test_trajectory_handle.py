"""The trajectory as a decorator, with `async with`, and what `as trajectory` gives."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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


class Task:
    """What a rollout is called with."""

    def __init__(self, number: int) -> None:
        self.number = number


def tags(exporter: InMemorySpanExporter) -> list[dict[str, object]]:
    """Return the name and the tags of each root."""
    assert flush()
    keys = ("step", "sample_index", "rollout_n", "validate")
    return [
        {
            "name": span.name,
            **{key: value for key in keys if (value := (span.attributes or {}).get(f"rollout.{key}")) is not None},
        }
        for span in exporter.spans
        if span.parent is None
    ]


class TestFunctionsOfTheArguments:
    """`@rollout_trace_attr(sample_index=lambda task, **_: task.number)`."""

    def test_each_call_has_its_own(self, rollout_spans: InMemorySpanExporter):
        """A function gets the arguments of the call, positional or not; other values are the same for all."""

        @rollout_trace_attr(
            step=7,
            sample_index=lambda task, **_: task.number,
            rollout_n=lambda _, *, n: n,
            name=lambda task, n: f"task {task.number}",
            validate=lambda *args, **kwargs: kwargs["n"] == 1,
        )
        def solve(task: Task, n: int) -> int:
            return task.number + n

        assert [solve(Task(3), n=0), solve(Task(4), n=1)] == [3, 5]
        assert tags(rollout_spans) == [
            {"name": "task 3", "step": 7, "sample_index": 3, "rollout_n": 0, "validate": False},
            {"name": "task 4", "step": 7, "sample_index": 4, "rollout_n": 1, "validate": True},
        ]

    def test_coroutines_and_methods(self, rollout_spans: InMemorySpanExporter):
        """A method's function gets the object first, as the method does."""

        class Agent:
            def __init__(self, step: int) -> None:
                self.step = step

            @rollout_trace_attr(step=lambda self, task: self.step, sample_index=lambda self, task: task.number)
            async def solve(self, task: Task) -> int:
                await asyncio.sleep(0)
                return task.number

        assert asyncio.run(Agent(5).solve(Task(3))) == 3
        assert tags(rollout_spans) == [{"name": "rollout_trace", "step": 5, "sample_index": 3, "validate": False}]

    def test_which_calls_are_traced(self, rollout_spans: InMemorySpanExporter):
        """`trace` may be a function too: what it refuses is silent."""

        @rollout_trace_attr(sample_index=lambda number: number, trace=lambda number: number % 2 == 0)
        def solve(number: int) -> int:
            return double(number)

        assert [solve(number) for number in range(4)] == [0, 2, 4, 6]
        assert [each["sample_index"] for each in tags(rollout_spans)] == [0, 2]
        assert span_tree(rollout_spans.spans) == [["rollout_trace", ["double"]]] * 2

    def test_one_that_fails(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture):
        """Its field is left out, with one warning; the call goes on, and so do the other fields."""

        def fail(number: int) -> str:
            raise LookupError(number)

        @rollout_trace_attr(step=1, sample_index=fail, name=fail)
        def solve(number: int) -> int:
            return number

        assert [solve(1), solve(2)] == [1, 2]
        assert tags(rollout_spans) == [{"name": "rollout_trace", "step": 1, "validate": False}] * 2
        assert [entry.getMessage() for entry in caplog.records] == [
            f"{solve.__qualname__}: {field} failed: its value is left out" for field in ("sample_index", "name")
        ]

    def test_what_is_not_an_exception_passes(self, rollout_spans: InMemorySpanExporter):
        """A BaseException of the function leaves the call, before the trajectory has begun."""

        def stop() -> int:
            raise KeyboardInterrupt

        @rollout_trace_attr(step=stop)
        def solve() -> None: ...

        with pytest.raises(KeyboardInterrupt):
            solve()
        assert tags(rollout_spans) == []

    def test_off(self):
        """With tracing off, no function is called."""
        asked: list[int] = []

        @rollout_trace_attr(step=asked.append)
        def solve(number: int) -> int:
            return number

        assert (solve(1), asked) == (1, [])

    def test_in_a_with_statement(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture):
        """There is no call that a function could have the arguments of: one warning, and the field is left out."""
        for _ in range(2):
            with rollout_trace_attr(sample_index=3, step=lambda: 1, validate=lambda: True):
                double(1)

        assert tags(rollout_spans) == [{"name": "rollout_trace", "sample_index": 3, "validate": False}] * 2
        assert [entry.getMessage().partition(":")[0] for entry in caplog.records] == [
            "rollout_trace_attr(step=…)",
            "rollout_trace_attr(validate=…)",
        ]


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
        """Inside `trace=False`, and with tracing off, there is a handle with no id and no URL."""
        with rollout_trace_attr(step=1, trace=False) as silent, rollout_trace_attr(step=1) as inside:
            pass
        shutdown()
        with rollout_trace_attr(step=1) as off:
            pass

        assert [each.trace_id for each in (silent, inside, off)] == [None] * 3
        assert [each.url for each in (silent, inside, off)] == [None] * 3

    def test_a_handle_that_is_used_again(self, rollout_spans: InMemorySpanExporter):
        """A second `with` is another trajectory."""
        trajectory = rollout_trace_attr(step=1)
        with trajectory:
            first = trajectory.trace_id
        with trajectory:
            pass

        assert first != trajectory.trace_id

    def test_the_url_is_the_first_backends_that_has_one(self):
        """An exporter with pages is asked with the ids and the project; others are passed over."""

        class Pages(OutcomeSpanExporter):
            def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
                return DELIVERED

            def trajectory_url(self, trace_id: str, root_id: str, project_name: str) -> str | None:
                return f"http://host/{project_name}/{trace_id}/{root_id}"

        class NoPages(Pages):
            def trajectory_url(self, trace_id: str, root_id: str, project_name: str) -> str | None:
                return None

        kept = InMemorySpanExporter()
        init("my-project", "e", backend=[kept, NoPages(), Pages()])
        with rollout_trace_attr(step=1) as trajectory:
            pass

        assert flush()
        context = kept.spans[0].context
        assert context is not None
        ids = f"{context.trace_id:032x}/{context.span_id:016x}"
        assert trajectory.url == f"http://host/my-project/{ids}"
