"""`rollout_trace_op`: every kind of callable becomes one span per call, with what goes in and out."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Any

import pytest

from otel_rollout import flush, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import Agent, Caller, add, multiply, record, recorded

pytestmark = pytest.mark.every_python


class TestKindsOfCallables:
    """Functions that can be decorated."""

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
            "gen_ai.tool.type": "function",
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
        """An object whose `__call__` is a coroutine function is awaited, and `inspect` still finds the function."""
        traced = rollout_trace_op(name="caller")(Caller())
        assert inspect.iscoroutinefunction(traced.__call__)
        assert asyncio.run(traced(1)) == 2
        assert recorded(rollout_spans) == [record("caller", {"value": 1}, 2)]

    def test_builtin(self, rollout_spans: InMemorySpanExporter) -> None:
        """A function in C is traced, by parameter names where it declares any."""
        assert rollout_trace_op(divmod)(7, 2) == (3, 1)
        assert recorded(rollout_spans) == [record("divmod", {"x": 7, "y": 2}, [3, 1])]

    def test_unknown_kind_is_refused(self) -> None:
        """A kind that OpenInference doesn't have is an error at once, which lists the kinds."""
        with pytest.raises(ValueError, match="AGENT, CHAIN, EVALUATOR, LLM, TOOL"):
            rollout_trace_op(kind="RETRIEVER")

    def test_the_case_of_a_kind_does_not_matter(self, rollout_spans: InMemorySpanExporter) -> None:
        """A kind in lower case is the kind."""

        @rollout_trace_op(kind="llm")
        def generate() -> None: ...

        generate()

        assert flush()
        assert (rollout_spans.spans[0].attributes or {})["openinference.span.kind"] == "LLM"


class TestArguments:
    """The recorded arguments of a call."""

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
        """A function's changes to its arguments don't show in its input."""

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
