"""Random programs of all constructs that can be traced, with other decorators between ours and the function."""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.trace import get_current_span

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op, subagent
from otel_rollout.testing import InMemorySpanExporter

FORMS = (
    "function",
    "generator",
    "closed generator",
    "coroutine",
    "async generator",
    "closed async generator",
    "returned coroutine",
    "returned generator",
    "generator-based coroutine",
    "task",
    "block",
)
_IN_TURN = ("function", "generator", "closed generator", "returned generator", "block")
"""The forms that need no event loop."""
_OF_A_TRAJECTORY = ("function", "coroutine", "returned coroutine", "generator-based coroutine", "block")


class Node(NamedTuple):
    """One call in a program."""

    form: str
    decorator: str
    is_wrapped: bool
    fails: bool
    children: list[Node]


def nodes(children: st.SearchStrategy[list[Node]]) -> st.SearchStrategy[Node]:
    """Return a strategy for calls with these calls inside."""
    return st.builds(
        Node,
        st.sampled_from(FORMS),
        st.sampled_from(["none", "op", "op", "trajectory", "silence", "subagent"]),
        st.booleans(),
        st.sampled_from([False, False, False, True]),
        children,
    )


PROGRAMS = st.recursive(nodes(st.just([])), lambda inner: nodes(st.lists(inner, max_size=3)), max_leaves=12)


def passes_on(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate as most decorators do: a plain function, whatever the decorated one is."""

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        return function(*args)

    return call


class Failure(Exception):
    """Raised by the program."""


def steps(node: Node) -> Any:
    """Run the calls inside a call; as a generator, so that each form may wait as it does."""
    yield from node.children
    if node.fails:
        raise Failure


def run_in_turn(node: Node) -> None:
    for child in steps(node):
        if child.form in _IN_TURN:
            call_in_turn(child)


async def run_later(node: Node) -> None:
    for child in steps(node):
        await call_later(child)


def block_of(decorator: str) -> Any:
    if decorator == "subagent":
        return subagent("helper")
    return rollout_trace_attr(trace=decorator != "silence", name=decorator)


def function_of(node: Node) -> Callable[[], Any]:
    """Return a new function of the form, decorated."""

    def function() -> None:
        run_in_turn(node)

    def generator() -> Any:
        yield 1
        run_in_turn(node)
        yield 2

    async def coroutine() -> None:
        await asyncio.sleep(0)
        await run_later(node)

    async def async_generator() -> Any:
        yield 1
        await run_later(node)
        yield 2

    @types.coroutine
    def generator_based() -> Any:
        yield
        yield from run_later(node).__await__()

    bodies: dict[str, Callable[[], Any]] = {
        "function": function,
        "generator": generator,
        "closed generator": generator,
        "coroutine": coroutine,
        "async generator": async_generator,
        "closed async generator": async_generator,
        "returned coroutine": passes_on(coroutine),
        "returned generator": passes_on(generator),
        "generator-based coroutine": generator_based,
        "task": lambda: asyncio.get_running_loop().create_task(coroutine()),
        "block": function,
    }
    body = bodies[node.form]
    if node.is_wrapped:
        body = passes_on(body)
    if node.decorator == "op" and node.form != "block":
        return rollout_trace_op(body)
    if node.decorator in ("trajectory", "silence") and node.form in _OF_A_TRAJECTORY and node.form != "block":
        return rollout_trace_attr(trace=node.decorator == "trajectory", name=node.decorator)(body)
    return body


def call_in_turn(node: Node) -> None:
    before = get_current_span()
    try:
        if node.form == "block":
            with block_of(node.decorator):
                run_in_turn(node)
        elif node.form == "function":
            function_of(node)()
        else:
            iterator = function_of(node)()
            next(iterator)
            assert get_current_span() is before, node
            if node.form == "closed generator":
                iterator.close()
            else:
                list(iterator)
    except Failure:
        pass
    assert get_current_span() is before, node


async def call_later(node: Node) -> None:
    if node.form in _IN_TURN and node.form != "block":
        call_in_turn(node)
        return
    before = get_current_span()
    try:
        if node.form == "block":
            async with block_of(node.decorator):
                await run_later(node)
        elif node.form.endswith("async generator"):
            iterator = function_of(node)()
            await iterator.__anext__()
            assert get_current_span() is before, node
            if node.form.startswith("closed"):
                await iterator.aclose()
            else:
                [item async for item in iterator]
        else:
            await function_of(node)()
    except Failure:
        pass
    assert get_current_span() is before, node


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(PROGRAMS)
def test_each_context_is_left(program: Node) -> None:
    """After each call and each block the span that was current before is current again, and no span stays open."""
    otel_rollout.init("p", "e", backend=InMemorySpanExporter())
    try:
        asyncio.run(call_later(program))
        call_in_turn(program._replace(form="function"))
        assert otel_rollout.stats().open_spans == 0
    finally:
        otel_rollout.shutdown()


@settings(max_examples=30, deadline=None, database=None, derandomize=True)
@given(PROGRAMS)
def test_off_nothing_is_current(program: Node) -> None:
    """With tracing off the same programs run, and no span is current."""
    asyncio.run(call_later(program))
