"""Generators and async generators: the span covers the iteration, and nothing about it changes."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from typing import Any

import pytest

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.record import call as call_module
from otel_rollout.testing import InMemorySpanExporter, span_tree
from tests.fresh_interpreter import run_program
from tests.ops import Agent, add, count_to, multiply, record, recorded, stream

pytestmark = pytest.mark.every_python


class TestGenerators:
    """Generators, from the first item to the last."""

    def test_span_covers_the_iteration(self, rollout_spans: InMemorySpanExporter) -> None:
        """A generator's span begins with the first item, ends after the last, and its output is the list of both."""
        generator = count_to(2)
        assert recorded(rollout_spans) == []
        assert next(generator) == 0
        assert recorded(rollout_spans) == []
        assert next(generator) == 1
        with pytest.raises(StopIteration) as stop:
            next(generator)
        assert stop.value.value == 2
        assert recorded(rollout_spans) == [record("count_to", {"n": 2}, [0, 1])]

    def test_yield_from_returns_the_value(self, rollout_spans: InMemorySpanExporter) -> None:
        """`yield from` a traced generator gives what it returned."""

        def outer() -> Any:
            return (yield from count_to(3))

        generator = outer()
        assert list(iter(lambda: next(generator, "end"), "end")) == [0, 1, 2]
        assert recorded(rollout_spans) == [record("count_to", {"n": 3}, [0, 1, 2])]

    def test_send_and_throw_and_close(self, rollout_spans: InMemorySpanExporter) -> None:
        """Sent values and thrown exceptions reach the generator, and its answers come out, as without the decorator."""
        log: list[Any] = []

        def body() -> Any:
            try:
                while True:
                    try:
                        log.append((yield len(log)))
                    except KeyError as error:  # noqa: PERF203
                        log.append(error)
            finally:
                log.append("closed")

        def drive(generator: Any) -> list[Any]:
            log.clear()
            error = KeyError("thrown")
            answers = [next(generator), generator.send("a"), generator.throw(error), generator.send("b")]
            generator.close()
            generator.close()
            assert log[1] is error
            return [*answers, *log[:1], *log[2:], next(generator, "end")]

        expected = drive(body())
        assert expected == [0, 1, 2, 3, "a", "b", "closed", "end"]
        assert drive(rollout_trace_op(name="body")(body)()) == expected
        assert recorded(rollout_spans) == [record("body", {}, [0, 1, 2, 3], attributes={"rollout.status": "cancelled"})]

    def test_error_after_some_items(self, rollout_spans: InMemorySpanExporter) -> None:
        """A generator that raises keeps what it yielded until then, and the exception passes unchanged."""
        error = ValueError("stop here")

        @rollout_trace_op(name="f")
        def f() -> Any:
            yield "first"
            raise error

        with pytest.raises(ValueError) as caught:
            list(f())
        assert caught.value is error
        (span,) = recorded(rollout_spans)
        assert (span["status"], span["attributes"]["output.value"]) == ("ERROR", ["first"])

    def test_wrong_arguments(self, rollout_spans: InMemorySpanExporter) -> None:
        """Arguments that a generator does not take raise its own TypeError at the call, and there is no span."""
        with pytest.raises(TypeError, match=r"count_to\(\) missing 1 required positional argument"):
            count_to()  # type: ignore[call-arg]
        assert recorded(rollout_spans) == []

    def test_spans_between_the_items(self, rollout_spans: InMemorySpanExporter) -> None:
        """The generator's calls are under its span; the consumer's calls between the items are not."""

        @rollout_trace_op(name="producer")
        def produce() -> Any:
            for i in range(2):
                add(i)
                yield i

        @rollout_trace_op(name="consumer")
        def consume() -> None:
            for _ in produce():
                Agent.static_outside_in(1)

        consume()
        recorded(rollout_spans)
        static = ["Agent.static_outside_in"]
        assert span_tree(rollout_spans.spans) == [["consumer", ["producer", ["add"], ["add"]], static, static]]

    def test_contexts_opened_by_the_body(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory that a generator opens stays open for its body across yields, and hidden from the consumer."""

        @rollout_trace_op(name="producer")
        def produce() -> Any:
            with rollout_trace_attr(1, name="inner"):
                yield 1
                add(1)
                yield 2

        for _ in produce():
            Agent.static_outside_in(1)
        recorded(rollout_spans)
        static = ["Agent.static_outside_in"]
        assert span_tree(rollout_spans.spans) == [["producer"], ["inner", ["add"]], static, static]

    def test_abandoned_generator(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """An abandoned generator is closed as cancelled, whichever thread collects it, and nothing is logged."""
        generator = count_to(5)
        next(generator)
        holder = [generator]
        del generator
        thread = threading.Thread(target=holder.clear)
        thread.start()
        thread.join()
        assert recorded(rollout_spans) == [
            record("count_to", {"n": 5}, [0], attributes={"rollout.status": "cancelled"})
        ]
        assert caplog.records == []

    def test_bounded_output(self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only so many items are kept as output, with a note of how many were not."""
        monkeypatch.setattr(call_module, "MAX_YIELDED_ITEMS", 3)
        assert sum(1 for _ in count_to(1200)) == 1200
        assert recorded(rollout_spans) == [record("count_to", {"n": 1200}, [0, 1, 2, "…[1,197 items cut]"])]

    def test_bounded_bytes(self, rollout_spans: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
        """Only so many bytes of items are kept as output."""
        monkeypatch.setattr(call_module, "MAX_YIELDED_BYTES", 10)

        @rollout_trace_op(name="f")
        def f() -> Any:
            yield from ["0123456789"] * 3

        list(f())
        assert recorded(rollout_spans) == [record("f", {}, ["0123456789", "…[2 items cut]"])]

    def test_switched_on_between_call_and_iteration(self) -> None:
        """A generator that was made while tracing was off is traced if tracing is on when it starts."""
        generator = count_to(1)
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        assert list(generator) == [0]
        assert [span["name"] for span in recorded(exporter)] == ["count_to"]


class TestAsyncGenerators:
    """Async generators, from the first item to the last."""

    def test_span_covers_the_iteration(self, rollout_spans: InMemorySpanExporter) -> None:
        """An async generator's span covers the iteration, and its output is the list of what was yielded."""

        async def main() -> list[int]:
            return [item async for item in stream(3)]

        assert asyncio.run(main()) == [0, 1, 2]
        assert recorded(rollout_spans) == [record("stream", {"n": 3}, [0, 1, 2])]

    def test_asend_and_athrow_and_aclose(self, rollout_spans: InMemorySpanExporter) -> None:
        """What is sent and thrown in reaches the async generator, and its answers come out, as undecorated."""
        log: list[Any] = []

        async def body() -> Any:
            try:
                while True:
                    try:
                        log.append((yield len(log)))
                    except KeyError as error:  # noqa: PERF203
                        log.append(error)
            finally:
                await asyncio.sleep(0)
                log.append("closed")

        async def drive(generator: Any) -> list[Any]:
            log.clear()
            error = KeyError("thrown")
            answers = [
                await generator.__anext__(),
                await generator.asend("a"),
                await generator.athrow(error),
                await generator.asend("b"),
            ]
            await generator.aclose()
            await generator.aclose()
            assert log[1] is error
            with pytest.raises(StopAsyncIteration):
                await generator.__anext__()
            return [*answers, *log[:1], *log[2:]]

        expected = asyncio.run(drive(body()))
        assert expected == [0, 1, 2, 3, "a", "b", "closed"]
        assert asyncio.run(drive(rollout_trace_op(name="body")(body)())) == expected
        assert recorded(rollout_spans) == [record("body", {}, [0, 1, 2, 3], attributes={"rollout.status": "cancelled"})]

    def test_error_after_some_items(self, rollout_spans: InMemorySpanExporter) -> None:
        """An async generator that raises keeps what it yielded until then, and the exception passes unchanged."""
        error = ValueError("stop here")

        @rollout_trace_op(name="f")
        async def f() -> Any:
            yield "first"
            raise error

        async def main() -> None:
            async for _ in f():
                pass

        with pytest.raises(ValueError) as caught:
            asyncio.run(main())
        assert caught.value is error
        (span,) = recorded(rollout_spans)
        assert (span["status"], span["attributes"]["output.value"]) == ("ERROR", ["first"])

    def test_spans_between_the_items(self, rollout_spans: InMemorySpanExporter) -> None:
        """What the async generator calls is under its span, also when each item is asked for by another task."""

        @rollout_trace_op(name="producer")
        async def produce() -> Any:
            for i in range(2):
                await multiply(i, i)
                yield i

        @rollout_trace_op(name="consumer")
        async def consume() -> None:
            generator = produce()
            for _ in range(2):
                await asyncio.create_task(generator.__anext__())
                add(1)
            await generator.aclose()

        asyncio.run(consume())
        recorded(rollout_spans)
        assert span_tree(rollout_spans.spans) == [
            ["consumer", ["producer", ["renamed"], ["renamed"]], ["add"], ["add"]]
        ]

    def test_abandoned_generator(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """An async generator left by `break` is closed as cancelled, and no "Failed to detach context" is logged."""

        async def main() -> None:
            async for item in stream(5):
                if item == 1:
                    break
            gc.collect()
            await asyncio.sleep(0)

        with caplog.at_level(logging.DEBUG):
            asyncio.run(main())
        assert recorded(rollout_spans) == [
            record("stream", {"n": 5}, [0, 1], attributes={"rollout.status": "cancelled"})
        ]
        assert [entry for entry in caplog.records if entry.name != "asyncio"] == []

    def test_cancelled_while_it_waits(self, rollout_spans: InMemorySpanExporter) -> None:
        """A task that is cancelled inside an async generator ends its span as cancelled."""

        @rollout_trace_op(name="f")
        async def f() -> Any:
            yield 1
            await asyncio.Event().wait()

        async def consume() -> None:
            async for _ in f():
                pass

        async def main() -> None:
            task = asyncio.create_task(consume())
            for _ in range(3):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        (span,) = recorded(rollout_spans)
        assert (span["attributes"]["rollout.status"], span["attributes"]["output.value"]) == ("cancelled", [1])


class TestCollector:
    """Generators that the garbage collector closes, in the middle of whatever runs."""

    def test_many_in_cycles(self) -> None:
        """Abandoned in reference cycles by the thousand beside other calls, they don't crash the process."""
        done = run_program(
            """
            import gc
            import time
            import otel_rollout
            from otel_rollout.testing import InMemorySpanExporter

            @otel_rollout.rollout_trace_op
            def items():
                yield 1

            @otel_rollout.rollout_trace_op
            def act(number):
                return number

            class Holder:
                pass

            exporter = InMemorySpanExporter()
            otel_rollout.init("project", "experiment", backend=exporter)
            gc.set_threshold(50)
            for trajectory in range(200):
                with otel_rollout.rollout_trace_attr(trajectory, 1, 0):
                    for number in range(50):
                        holder = Holder()
                        holder.generator, holder.itself = items(), holder
                        next(holder.generator)
                        del holder
                        assert act(number) == number
            deadline = time.monotonic() + 60
            while len(exporter.spans) < 20_200 and time.monotonic() < deadline:
                gc.collect()  # without effect while the delivery thread collects
                assert otel_rollout.flush(60)
            print(len(exporter.spans))
            """
        )
        assert (done.returncode, done.stdout) == (0, "20200\n"), done.stderr
