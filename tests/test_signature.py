"""The binder: a call's arguments by name, as `inspect.signature().bind()` has them."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.record import compile_binder
from tests.ops import record, recorded

if TYPE_CHECKING:
    from nowhere import Missing

MUTABLE: list[int] = [1]
UNHASHABLE: dict[str, list[int]] = {"a": []}


def nothing():
    pass


def plain(a, b=2):
    pass


def all_kinds(a, b=1, /, c=2, d=3, *args, e, f=4, **kwargs):
    pass


def positional_only(a, b=2, /):
    pass


def keyword_only(*, a, b=2):
    pass


def defaults(a=MUTABLE, b=UNHASHABLE, c=object, d=nothing, e="text", f=float("nan")):
    pass


def clashing(bind, _default_0=1, _default_1=2, args=3, kwargs=4, self=5, dict=6):  # noqa: A002
    pass


def annotated(a: Missing, b: int = 1) -> Missing:
    pass


async def coroutine(a, *, b=2):
    pass


def generator(a, b=2):
    yield


async def async_generator(a, b=2):
    yield


class Constructed:
    """A class with arguments."""

    def __init__(self, a, b=2):
        pass


class Callable_:
    """An object that is called."""

    def __call__(self, a, b=2):
        """Do nothing."""


FUNCTIONS = [
    nothing, plain, all_kinds, positional_only, keyword_only, defaults, clashing, annotated, coroutine, generator,
    async_generator, Constructed, Callable_(), lambda a, *b: None, functools.partial(plain, 1),
    functools.partial(plain, b=3), len,
]  # fmt: skip


def bound(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return what inspect makes of a call; None where it raises."""
    try:
        arguments = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return None
    arguments.apply_defaults()
    return dict(arguments.arguments)


class TestLikeInspect:
    """The same as inspect, for every kind of callable."""

    @settings(max_examples=400)
    @given(
        function=st.sampled_from(FUNCTIONS),
        args=st.lists(st.integers(), max_size=5).map(tuple),
        kwargs=st.dictionaries(
            st.sampled_from(["a", "b", "c", "d", "e", "f", "g", "bind", "_default_0", "args", "kwargs", "obj"]),
            st.integers(),
            max_size=4,
        ),
    )
    def test_any_call(self, function, args, kwargs):
        """The arguments are those that inspect finds; a call that doesn't fit raises TypeError."""
        expected = bound(function, args, kwargs)
        binder = compile_binder(function)
        # Where **kwargs takes a keyword called like a positional-only parameter, inspect is wrong before Python 3.13.
        assume(function is not all_kinds or not {"a", "b"} & kwargs.keys())

        if expected is None:
            with pytest.raises(TypeError):
                binder(*args, **kwargs)
        else:
            actual = binder(*args, **kwargs)
            assert list(actual.items()) == [(name, expected[name]) for name in actual]
            assert set(expected) == set(actual)

    def test_a_keyword_called_like_a_positional_only_parameter(self):
        """If the function takes any keywords it is one of them, and the parameter has its default."""
        arguments = compile_binder(all_kinds)(0, b=7, e=5)

        assert (arguments["a"], arguments["b"], arguments["kwargs"]) == (0, 1, {"b": 7})

    def test_defaults_are_the_same_objects(self):
        """Mutable and unhashable defaults are the function's own."""
        arguments = compile_binder(defaults)()

        assert arguments["a"] is MUTABLE
        assert arguments["b"] is UNHASHABLE


class TestReceiver:
    """`self` and `cls` are left out."""

    class Thing:
        """Methods of every kind."""

        def method(self, a, b=2):
            """Take `self`."""

        def positional(self, /, a):
            """Take `self` by position only."""

        @classmethod
        def of_class(cls, a):
            """Take `cls`."""

        @staticmethod
        def static(a):
            """Take neither."""

    @pytest.mark.parametrize(
        ("function", "args"),
        [
            (Thing.method, (object(), 1)),
            (Thing().method, (1,)),
            (Thing.positional, (object(), 1)),
            (Thing.__dict__["of_class"].__func__, (Thing, 1)),
            (Thing.of_class, (1,)),
            (Thing.static, (1,)),
        ],
    )
    def test_methods(self, function, args):
        """Only what the caller passes is captured."""
        assert compile_binder(function)(*args)["a"] == 1
        assert not {"self", "cls"} & set(compile_binder(function)(*args))

    def test_later_parameter_of_that_name(self):
        """Only the first parameter is a receiver."""
        assert compile_binder(lambda a, self: None)(1, 2) == {"a": 1, "self": 2}


class TestOddCallables:
    """Callables that inspect can't read, or reads differently from how they are called."""

    @pytest.mark.parametrize("function", [dict, max, iter])
    def test_without_a_signature(self, function):
        """The arguments are listed."""
        assert compile_binder(function)(1, b=2) == {"args": (1,), "kwargs": {"b": 2}}

    def test_signature_that_raises(self):
        """The arguments are listed."""

        class Odd:
            @property
            def __signature__(self) -> Any:
                raise RuntimeError("signature")

            def __call__(self, a: int) -> None:
                """Take anything."""

        assert compile_binder(Odd())(1) == {"args": (1,), "kwargs": {}}
        assert rollout_trace_op(Odd())(1) is None
        assert rollout_trace_attr()(Odd())(1) is None

    def test_a_decorated_method_in_a_span(self, rollout_spans):
        """The recorded arguments of a method whose decorator adds one don't hold the object."""

        def with_database(function):
            @functools.wraps(function)
            def wrapper(self, *args):
                return function(self, "database", *args)

            return wrapper

        class Agent:
            @rollout_trace_op(name="query")
            @with_database
            def query(self, database, text):
                return "done"

        Agent().query("hello")

        assert recorded(rollout_spans) == [record("query", {"args": ["hello"], "kwargs": {}}, "done")]

    def test_decorator_that_passes_all_on(self):
        """Through an ordinary decorator the names are those of the function inside."""

        @functools.wraps(plain)
        def wrapper(*args, **kwargs):
            return plain(*args, **kwargs)

        assert compile_binder(wrapper)(1) == {"a": 1, "b": 2}
