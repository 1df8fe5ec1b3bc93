"""`rollout_trace_op`: every kind of callable keeps its behaviour, and each call becomes one span."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import functools
import gc
import inspect
import logging
import pickle
import subprocess
import sys
import threading
import traceback
from typing import Any

import pytest

import otel_rollout
from otel_rollout import call as call_module
from otel_rollout import rollout_trace_attr, rollout_trace_op, runtime
from otel_rollout.testing import InMemorySpanExporter, span_tree

MISSING: Any = object()


def record(name: str, inputs: Any = MISSING, output: Any = MISSING, **changes: Any) -> dict[str, Any]:
    """Return the whole record of a span of an op that ran outside any trajectory, as the only span so far."""
    attributes: dict[str, Any] = {"openinference.span.kind": "CHAIN", "rollout.outside_trajectory": True}
    for side, value in (("input", inputs), ("output", output)):
        if value is not MISSING:
            attributes |= {f"{side}.value": value, f"{side}.mime_type": "application/json"}
    attributes |= changes.pop("attributes", {})
    ids = {"trace_id": 1, "span_id": 1, "parent_id": None, "start_time": 1, "end_time": 2, "status": "UNSET"}
    return {"name": name, **ids, "attributes": attributes, **changes}


def recorded(exporter: InMemorySpanExporter) -> list[dict[str, Any]]:
    """Return all spans so far, whole."""
    assert otel_rollout.flush(10.0)
    return exporter.as_dicts()


@rollout_trace_op
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


@rollout_trace_op(name="renamed", kind="TOOL")
async def multiply(a: int, b: int) -> int:
    """Multiply."""
    await asyncio.sleep(0)
    return a * b


@rollout_trace_op
def count_to(n: int) -> Any:
    """Count, and say how far."""
    yield from range(n)
    return n


@rollout_trace_op
async def stream(n: int) -> Any:
    """Count, asynchronously."""
    for i in range(n):
        await asyncio.sleep(0)
        yield i


class Agent:
    """Methods of every kind."""

    factor = 10

    def __init__(self, name: str = "agent") -> None:
        self.name = name

    @rollout_trace_op
    def scale(self, value: int) -> int:
        """Scale."""
        return value * self.factor

    @rollout_trace_op
    async def act(self, value: int) -> int:
        """Act."""
        return value + 1

    @rollout_trace_op
    @classmethod
    def inside_out(cls, value: int) -> int:
        """Be decorated outside of classmethod."""
        return value * cls.factor

    @classmethod
    @rollout_trace_op
    def outside_in(cls, value: int) -> int:
        """Be decorated inside of classmethod."""
        return value * cls.factor

    @rollout_trace_op
    @staticmethod
    def static_inside_out(value: int) -> int:
        """Be decorated outside of staticmethod."""
        return value

    @staticmethod
    @rollout_trace_op
    def static_outside_in(value: int) -> int:
        """Be decorated inside of staticmethod."""
        return value


class Caller:
    """An object whose calls are coroutines."""

    @property
    def __name__(self) -> str:
        return "caller"

    async def __call__(self, value: int) -> int:
        """Add one."""
        await asyncio.sleep(0)
        return value + 1


class TestKindsOfCallables:
    """What can be decorated."""

    def test_function(self, rollout_spans: InMemorySpanExporter) -> None:
        """A call of a function is one span with its arguments, defaults included, and its result."""
        assert add(1) == 3
        assert recorded(rollout_spans) == [record("add", {"a": 1, "b": 2}, 3)]

    def test_coroutine_function(self, rollout_spans: InMemorySpanExporter) -> None:
        """The span of a coroutine function ends with the coroutine; name and kind are those of the decorator."""
        assert asyncio.run(multiply(3, b=4)) == 12
        tool = {
            "openinference.span.kind": "TOOL",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "renamed",
        }
        assert recorded(rollout_spans) == [record("renamed", {"a": 3, "b": 4}, 12, attributes=tool)]

    def test_coroutine_that_is_not_awaited(self, rollout_spans: InMemorySpanExporter) -> None:
        """Calling a coroutine function records nothing yet: it runs when it is awaited."""
        coroutine = multiply(3, 4)
        coroutine.close()
        assert recorded(rollout_spans) == []

    @pytest.mark.parametrize(
        ("name", "result"),
        [
            ("scale", 50),
            ("inside_out", 50),
            ("outside_in", 50),
            ("static_inside_out", 5),
            ("static_outside_in", 5),
        ],
    )
    def test_methods(self, rollout_spans: InMemorySpanExporter, name: str, result: int) -> None:
        """Methods, class methods and static methods are traced either way round, without `self` and `cls`."""
        assert getattr(Agent(), name)(5) == result
        assert recorded(rollout_spans) == [record(f"Agent.{name}", {"value": 5}, result)]

    def test_class_methods_through_the_class(self, rollout_spans: InMemorySpanExporter) -> None:
        """Class and static methods can be called on the class, and see the subclass that they are called on."""

        class Special(Agent):
            factor = 100

        assert (Special.inside_out(2), Special.outside_in(2), Special.static_inside_out(2)) == (200, 200, 2)
        assert [span["name"] for span in recorded(rollout_spans)] == [
            "Agent.inside_out",
            "Agent.outside_in",
            "Agent.static_inside_out",
        ]

    def test_async_method(self, rollout_spans: InMemorySpanExporter) -> None:
        """An async method is one span, without `self`."""
        assert asyncio.run(Agent().act(1)) == 2
        assert recorded(rollout_spans) == [record("Agent.act", {"value": 1}, 2)]

    def test_bound_method(self, rollout_spans: InMemorySpanExporter) -> None:
        """A method that is decorated after it was bound is traced like any function."""

        class Plain:
            def double(self, value: int) -> int:
                return 2 * value

        assert rollout_trace_op(name="double")(Plain().double)(4) == 8
        assert recorded(rollout_spans) == [record("double", {"value": 4}, 8)]

    def test_partial(self, rollout_spans: InMemorySpanExporter) -> None:
        """A partial object is named for its function, and what it has bound is among the arguments."""

        def power(base: int, exponent: int) -> int:
            return base**exponent

        assert rollout_trace_op(functools.partial(power, exponent=3))(2) == 8
        name = f"{TestKindsOfCallables.__name__}.test_partial.<locals>.power"
        assert recorded(rollout_spans) == [record(name, {"base": 2, "exponent": 3}, 8)]

    def test_partial_of_a_coroutine_function(self, rollout_spans: InMemorySpanExporter) -> None:
        """A partial object over a coroutine function stays one."""

        async def power(base: int, exponent: int) -> int:
            return base**exponent

        square = rollout_trace_op(name="square")(functools.partial(power, exponent=2))
        assert inspect.iscoroutinefunction(square)
        assert asyncio.run(square(3)) == 9
        assert recorded(rollout_spans) == [record("square", {"base": 3, "exponent": 2}, 9)]

    def test_object_with_an_async_call(self, rollout_spans: InMemorySpanExporter) -> None:
        """An object whose `__call__` is a coroutine function becomes a coroutine function."""
        traced = rollout_trace_op(name="caller")(Caller())
        assert inspect.iscoroutinefunction(traced)
        assert asyncio.run(traced(1)) == 2
        assert recorded(rollout_spans) == [record("caller", {"value": 1}, 2)]

    def test_object_without_a_name(self, rollout_spans: InMemorySpanExporter) -> None:
        """An object that has no name of its own is named for its class."""

        class Doubler:
            def __call__(self, value: int) -> int:
                return 2 * value

        assert rollout_trace_op(Doubler())(2) == 4
        assert recorded(rollout_spans)[0]["name"].endswith("Doubler")

    def test_builtin(self, rollout_spans: InMemorySpanExporter) -> None:
        """A function in C is traced, by parameter names where it declares any."""
        assert rollout_trace_op(divmod)(7, 2) == (3, 1)
        assert recorded(rollout_spans) == [record("divmod", {"x": 7, "y": 2}, [3, 1])]

    def test_function_that_returns_a_coroutine(self, rollout_spans: InMemorySpanExporter) -> None:
        """A plain function that hands on a coroutine is traced until that has ended, with what it calls inside."""

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
        spans = recorded(rollout_spans)
        assert span_tree(rollout_spans.spans) == [["hands on", ["renamed"]], ["add"]]
        assert [span["attributes"]["output.value"] for span in spans] == [3, 8, 8]

    def test_coroutine_in_disguise_that_raises(self, rollout_spans: InMemorySpanExporter) -> None:
        """The error of a coroutine that a plain function handed on is on that function's span."""

        @rollout_trace_op(name="hands on")
        def hand_on() -> Any:
            async def fail() -> None:
                raise LookupError("no")

            return fail()

        with pytest.raises(LookupError):
            asyncio.run(hand_on())
        (span,) = recorded(rollout_spans)
        assert (span["status"], span["description"]) == ("ERROR", "LookupError: no")

    @pytest.mark.parametrize("target", [3, "text", property(lambda self: 1), Agent])
    def test_what_is_no_function_is_refused(self, target: Any) -> None:
        """Decorating a class, or what can't be called, is an error at once."""
        with pytest.raises(TypeError, match="rollout_trace_op takes a function, not"):
            rollout_trace_op(target)

    def test_unknown_kind_is_refused(self) -> None:
        """A kind that OpenInference doesn't have is an error at once, which lists the kinds."""
        with pytest.raises(ValueError, match="AGENT, CHAIN, EVALUATOR, LLM, TOOL"):
            rollout_trace_op(kind="llm")


