"""What the decorators take, and what they refuse at decoration with a word on what to write."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter
from tests.ops import recorded

DECORATORS = {
    "rollout_trace_op": rollout_trace_op,
    "rollout_trace_op()": rollout_trace_op(),
    "rollout_trace_attr": rollout_trace_attr(),
}


def double(number: int) -> int:
    """Return twice the number."""
    return 2 * number


class Doubler:
    """An object that is called."""

    def __call__(self, number: int) -> int:
        """Return twice the number."""
        return 2 * number


class Cached:
    """Its property in the making."""

    size = functools.cached_property(lambda self: 1)


def generate() -> Any:
    """Yield something."""
    yield 1


async def generate_later() -> Any:
    """Yield something."""
    yield 1


@pytest.fixture(params=DECORATORS)
def decorator(request: pytest.FixtureRequest) -> tuple[str, Callable[[Any], Any]]:
    """A decorator with its name."""
    return request.param.removesuffix("()"), DECORATORS[request.param]


class TestTaken:
    """Whatever is called like a function."""

    @pytest.mark.parametrize(
        "function",
        [double, lambda number: 2 * number, functools.partial(double), Doubler(), Doubler().__call__, (2).__mul__],
        ids=["function", "lambda", "partial", "object", "bound method", "builtin"],
    )
    def test_a_call_is_a_span(
        self, rollout_spans: InMemorySpanExporter, decorator: tuple[str, Callable[[Any], Any]], function: Any
    ) -> None:
        """The result is the function's own, and there is one span."""
        assert decorator[1](function)(4) == 8
        assert len(recorded(rollout_spans)) == 1


class Tool:
    """An object as LangChain's `@tool` makes of a function."""

    def invoke(self, given: Any) -> Any:
        """Run the tool."""


class TestRefused:
    """Misuse that would trace nothing, or fail at the first call."""

    @pytest.mark.parametrize(
        ("target", "advice"),
        [
            (Doubler, ": decorate its methods"),
            (dict, ": decorate its methods"),
            (property(double), ": put @property above @DECORATOR"),
            (Cached.__dict__["size"], ": put @cached_property above @DECORATOR"),
            (generate(), ": decorate the function that makes it"),
            (Tool(), ": put the decorator that makes it above @DECORATOR"),
            (3, ""),
        ],
        ids=["class", "builtin class", "property", "cached property", "generator", "tool", "number"],
    )
    def test_no_function(self, decorator: tuple[str, Callable[[Any], Any]], target: Any, advice: str) -> None:
        """Decorating a class, a property or a value is an error that says what to decorate."""
        name, decorate = decorator

        with pytest.raises(TypeError) as caught:
            decorate(target)

        assert str(caught.value) == f"{name} takes a function, not {target!r}{advice.replace('DECORATOR', name)}"

    def test_a_generator_function(self, rollout_spans: InMemorySpanExporter) -> None:
        """An op may be a generator; a trajectory is a block around the loop."""
        assert list(rollout_trace_op(generate)()) == [1]
        for function in (generate, generate_later):
            with pytest.raises(TypeError, match="use `with` around the loop"):
                rollout_trace_attr()(function)

    @pytest.mark.parametrize(
        ("given", "right"), [("LLM", 'kind="LLM"'), ("tool", 'kind="tool"'), ("generate", 'name="generate"')]
    )
    def test_a_positional_kind_or_name(self, given: str, right: str) -> None:
        """A text is no function; the error has the argument's name."""
        with pytest.raises(TypeError) as caught:
            rollout_trace_op(given)  # type: ignore[call-overload]

        assert str(caught.value) == f"rollout_trace_op({given!r}): use {right}"


