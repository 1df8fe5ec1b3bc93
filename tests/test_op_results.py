"""Results that run later: coroutines, generators and tasks that a decorated function returns."""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter, span_tree
from tests.ops import add, multiply, recorded

pytestmark = pytest.mark.every_python


class Made:
    """A function that makes objects, and reports if the last one still lives."""

    class Item:
        """An object that can be referred to weakly."""

    def __call__(self) -> Any:
        """Make an object."""
        item = self.Item()
        self.reference = weakref.ref(item)
        return item

    def is_alive(self) -> bool:
        """Return True if the last object is in memory."""
        return getattr(self, "reference", lambda: None)() is not None


def outputs(exporter: InMemorySpanExporter) -> dict[str, Any]:
    """Return the output of each span by its name."""
    return {span["name"]: span["attributes"].get("output.value") for span in recorded(exporter)}


GRADER = """

class Solution:
    def __init__(self):
        self.number = 1

    def solve(self):
        return DATA

class WrongError(Exception):
    def solve(self):
        return DATA
"""


class TestExecutedCode:
    """Values of classes that are made as the program runs, whose methods refer to all that was there."""

    @pytest.mark.parametrize("name", ["Solution", "WrongError"])
    @pytest.mark.parametrize("is_raised", [False, True])
    def test_it_is_freed(self, rollout_spans: InMemorySpanExporter, name: str, is_raised: bool) -> None:
        """After its span, neither the class of a captured value or exception nor its globals are kept."""
        made = Made()

        @rollout_trace_op
        def grade(solution: Any) -> Any:
            if is_raised:
                raise ValueError(solution) from (solution if name == "WrongError" else None)
            return [solution]

        def run() -> weakref.ref[type]:
            space = {"DATA": made(), "__name__": "solution"}
            exec(GRADER, space)
            kind: Any = space[name]
            try:
                grade(kind())
                annotate(extra=kind())
            except ValueError:
                pass
            return weakref.ref(kind)

        with rollout_trace_attr(sample_index=1):
            kind = run()
        assert len(recorded(rollout_spans)) == 2
        gc.collect()
        assert kind() is None
        assert not made.is_alive()


class TestCoroutines:
    """A plain function that returns a coroutine, such as another decorator's wrapper."""

    def test_until_it_has_ended(self, rollout_spans: InMemorySpanExporter) -> None:
        """The span covers the coroutine, with the calls inside."""

        @rollout_trace_op(name="hands on")
        def hand_on(a: int) -> Any:
            return multiply(a, 2)

        async def main() -> int:
            coroutine = hand_on(4)
            assert inspect.iscoroutine(coroutine)
            assert coroutine.__qualname__ == "multiply"
            add(1)
            return await coroutine

        assert asyncio.run(main()) == 8
        assert outputs(rollout_spans) == {"hands on": 8, "renamed": 8, "add": 3}
        assert span_tree(rollout_spans.spans) == [["hands on", ["renamed"]], ["add"]]

    def test_that_raises(self, rollout_spans: InMemorySpanExporter) -> None:
        """The error of the coroutine is on the span of the function that returned it."""

        @rollout_trace_op(name="hands on")
        def hand_on() -> Any:
            async def fail() -> None:
                raise LookupError("no")

            return fail()

        with pytest.raises(LookupError):
            asyncio.run(hand_on())
        (span,) = recorded(rollout_spans)
        assert (span["status"], span["description"]) == ("ERROR", "LookupError: no")

    def test_that_nobody_awaits(self, rollout_spans: InMemorySpanExporter) -> None:
        """Python warns of a coroutine that nobody awaits once, by its own name; a closed one is no warning."""

        async def work() -> None: ...

        @rollout_trace_op
        def hand_on() -> Coroutine[Any, Any, None]:
            return work()

        hand_on().close()
        with pytest.warns(RuntimeWarning) as warned:
            hand_on()
        assert [str(each.message).partition("\n")[0] for each in warned] == [
            f"coroutine '{work.__qualname__}' was never awaited"
        ]

    def test_that_the_program_keeps(self, rollout_spans: InMemorySpanExporter) -> None:
        """A coroutine that the program refers to elsewhere stays the same object; the span ends at the return."""
        kept: list[Coroutine[Any, Any, int]] = []

        async def work() -> int:
            return 5

        @rollout_trace_op(name="schedule")
        def schedule() -> Coroutine[Any, Any, int]:
            kept.append(work())
            return kept[0]

        returned = schedule()
        assert returned is kept[0]
        assert asyncio.run(kept[0]) == 5  # type: ignore[arg-type]
        assert [span["name"] for span in recorded(rollout_spans)] == ["schedule"]