class TestArguments:
    """What is recorded of a call's arguments."""

    def test_every_kind_of_parameter(self, rollout_spans: InMemorySpanExporter) -> None:
        """Positional-only, defaulted, variable and keyword-only parameters are recorded by name."""

        @rollout_trace_op(name="f")
        def f(a: int, /, b: int, c: int = 3, *rest: int, d: int, e: int = 5, **more: int) -> None: ...

        f(1, 2, d=4)
        f(1, 2, 30, 31, 32, d=4, e=50, a=7, z=8)
        assert [span["attributes"]["input.value"] for span in recorded(rollout_spans)] == [
            {"a": 1, "b": 2, "c": 3, "rest": [], "d": 4, "e": 5, "more": {}},
            {"a": 1, "b": 2, "c": 30, "rest": [31, 32], "d": 4, "e": 50, "more": {"a": 7, "z": 8}},
        ]

    def test_snapshot_is_taken_before_the_call(self, rollout_spans: InMemorySpanExporter) -> None:
        """What a function does to its arguments does not show in its input."""

        @rollout_trace_op(name="f")
        def f(messages: list[str]) -> list[str]:
            messages.append("answer")
            return messages

        messages = ["question"]
        f(messages).append("later")
        assert recorded(rollout_spans) == [record("f", {"messages": ["question"]}, ["question", "answer"])]

    def test_arguments_that_do_not_fit(self, rollout_spans: InMemorySpanExporter) -> None:
        """A call with arguments that the function does not take raises the function's own error, and shows them."""
        with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
            add(1, c=5)
        (span,) = recorded(rollout_spans)
        assert span["attributes"]["input.value"] == {"args": [1], "kwargs": {"c": 5}}
        assert span["attributes"]["error.type"] == "TypeError"

    def test_self_is_left_out_of_arguments_that_do_not_fit(self, rollout_spans: InMemorySpanExporter) -> None:
        """`self` is not recorded when the rest does not fit either."""
        with pytest.raises(TypeError):
            Agent().scale(1, 2)
        (span,) = recorded(rollout_spans)
        assert span["attributes"]["input.value"] == {"args": [1, 2], "kwargs": {}}

    def test_decorator_that_injects_an_argument(self, rollout_spans: InMemorySpanExporter) -> None:
        """A function whose decorator supplies an argument of the declared signature is traced all the same."""

        def inject(function: Any) -> Any:
            @functools.wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                return function("client", *args, **kwargs)

            return wrapper

        @rollout_trace_op(name="f")
        @inject
        def f(client: str, question: str) -> str:
            return f"{client} {question}"

        assert f("why") == "client why"
        assert recorded(rollout_spans) == [record("f", {"args": ["why"], "kwargs": {}}, "client why")]

    def test_capture_can_be_switched_off(self, rollout_spans: InMemorySpanExporter) -> None:
        """`capture_inputs=False` and `capture_output=False` leave the payload out, not the span."""

        @rollout_trace_op(name="f", capture_inputs=False, capture_output=False)
        def f(secret: str) -> str:
            return secret

        assert f("x") == "x"
        assert recorded(rollout_spans) == [record("f")]

    def test_captured_output_of_a_generator_can_be_switched_off(self, rollout_spans: InMemorySpanExporter) -> None:
        """`capture_output=False` leaves out what a generator yields."""

        @rollout_trace_op(name="f", capture_output=False)
        def f() -> Any:
            yield 1

        assert list(f()) == [1]
        assert recorded(rollout_spans) == [record("f", {})]


