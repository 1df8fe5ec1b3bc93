"""`rollout_trace_op(follow_result=True)`: the span of an op lasts as long as the iterator that it returns."""

from __future__ import annotations

import asyncio
import copy
import gc
import pickle
import weakref
from collections.abc import AsyncIterator, Iterator
from types import TracebackType
from typing import Any

import pytest
from opentelemetry import trace

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter


class Stream:
    """A stream as the clients of OpenAI and Anthropic have it: it iterates by a generator of its own."""

    def __init__(self, *items: Any, fails: BaseException | None = None) -> None:
        self.items = items
        self.fails = fails
        self.closed = 0
        self.current: list[Any] = []
        self._iterator = self._stream()

    def _stream(self) -> Iterator[Any]:
        for item in self.items:
            self.current.append(trace.get_current_span())
            yield item
        if self.fails is not None:
            raise self.fails

    def __next__(self) -> Any:
        return self._iterator.__next__()

    def __iter__(self) -> Iterator[Any]:
        yield from self._iterator

    def __enter__(self) -> Stream:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Count the call."""
        self.closed += 1


class AsyncStream:
    """The same for coroutines."""

    def __init__(self, *items: Any, waits: bool = False) -> None:
        self.items = list(items)
        self.waits = waits
        self.closed = 0

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        await asyncio.sleep(10 if self.waits else 0)
        if not self.items:
            raise StopAsyncIteration
        return self.items.pop(0)

    async def __aenter__(self) -> AsyncStream:  # noqa: PYI034 - Python 3.10 has no Self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Count the call."""
        self.closed += 1


def one(exporter: InMemorySpanExporter, name: str = "ask") -> dict[str, Any]:
    """Return the one span of a name."""
    assert otel_rollout.flush(60)
    [span] = [span for span in exporter.as_dicts() if span["name"] == name]
    return span


def none(exporter: InMemorySpanExporter) -> bool:
    """Return True if no span has ended."""
    assert otel_rollout.flush(60)
    return not exporter.as_dicts()


@rollout_trace_op(name="ask", follow_result=True)
def ask(stream: Any) -> Any:
    """Return a stream."""
    return stream


@rollout_trace_op(name="ask", follow_result=True)
async def ask_later(stream: Any) -> Any:
    """Return a stream, later."""
    return stream


class TestIterators:
    """A stream that is read in place."""

    @pytest.mark.parametrize("read", [list, lambda stream: [next(stream), next(stream), *stream]])
    def test_to_its_end(self, rollout_spans: InMemorySpanExporter, read: Any) -> None:
        """The span ends with the last item and has all of them; while the stream works, it is the current one."""
        stream = Stream("a", "b")
        followed = ask(stream)
        assert none(rollout_spans)
        assert read(followed) == ["a", "b"]
        span = one(rollout_spans)
        assert (span["attributes"]["output.value"], span["status"]) == (["a", "b"], "UNSET")
        assert {each.get_span_context().span_id for each in stream.current} == {span["span_id"]}
        assert not trace.get_current_span().get_span_context().is_valid

    @pytest.mark.parametrize("make", [lambda: map(abs, [-1, 2]), lambda: iter([1, 2]), lambda: zip([1, 2])])
    def test_pythons_own(self, rollout_spans: InMemorySpanExporter, make: Any) -> None:
        """Iterators of Python's own are followed as well."""
        expected = list(make())
        assert list(ask(make())) == expected
        assert one(rollout_spans)["attributes"]["output.value"] is not None

    def test_its_own_exception(self, rollout_spans: InMemorySpanExporter) -> None:
        """What the stream raises reaches the program untouched, and is the span's error."""
        error = LookupError("the engine was gone")
        with pytest.raises(LookupError) as caught:
            list(ask(Stream("a", fails=error)))
        assert caught.value is error
        span = one(rollout_spans)
        assert (span["status"], span["attributes"]["output.value"]) == ("ERROR", ["a"])

    @pytest.mark.parametrize("way", ["close", "with", "freed", "unread"])
    def test_an_early_end(self, rollout_spans: InMemorySpanExporter, way: str) -> None:
        """A stream that is closed, left or freed ends the span as cancelled, with the items so far."""
        stream = Stream("a", "b")
        followed = ask(stream)
        if way == "with":
            with followed as entered:
                assert entered is followed
                next(entered)
        elif way != "unread":
            next(followed)
        if way == "close":
            followed.close()
        held = [followed]
        del followed
        if way in ("freed", "unread"):
            assert none(rollout_spans)
            held.clear()
            gc.collect()
        span = one(rollout_spans)
        assert (span["status"], span["attributes"]["rollout.status"]) == ("UNSET", "cancelled")
        assert span["attributes"].get("output.value") == (None if way == "unread" else ["a"])
        assert stream.closed == (way in ("close", "with"))

    def test_after_its_end(self, rollout_spans: InMemorySpanExporter) -> None:
        """It answers as before: it stays at its end, and may be closed again."""
        stream = Stream("a")
        followed = ask(stream)
        assert [*followed, *followed] == ["a"]
        assert next(followed, None) is None
        followed.close()
        assert stream.closed == 1
        one(rollout_spans)

    def test_a_loop_alone_holds_it(self, rollout_spans: InMemorySpanExporter) -> None:
        """The loop's own iterator keeps the span open, though the stream itself is freed."""
        items = []
        for item in ask(Stream(1, 2, 3)):
            gc.collect()
            items.append(item)
        assert items == [1, 2, 3]
        assert one(rollout_spans)["attributes"]["output.value"] == [1, 2, 3]

    def test_inside_a_trajectory(self, rollout_spans: InMemorySpanExporter) -> None:
        """What the program does between two items is not inside the span."""

        @rollout_trace_op(name="tool")
        def tool() -> None: ...

        with rollout_trace_attr(1, 1, 0):
            for _ in ask(Stream("a")):
                tool()
        tool_span, root = one(rollout_spans, "tool"), one(rollout_spans, "rollout_trace")
        assert tool_span["parent_id"] == one(rollout_spans)["parent_id"] == root["span_id"]

    def test_the_pieces_of_a_model(self, rollout_spans: InMemorySpanExporter) -> None:
        """The model, the usage and the finish reason come in pieces of a stream."""

        @rollout_trace_op(name="ask", kind="LLM", follow_result=True)
        def complete() -> Any:
            return Stream(
                {"model": "m-1", "choices": [{"delta": {"content": "4"}, "finish_reason": None}]},
                {"model": "m-1", "choices": [{"delta": {}, "finish_reason": "stop"}]},
                {"model": "m-1", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 1}},
            )

        with rollout_trace_attr(1, 1, 0):
            list(complete())
        attributes = one(rollout_spans)["attributes"]
        assert attributes["gen_ai.response.model"] == "m-1"
        assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
        assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (3, 1)
        assert one(rollout_spans, "rollout_trace")["attributes"]["rollout.output_tokens"] == 1

    def test_its_budget(self, rollout_spans: InMemorySpanExporter) -> None:
        """Items beyond a generator's bound are counted, not kept."""
        assert len(list(ask(iter(range(10_005))))) == 10_005
        output = one(rollout_spans)["attributes"]["output.value"]
        assert output[:2] == [0, 1]
        assert "5 items" in output[-1]

    def test_what_is_no_iterator(self, rollout_spans: InMemorySpanExporter) -> None:
        """Any other result is the object itself, and ends the span."""
        given = [1, 2]
        assert ask(given) is given
        assert one(rollout_spans)["attributes"]["output.value"] == [1, 2]

    def test_a_generator(self, rollout_spans: InMemorySpanExporter) -> None:
        """A generator that the program keeps is followed too."""
        kept = (number for number in range(2))
        followed = ask(kept)
        assert followed is not kept
        assert list(followed) == [0, 1]
        assert one(rollout_spans)["attributes"]["output.value"] == [0, 1]

    def test_off(self) -> None:
        """While tracing is off, it is the object itself."""
        stream = Stream()
        assert ask(stream) is stream


