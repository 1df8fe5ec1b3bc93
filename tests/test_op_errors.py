"""Exceptions that leave a call: the program's, and faults of tracing itself."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import traceback
from typing import Any

import pytest

from otel_rollout import rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import record, recorded

pytestmark = pytest.mark.every_python


class TestErrors:
    """Exceptions that leave a call."""

    def test_exception(self, rollout_spans: InMemorySpanExporter) -> None:
        """An exception passes unchanged, and stands on the span with type, message and stack trace."""
        error = ValueError("bad value")

        @rollout_trace_op(name="f")
        def f(a: int) -> None:
            raise error

        with pytest.raises(ValueError) as caught:
            f(1)
        assert caught.value is error
        assert (error.__cause__, error.__context__) == (None, None)
        assert traceback.extract_tb(error.__traceback__)[-1].name == "f"
        (span,) = recorded(rollout_spans)
        (event,) = span.pop("events")
        stack = event.pop("exception.stacktrace")
        assert stack.startswith("Traceback (most recent call last)")
        assert stack.endswith("    raise error\nValueError: bad value\n")
        # Without the frame of the wrapper around f.
        assert stack.count('  File "') == 1
        assert event == {
            "name": "exception",
            "exception.type": "ValueError",
            "exception.message": "bad value",
            "exception.escaped": "False",
        }
        assert span == record(
            "f",
            {"a": 1},
            attributes={"error.type": "ValueError"},
            end_time=3,
            status="ERROR",
            description="ValueError: bad value",
        )

    def test_frames_are_not_kept_alive(self, rollout_spans: InMemorySpanExporter) -> None:
        """Once handled, an exception and the locals of its frames are freed without the garbage collector."""
        import weakref

        class Local:
            pass

        seen: list[Any] = []

        @rollout_trace_op
        def f() -> None:
            local = Local()
            seen.append(weakref.ref(local))
            raise ValueError

        @rollout_trace_op
        def g() -> Any:
            local = Local()
            seen.append(weakref.ref(local))
            yield 1

        gc.disable()
        try:
            with pytest.raises(ValueError):
                f()
            generator = g()
            next(generator)
            with pytest.raises(KeyError):
                generator.throw(KeyError())
            del generator
            assert recorded(rollout_spans)
            assert [reference() for reference in seen] == [None, None]
        finally:
            gc.enable()

    def test_message_that_can_not_be_read(self, rollout_spans: InMemorySpanExporter) -> None:
        """An exception whose `__str__` raises passes unchanged, and is recorded by its type."""

        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        @rollout_trace_op(name="f")
        def f() -> None:
            raise Mute

        with pytest.raises(Mute):
            f()
        (span,) = recorded(rollout_spans)
        assert (span["status"], span["description"]) == ("ERROR", f"{__name__}.{Mute.__qualname__}")
        assert span["events"][0]["exception.type"] == f"{__name__}.{Mute.__qualname__}"

    def test_message_that_is_no_utf8(self, rollout_spans: InMemorySpanExporter) -> None:
        """A lone surrogate in a message is replaced, so that every backend takes the span."""

        @rollout_trace_op(name="f")
        def f() -> None:
            raise ValueError("\ud800 broken")

        with pytest.raises(ValueError):
            f()
        (span,) = recorded(rollout_spans)
        assert span["description"] == "ValueError: ? broken"
        assert span["events"][0]["exception.message"] == "? broken"

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups came with Python 3.11")
    def test_exception_group(self, rollout_spans: InMemorySpanExporter) -> None:
        """A group of exceptions passes unchanged, and all of them are in the stack trace."""
        error = ExceptionGroup("two", [ValueError("one"), KeyError("other")])  # noqa: F821

        @rollout_trace_op(name="f")
        def f() -> None:
            raise error

        with pytest.raises(ExceptionGroup) as caught:  # noqa: F821
            f()
        assert caught.value is error
        (span,) = recorded(rollout_spans)
        assert (span["status"], span["attributes"]["error.type"]) == ("ERROR", "ExceptionGroup")
        assert "ValueError: one" in span["events"][0]["exception.stacktrace"]
        assert "KeyError: 'other'" in span["events"][0]["exception.stacktrace"]

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_interrupts(self, rollout_spans: InMemorySpanExporter, error: type[BaseException]) -> None:
        """Exceptions that end the program cancel the span, and pass."""

        @rollout_trace_op(name="f")
        def f() -> None:
            raise error

        with pytest.raises(error):
            f()
        assert recorded(rollout_spans) == [
            record(
                "f",
                {},
                attributes={"error.type": error.__name__, "rollout.status": "cancelled"},
                status="ERROR",
                description="cancelled",
            )
        ]

    def test_cancelled_coroutine(self, rollout_spans: InMemorySpanExporter) -> None:
        """A cancelled coroutine ends its span as cancelled, and stays cancelled."""

        @rollout_trace_op(name="f")
        async def f() -> None:
            await asyncio.Event().wait()

        async def main() -> None:
            task = asyncio.create_task(f())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()

        asyncio.run(main())
        assert recorded(rollout_spans) == [
            record(
                "f",
                {},
                attributes={"error.type": "asyncio.exceptions.CancelledError", "rollout.status": "cancelled"},
                status="ERROR",
                description="cancelled",
            )
        ]

    def test_closed_coroutine(self, rollout_spans: InMemorySpanExporter, caplog: pytest.LogCaptureFixture) -> None:
        """A coroutine that is dropped while it waits ends its span as cancelled, and logs nothing."""

        class Forever:
            def __await__(self) -> Any:
                yield

        @rollout_trace_op(name="f")
        async def f() -> None:
            await Forever()

        coroutine = f()
        contextvars.copy_context().run(coroutine.send, None)
        thread = threading.Thread(target=coroutine.close)
        thread.start()
        thread.join()
        assert recorded(rollout_spans) == [record("f", {}, attributes={"rollout.status": "cancelled"})]
        assert caplog.records == []