class TestIdentity:
    """What is kept of the function."""

    @pytest.mark.parametrize(
        ("function", "test"),
        [
            (add, inspect.isfunction),
            (multiply, inspect.iscoroutinefunction),
            (multiply, asyncio.iscoroutinefunction if sys.version_info < (3, 14) else inspect.iscoroutinefunction),
            (count_to, inspect.isgeneratorfunction),
            (stream, inspect.isasyncgenfunction),
            (Agent.act, inspect.iscoroutinefunction),
            (Agent().act, inspect.ismethod),
        ],
    )
    def test_inspection(self, function: Any, test: Any) -> None:
        """A decorated function is of the same kind as before, for whoever inspects it."""
        assert test(function)

    def test_metadata(self) -> None:
        """Name, docstring, module, signature and `__wrapped__` are the function's own."""
        assert (add.__name__, add.__qualname__, add.__doc__, add.__module__) == ("add", "add", "Add.", __name__)
        assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 2) -> 'int'"
        assert add.__wrapped__(1) == 3  # type: ignore[attr-defined]

    def test_abstract_methods_stay_abstract(self) -> None:
        """A decorated abstract method still keeps its class from being instantiated."""
        import abc

        class Base(abc.ABC):
            @rollout_trace_op
            @abc.abstractmethod
            def run(self) -> None: ...

        with pytest.raises(TypeError, match="abstract"):
            Base()  # type: ignore[abstract]

    def test_copying(self) -> None:
        """Objects with decorated methods copy."""
        assert copy.deepcopy(Agent("copy")).name == "copy"