class TestAsyncIterators:
    """The same in coroutines."""

    def test_to_its_end(self, rollout_spans: InMemorySpanExporter) -> None:
        """The span ends with the last item."""

        async def main() -> list[Any]:
            return [item async for item in await ask_later(AsyncStream("a", "b"))]

        assert asyncio.run(main()) == ["a", "b"]
        assert one(rollout_spans)["attributes"]["output.value"] == ["a", "b"]

    @pytest.mark.parametrize("way", ["close", "with", "freed"])
    def test_an_early_end(self, rollout_spans: InMemorySpanExporter, way: str) -> None:
        """It may be closed, left or freed."""
        stream = AsyncStream("a", "b")

        async def main() -> None:
            followed = await ask_later(stream)
            if way == "with":
                async with followed as entered:
                    assert entered is followed
                    await entered.__anext__()
                return
            await followed.__anext__()
            if way == "close":
                await followed.close()

        asyncio.run(main())
        span = one(rollout_spans)
        assert (span["attributes"]["rollout.status"], span["attributes"]["output.value"]) == ("cancelled", ["a"])
        assert stream.closed == (way != "freed")

    def test_cancelled(self, rollout_spans: InMemorySpanExporter) -> None:
        """A task that is cancelled while it waits for an item cancels the span."""

        async def main() -> None:
            followed = ask(AsyncStream("a", waits=True))
            task = asyncio.ensure_future(followed.__anext__())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        span = one(rollout_spans)
        assert (span["status"], span["attributes"]["rollout.status"]) == ("ERROR", "cancelled")


class TestProxy:
    """What the program gets passes for the iterator."""

    def test_looks(self, rollout_spans: InMemorySpanExporter) -> None:
        """Its class, its attributes, also set ones, its text and its equality are the iterator's."""
        stream = Stream("a")
        followed = ask(stream)
        assert isinstance(followed, Stream)
        assert followed.__class__ is Stream
        assert (repr(followed), str(followed), hash(followed)) == (repr(stream), str(stream), hash(stream))
        assert dir(followed) == dir(stream)
        followed.note = "kept"
        assert stream.note == "kept"  # type: ignore[attr-defined]
        del followed.note
        assert not hasattr(stream, "note")
        assert followed == followed
        assert weakref.ref(followed)() is followed

    def test_copies(self, rollout_spans: InMemorySpanExporter) -> None:
        """A copy or a pickle is one of the iterator."""
        given = iter([1, 2])
        followed = ask(given)
        for copied in (copy.copy(followed), pickle.loads(pickle.dumps(followed))):
            assert type(copied) is type(given)
            assert list(copied) == [1, 2]
        assert none(rollout_spans)

    def test_what_a_method_raises(self, rollout_spans: InMemorySpanExporter) -> None:
        """A method that fails, or is missing, fails as the iterator's does."""
        followed = ask(iter([1]))
        with pytest.raises(AttributeError, match="close"):
            followed.close()
        with pytest.raises(TypeError):
            len(followed)