class TestBareTrajectory:
    """`@rollout_trace_attr` without parentheses."""

    def test_it_is_refused_at_the_definition(self) -> None:
        """The error says to add parentheses, for functions and methods of any kind, among other decorators too."""
        with pytest.raises(TypeError, match=r"^@rollout_trace_attr needs parentheses: @rollout_trace_attr\("):

            @rollout_trace_attr
            def function() -> None: ...

        with pytest.raises(TypeError, match="needs parentheses"):

            @functools.lru_cache
            @rollout_trace_attr
            @rollout_trace_op
            async def coroutine() -> None:
                await asyncio.sleep(0)

        with pytest.raises(TypeError, match="needs parentheses"):

            class Agent:
                @rollout_trace_attr
                def method(self) -> None:
                    """Do nothing."""

        for kind in (staticmethod, classmethod):
            with pytest.raises(TypeError, match="needs parentheses"):

                class Other:
                    @rollout_trace_attr
                    @kind
                    def method(*args: Any) -> None:
                        """Do nothing."""

    def test_a_function_of_the_arguments_is_none(self, rollout_spans: InMemorySpanExporter) -> None:
        """A sample index may be a function that was defined before, here or elsewhere, or a lambda."""

        def index_of(number: int) -> int:
            rollout_trace_attr(index_of)
            return number

        for given in (index_of, double, lambda number: number, rollout_trace_op(index_of)):

            @rollout_trace_attr(given)
            def run(number: int) -> int:
                return number

            run(1)
        roots = [span for span in recorded(rollout_spans) if span["name"] == "rollout_trace"]
        assert [root["attributes"]["rollout.sample_index"] for root in roots] == [1, 2, 1, 1]


class TestIdentityOfTheParameters:
    """`@rollout_trace_attr(step=1)` on a function that is given its sample index."""

    def test_a_parameter_of_the_name_counts(self, rollout_spans: InMemorySpanExporter) -> None:
        """What the decorator isn't given is the call's argument, positional or not, or the parameter's default."""

        @rollout_trace_attr(step=1)
        def run(sample_index: int, *, rollout_n: int = 0, step: int = 7) -> int:
            return sample_index + rollout_n + step

        @rollout_trace_attr(name="run")
        async def later(task: str, step: int, rollout_n: int = 5) -> str:
            await asyncio.sleep(0)
            return f"{task} {step} {rollout_n}"

        assert (run(3, rollout_n=4), run(sample_index=6)) == (14, 13)
        assert asyncio.run(later("task", 2)) == "task 2 5"
        assert identities(rollout_spans) == [(1, 3, 4), (1, 6, 0), (2, None, 5)]

    def test_methods_and_partials(self, rollout_spans: InMemorySpanExporter) -> None:
        """`self` and bound arguments count among the places."""

        class Agent:
            @rollout_trace_attr(step=1)
            def run(self, sample_index: int, rollout_n: int) -> None:
                """Do nothing."""

            @classmethod
            @rollout_trace_attr(step=2)
            def run_class(cls, sample_index: int) -> None:
                """Do nothing."""

        Agent().run(3, 4)
        Agent.run_class(5)
        rollout_trace_attr(step=3)(functools.partial(Agent().run, 6))(7)
        assert identities(rollout_spans)[:2] == [(1, 3, 4), (2, 5, None)]
        assert (3, None, 7) in identities(rollout_spans)

    def test_what_has_no_such_parameter(self, rollout_spans: InMemorySpanExporter) -> None:
        """A builtin without a signature, and `*args`, leave it out; a wrong call raises the function's own error."""

        @rollout_trace_attr()
        def run(*step: int, **sample_index: int) -> None:
            """Do nothing."""

        @rollout_trace_attr()
        def strict(sample_index: int) -> None:
            """Do nothing."""

        run(1, 2, rollout_n=3)
        rollout_trace_attr()(max)(1, 2)
        with pytest.raises(TypeError, match="missing 1 required positional argument"):
            strict()  # type: ignore[call-arg]
        assert identities(rollout_spans) == [(None, None, None)] * 3


def identities(exporter: InMemorySpanExporter) -> list[tuple[Any, ...]]:
    """Return the step, the sample index and the number of each trajectory."""
    roots = [span["attributes"] for span in recorded(exporter) if "rollout.validate" in span["attributes"]]
    return [tuple(root.get(f"rollout.{name}") for name in ("step", "sample_index", "rollout_n")) for root in roots]