PICKLING = """
import asyncio, pickle, sys
import cloudpickle
import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter

exporter = InMemorySpanExporter()
if sys.argv[1] == "on":
    otel_rollout.init("project", "experiment", backend=exporter)

class Worker:
    def __init__(self, factor): self.factor = factor
    @rollout_trace_op
    def scale(self, value): return value * self.factor
    @rollout_trace_op(kind="LLM")
    async def generate(self, value): return value * self.factor
    @rollout_trace_op
    @classmethod
    def make(cls, factor=3): return cls(factor)
    @rollout_trace_op
    def count(self, n): yield from range(n)
    @rollout_trace_op
    async def stream(self, n):
        for i in range(n): yield i

@rollout_trace_op
def double(value): return 2 * value

def use(worker, double):
    async def collect(): return [i async for i in worker.stream(2)]
    return [worker.scale(2), asyncio.run(worker.generate(3)), worker.make().factor, list(worker.count(2)),
            asyncio.run(collect()), double(4)]

with rollout_trace_attr(1):
    payload = cloudpickle.dumps((Worker(5), double, use))
    # In this process the classes exist already: run what was pickled, by value, in a fresh one.
    import subprocess
    code = "import sys, pickle; w, d, use = pickle.loads(sys.stdin.buffer.read()); print(use(w, d))"
    print(subprocess.run([sys.executable, "-c", code], input=payload, capture_output=True, check=True).stdout.decode())
    assert pickle.loads(pickle.dumps(double)) is double
    copied = cloudpickle.loads(cloudpickle.dumps(Worker(7)))
    assert copied.scale(1) == 7
otel_rollout.flush()
print(len(exporter.spans))
"""