class TestGenerators:
    """A function that returns a generator of another one."""

    def test_plain(self, rollout_spans: InMemorySpanExporter) -> None:
        """The span covers the iteration and has its items; the generator's name and type stay."""

        def items() -> Iterator[int]:
            add(1)
            yield 1
            yield 2

        @rollout_trace_op(name="stream")
        def stream() -> Iterator[int]:
            return items()

        generator: Any = stream()
        assert inspect.isgenerator(generator)
        assert generator.__qualname__.endswith("items")
        assert list(generator) == [1, 2]
        assert outputs(rollout_spans) == {"stream": [1, 2], "add": 3}
        assert span_tree(rollout_spans.spans) == [["stream", ["add"]]]

    @pytest.mark.parametrize("is_async", [False, True])
    def test_asynchronous(self, rollout_spans: InMemorySpanExporter, is_async: bool) -> None:
        """The same for an async generator, of a plain function and of a coroutine function."""

        async def items() -> AsyncIterator[int]:
            await multiply(1, 1)
            yield 1
            yield 2

        def hand_on() -> AsyncIterator[int]:
            return items()

        async def hand_on_later() -> AsyncIterator[int]:
            return items()

        async def main() -> list[int]:
            if is_async:
                stream = await rollout_trace_op(name="stream")(hand_on_later)()
            else:
                stream = rollout_trace_op(name="stream")(hand_on)()
            return [item async for item in stream]

        assert asyncio.run(main()) == [1, 2]
        assert outputs(rollout_spans) == {"stream": [1, 2], "renamed": 1}
        assert span_tree(rollout_spans.spans) == [["stream", ["renamed"]]]

    def test_that_has_begun(self, rollout_spans: InMemorySpanExporter) -> None:
        """A generator that gave an item already stays the same object, and takes what is sent."""

        def echo() -> Any:
            sent = yield "ready"
            yield sent

        @rollout_trace_op(name="begun")
        def begun() -> Any:
            generator = echo()
            next(generator)
            return generator

        assert begun().send("sent") == "sent"
        assert [span["name"] for span in recorded(rollout_spans)] == ["begun"]