class TestPickling:
    """Decorated functions go to other processes."""

    def test_by_reference(self) -> None:
        """Decorated functions and instances with decorated methods pickle by reference."""
        assert pickle.loads(pickle.dumps(Agent("a"))).scale(2) == 20

    @pytest.mark.parametrize(("state", "spans"), [("on", 2), ("off", 0)])
    def test_by_value(self, state: str, spans: int) -> None:
        """A class of `__main__` with decorated methods cloudpickles by value, also while tracing is on."""
        pytest.importorskip("cloudpickle")
        ran = subprocess.run([sys.executable, "-c", PICKLING, state], capture_output=True, timeout=60, check=False)
        assert ran.returncode == 0, ran.stderr.decode()
        assert ran.stdout.decode().split("\n") == ["[10, 15, 3, [0, 1], [0, 1], 8]", "", str(spans), ""]


class TestErrors:
    """What leaves a call by an exception."""

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

    def test_exception_of_a_coroutine(self, rollout_spans: InMemorySpanExporter) -> None:
        """The exception of a coroutine passes as the same object, with its cause and its own class in `error.type`."""

        class ToolError(Exception):
            pass

        cause = KeyError("inner")
        error = ToolError("outer")

        @rollout_trace_op(name="f")
        async def f() -> None:
            raise error from cause

        with pytest.raises(ToolError) as caught:
            asyncio.run(f())
        assert caught.value is error
        assert error.__cause__ is cause
        (span,) = recorded(rollout_spans)
        assert span["attributes"]["error.type"] == f"{__name__}.{ToolError.__qualname__}"
        assert "KeyError: 'inner'" in span["events"][0]["exception.stacktrace"]
        assert "direct cause of the following exception" in span["events"][0]["exception.stacktrace"]

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
        error = ExceptionGroup("two", [ValueError("one"), KeyError("other")])  # noqa: F821, RUF100

        @rollout_trace_op(name="f")
        def f() -> None:
            raise error

        with pytest.raises(ExceptionGroup) as caught:  # noqa: F821, RUF100
            f()
        assert caught.value is error
        (span,) = recorded(rollout_spans)
        assert (span["status"], span["attributes"]["error.type"]) == ("ERROR", "ExceptionGroup")
        assert "ValueError: one" in span["events"][0]["exception.stacktrace"]
        assert "KeyError: 'other'" in span["events"][0]["exception.stacktrace"]

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_interrupts(self, rollout_spans: InMemorySpanExporter, error: type[BaseException]) -> None:
        """What ends the program cancels the span, and passes."""

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
        """What is sent and thrown in reaches the generator, and its answers come out, as without the decorator."""
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

    def test_generator_that_ignores_close(self, rollout_spans: InMemorySpanExporter) -> None:
        """A generator that yields when it is closed gets Python's own complaint."""

        @rollout_trace_op
        def stubborn() -> Any:
            while True:
                try:
                    yield 1
                except GeneratorExit:  # noqa: PERF203
                    yield 2

        generator = stubborn()
        next(generator)
        with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
            generator.close()

    def test_wrong_arguments(self, rollout_spans: InMemorySpanExporter) -> None:
        """Arguments that a generator does not take raise its own TypeError."""
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            list(count_to())  # type: ignore[call-arg]
        (span,) = recorded(rollout_spans)
        assert span["status"] == "ERROR"

    def test_spans_between_the_items(self, rollout_spans: InMemorySpanExporter) -> None:
        """What the generator calls is under its span; what the consumer calls between the items is not."""

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

    @pytest.mark.parametrize("state", ["on", "off"])
    def test_wrapper_is_transparent(self, state: str) -> None:
        """On and off, an async generator yields, answers and raises the same."""
        if state == "on":
            otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())

        @rollout_trace_op
        async def echo() -> Any:
            received = yield "ready"
            while received != "stop":
                received = yield received
            raise LookupError("end")

        async def main() -> list[Any]:
            generator = echo()
            answers = [await generator.asend(None), await generator.asend(1)]
            with pytest.raises(LookupError, match="end"):
                await generator.asend("stop")
            return answers

        assert asyncio.run(main()) == ["ready", 1]

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


class TestLlmOps:
    """Calls of a language model."""

    def test_tokens_and_turns(self, rollout_spans: InMemorySpanExporter) -> None:
        """An LLM op shows model and tokens, and its trajectory counts turns and tokens."""

        @rollout_trace_op(name="generate", kind="LLM")
        def generate(prompt_ids: list[int], model: str) -> dict[str, Any]:
            return {"token_ids": [7, 8], "stop_reason": "length"}

        with rollout_trace_attr(1, 2, 3):
            generate([1, 2, 3], model="policy")
            generate([1, 2, 3, 7, 8, 4], model="policy")
        first, _, root = recorded(rollout_spans)
        assert first["attributes"] == {
            "openinference.span.kind": "LLM",
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "policy",
            "gen_ai.usage.input_tokens": 3,
            "gen_ai.usage.output_tokens": 2,
            "gen_ai.response.finish_reasons": ("length",),
            "input.value": {"prompt_ids": [1, 2, 3], "model": "policy"},
            "input.mime_type": "application/json",
            "output.value": {"token_ids": [7, 8], "stop_reason": "length"},
            "output.mime_type": "application/json",
            "rollout.step": 2,
            "rollout.sample_index": 1,
            "rollout.rollout_n": 3,
            "rollout.validate": False,
            "rollout.experiment_name": "test-experiment",
        }
        totals = {"rollout.turns": 2, "rollout.input_tokens": 9, "rollout.output_tokens": 4}
        assert {key: root["attributes"][key] for key in totals} == totals

    def test_llm_op_inside_an_llm_op(self, rollout_spans: InMemorySpanExporter) -> None:
        """An LLM op that calls another, as a client over a client does, is one turn and counts its tokens once."""

        @rollout_trace_op(name="inner", kind="LLM")
        async def inner(prompt_ids: list[int]) -> dict[str, Any]:
            return {"token_ids": [7]}

        @rollout_trace_op(name="outer", kind="LLM")
        async def outer(prompt_ids: list[int]) -> dict[str, Any]:
            return await inner(prompt_ids)

        with rollout_trace_attr(1):
            asyncio.run(outer([1, 2]))
        *_, root = recorded(rollout_spans)
        totals = {"rollout.turns": 1, "rollout.input_tokens": 2, "rollout.output_tokens": 1}
        assert {key: root["attributes"][key] for key in totals} == totals

    def test_failed_llm_op(self, rollout_spans: InMemorySpanExporter) -> None:
        """An LLM op that raises still shows the model and its input tokens, and counts as a turn."""

        @rollout_trace_op(name="generate", kind="LLM")
        def generate(prompt_ids: list[int], model: str) -> None:
            raise TimeoutError

        with rollout_trace_attr(1), pytest.raises(TimeoutError):
            generate([1, 2], "policy")
        span, root = recorded(rollout_spans)
        assert (span["attributes"]["gen_ai.request.model"], span["attributes"]["gen_ai.usage.input_tokens"]) == (
            "policy",
            2,
        )
        assert root["attributes"]["rollout.turns"] == 1

    @pytest.mark.parametrize("token2text", [True, False])
    def test_tokenizer_that_can_not_be_looked_at(self, token2text: bool) -> None:
        """An op of an object whose `tokenizer` raises is traced all the same."""

        class Policy:
            @property
            def tokenizer(self) -> Any:
                raise RuntimeError("not loaded yet")

            @rollout_trace_op(name="generate", kind="LLM")
            def generate(self, prompt_ids: list[int]) -> list[int]:
                return prompt_ids

        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", exporter, token2text)
        assert Policy().generate([1]) == [1]
        assert [span["attributes"]["output.value"] for span in recorded(exporter)] == [[1]]