class TestTasks:
    """A function that returns a task."""

    @staticmethod
    def run(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Trace a function that starts a task, and return the task when it is done."""

        @rollout_trace_op(name="start")
        def start() -> asyncio.Task[Any]:
            return asyncio.ensure_future(work())

        async def main() -> Any:
            with rollout_trace_attr(sample_index=1):
                task = start()
                assert type(task) is asyncio.Task
                await asyncio.wait([task])
                return task

        return asyncio.run(main())

    def test_result(self, rollout_spans: InMemorySpanExporter) -> None:
        """The span ends with the task, and has its result."""

        async def work() -> int:
            return await multiply(2, 3)

        assert self.run(work).result() == 6
        assert outputs(rollout_spans)["start"] == 6

    def test_error(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """The task's error is on the span, and asyncio still warns if nobody looks at it."""

        async def work() -> None:
            raise LookupError("no")

        self.run(work)
        gc.collect()
        assert "Task exception was never retrieved" in caplog.text
        assert {span["name"]: span["status"] for span in recorded(rollout_spans)}["start"] == "ERROR"

    def test_cancelled(self, rollout_spans: InMemorySpanExporter) -> None:
        """The span of a cancelled task is cancelled."""

        async def work() -> None:
            asyncio.current_task().cancel()  # type: ignore[union-attr]
            await asyncio.sleep(0)

        assert self.run(work).cancelled()
        spans = {span["name"]: span["attributes"] for span in recorded(rollout_spans)}
        assert spans["start"]["rollout.status"] == "cancelled"

    @pytest.mark.parametrize("is_async", [False, True])
    def test_gathered(self, rollout_spans: InMemorySpanExporter, is_async: bool) -> None:
        """What `asyncio.gather` makes stays the object itself; the span has all results."""

        def gather() -> Any:
            return asyncio.gather(multiply(1, 2), multiply(2, 2))

        async def gather_later() -> Any:
            return gather()

        async def main() -> list[int]:
            with rollout_trace_attr(sample_index=1):
                start: Any = rollout_trace_op(name="start")(gather_later if is_async else gather)
                future = await start() if is_async else start()
                assert type(future) is type(asyncio.gather(asyncio.sleep(0)))
                return await future

        assert asyncio.run(main()) == [2, 4]
        assert outputs(rollout_spans)["start"] == [2, 4]
        assert span_tree(rollout_spans.spans) == [["rollout_trace", ["start", ["renamed"], ["renamed"]]]]


class Pages:
    """An iterator of a program's class, as clients of servers have them for streams."""

    def __init__(self) -> None:
        self.left = [2, 1]

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self.left:
            raise StopIteration
        return self.left.pop()


class TestIterators:
    """Iterators that are no generators."""

    @pytest.mark.parametrize(
        "make",
        [lambda: map(abs, [1, 2]), lambda: iter([1, 2]), lambda: itertools.chain([1], [2]), Pages],
        ids=["map", "iter", "itertools", "class"],
    )
    def test_are_the_object_itself(self, rollout_spans: InMemorySpanExporter, make: Callable[[], Any]) -> None:
        """The span ends at the return, and no item is taken from the iterator; a `yield from` has all of them."""
        made = make()

        @rollout_trace_op(name="hands on")
        def hand_on() -> Any:
            return made

        @rollout_trace_op(name="yields")
        def yield_all() -> Iterator[int]:
            yield from make()

        returned = hand_on()
        assert [span["name"] for span in recorded(rollout_spans)] == ["hands on"]
        assert returned is made
        assert list(returned) == list(yield_all()) == [1, 2]
        assert outputs(rollout_spans)["yields"] == [1, 2]


class TestTrajectories:
    """`rollout_trace_attr` as a decorator takes all that `rollout_trace_op` takes, except for generators."""

    def test_plain_wrapper_of_a_coroutine_function(self, rollout_spans: InMemorySpanExporter) -> None:
        """The trajectory covers the coroutine that a plain function returns: its ops, reward and error."""

        async def run(fails: bool) -> None:
            add(1)
            annotate(reward=1.0)
            if fails:
                raise LookupError("no")

        @rollout_trace_attr(sample_index=1, step=1, name="agent")
        def wrapper(fails: bool) -> Coroutine[Any, Any, None]:
            return run(fails)

        asyncio.run(wrapper(False))  # type: ignore[arg-type]
        with pytest.raises(LookupError):
            asyncio.run(wrapper(True))  # type: ignore[arg-type]
        spans = recorded(rollout_spans)
        assert span_tree(rollout_spans.spans) == [["agent", ["add"]], ["agent", ["add"]]]
        roots = [span["attributes"] for span in spans if span["parent_id"] is None]
        assert [root["rollout.status"] for root in roots] == ["completed", "error"]
        assert [root["rollout.reward"] for root in roots] == [1.0, 1.0]

    def test_class_methods(self, rollout_spans: InMemorySpanExporter) -> None:
        """Class methods and static methods are decorated."""

        class Agent:
            @rollout_trace_attr(name="of class")
            @classmethod
            def of_class(cls) -> type:
                return cls

            @rollout_trace_attr(name="static")
            @staticmethod
            def static(value: int) -> int:
                return value

        assert (Agent.of_class(), Agent.static(2)) == (Agent, 2)
        assert [span["name"] for span in recorded(rollout_spans)] == ["of class", "static"]


class TestLifetimes:
    """The wrapper keeps nothing alive that the plain program frees."""

    def test_arguments_of_a_coroutine(self, rollout_spans: InMemorySpanExporter) -> None:
        """A coroutine function and a generator may free their arguments while they run."""
        made = Made()

        @rollout_trace_op
        async def consume(argument: Any) -> bool:
            del argument
            return made.is_alive()

        @rollout_trace_op
        def iterate(argument: Any) -> Iterator[bool]:
            del argument
            yield made.is_alive()

        # Before `assert`, which keeps the values of an expression.
        alive = [asyncio.run(consume(made())), *iterate(made())]
        assert alive == [False, False]

    @pytest.mark.skipif(sys.version_info < (3, 12), reason="a call with `*args` keeps them until it returns")
    def test_arguments_of_a_function(self, rollout_spans: InMemorySpanExporter) -> None:
        """A function may free its arguments while it runs."""
        made = Made()

        @rollout_trace_op
        def consume(argument: Any) -> bool:
            del argument
            return made.is_alive()

        is_alive = consume(made())
        assert is_alive is False

    def test_items_of_a_generator(self, rollout_spans: InMemorySpanExporter) -> None:
        """An item that its consumer dropped is freed before the next one is made, and a sent one likewise."""
        made = Made()

        @rollout_trace_op
        def items() -> Any:
            for _ in range(3):
                alive.append(made.is_alive())
                yield made()

        @rollout_trace_op
        async def later() -> Any:
            for _ in range(3):
                alive.append(made.is_alive())
                yield made()

        async def consume() -> None:
            async for item in later():
                del item

        alive: list[bool] = []
        for item in items():
            del item
        asyncio.run(consume())
        assert alive == [False] * 6


class TestAbandoned:
    """Async generators that nobody closes."""

    def test_the_loop_closes_them_once(self, rollout_spans: InMemorySpanExporter, caplog: Any) -> None:
        """The loop closes the generator when it ends: its cleanup runs, and nothing is reported."""
        cleaned: list[int] = []

        @rollout_trace_op(name="items")
        async def items(number: int) -> Any:
            try:
                yield number
                yield number
            finally:
                await asyncio.sleep(0)
                cleaned.append(number)

        async def main() -> None:
            generators.extend(items(number) for number in range(3))
            for generator in generators:
                await generator.__anext__()

        generators: list[Any] = []
        asyncio.run(main())
        assert sorted(cleaned) == [0, 1, 2]
        assert caplog.text == ""
        assert [span["name"] for span in recorded(rollout_spans)] == ["items"] * 3