class TestOff:
    """While tracing is off."""

    def test_nothing_but_one_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """While tracing is off, a call does not come near any of our code but the check."""

        def explode(*args: Any, **kwargs: Any) -> Any:
            raise AssertionError("tracing is off")

        monkeypatch.setattr(call_module.Operation, "start", explode)
        monkeypatch.setattr(call_module.Call, "__init__", explode)
        assert runtime.pipeline is None

        async def main() -> list[Any]:
            return [await multiply(2, 3), [item async for item in stream(2)]]

        assert (add(1), list(count_to(2)), asyncio.run(main())) == (3, [0, 1], [6, [0, 1]])

    def test_off_again(self, rollout_spans: InMemorySpanExporter) -> None:
        """After `shutdown`, decorated functions run untraced."""
        add(1)
        otel_rollout.shutdown()
        add(2)
        assert [span["attributes"]["input.value"] for span in rollout_spans.as_dicts()] == [{"a": 1, "b": 2}]


STEPS = [
    "otel_rollout.call.current_frame",
    "otel_rollout.call.snapshot_arguments",
    "otel_rollout.call.snapshot",
    "otel_rollout.call.enter",
    "otel_rollout.call.leave",
    "otel_rollout.call.Frame",
    "otel_rollout.call.Call.__init__",
    "otel_rollout.call.Operation._bind",
    "otel_rollout.call.record_failure",
    "otel_rollout.call.describe_llm_call",
    "otel_rollout.tracer.LightTracer.start_op",
    "otel_rollout.tracer.LightTracer.set_input",
    "otel_rollout.tracer.LightTracer.set_output",
    "otel_rollout.span.RolloutSpan.__init__",
    "otel_rollout.span.RolloutSpan.end",
    "otel_rollout.ids.SystemIdGenerator.generate_span_id",
]


@pytest.mark.parametrize("step", STEPS)
class TestInternalErrors:
    """Faults of tracing itself."""

    def test_every_kind_of_call(self, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        """Whichever step of tracing fails, calls return, raise, yield and cancel as ever, and the fault is counted."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())

        def explode(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("a fault of ours")

        monkeypatch.setattr(step, explode)
        error = ValueError("theirs")

        @rollout_trace_op(kind="LLM")
        def generate(value: int) -> int:
            if value < 0:
                raise error
            return value

        @rollout_trace_op(kind="LLM")
        async def agenerate(value: int) -> int:
            return generate(value)

        async def main() -> list[Any]:
            return [await agenerate(2), [item async for item in stream(2)]]

        def run() -> None:
            assert (generate(1), list(count_to(2)), asyncio.run(main())) == (1, [0, 1], [2, [0, 1]])
            with pytest.raises(ValueError) as caught:
                generate(-1)
            assert caught.value is error
            assert error.__context__ is None

        # In a copied context: where leaving a span fails, it stays current.
        contextvars.copy_context().run(run)
        assert sum(otel_rollout.stats().internal_errors.values()) > 0
        monkeypatch.undo()
