"""The driver of a decorated function: one wrapper for functions, coroutines, generators and async generators.

What runs around a call is a `Scope`: an op's span, a trajectory, or a hook's observer.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType, coroutine
from typing import Any, Final

from otel_rollout.record import runtime
from otel_rollout.record.signature import Declaration, declare, own_parameters


class Scope:
    """Runs around one call, and does nothing by itself; its methods raise only the exceptions of the program."""

    __slots__ = ()

    def finish(self, result: Any) -> Any:
        """End with the function's result; return what the caller gets in its place."""
        return result

    def fail(self, error: BaseException) -> None:
        """End with the exception that leaves the function, or closes a generator."""

    def exhaust(self) -> None:
        """End after the last item of a generator."""

    def add_yielded(self, item: Any) -> None:
        """Take an item of a generator."""

    def pause(self) -> None:
        """Leave the function's context: the caller runs until `resume`."""

    def resume(self) -> None:
        """Enter the function's context, if it isn't current."""


_NO_SCOPE: Final = Scope()
Begin = Callable[[list[Any]], Scope | None]
"""Makes the scope of a call and enters it; None for none. Takes a list that holds the call's keyword arguments and its
positional ones, and may replace them."""


def wrap(function: Any, begin: Begin, *, while_off: bool = False) -> Any:
    """Return a function of the same kind that runs a scope around each call.

    Wrong arguments raise at the call, as without it; while tracing is off, nothing else happens, unless `while_off`.
    """
    if is_kind(inspect.isasyncgenfunction, function):
        return _compile(function, _ASYNC_GENERATOR, functools.partial(_steps, function, begin))
    if is_kind(is_generator_function, function):
        return _compile(function, _GENERATOR, functools.partial(_steps, function, begin))
    if is_kind(inspect.iscoroutinefunction, function):
        return _compile(function, _COROUTINE, functools.partial(_run, function, begin), while_off)

    def traced(*args: Any, **kwargs: Any) -> Any:
        if runtime.pipeline is None and not while_off:
            return function(*args, **kwargs)
        # Only the function refers to its arguments from now on; it may free them before it returns.
        held: list[Any] = [kwargs, args]
        del args, kwargs
        scope = begin(held) or _NO_SCOPE
        try:
            result = function(*held.pop(), **held.pop())
        except BaseException as error:
            scope.fail(error)
            raise
        return scope.finish(result)

    return traced


async def _run(function: Any, begin: Begin, held: list[Any]) -> Any:
    scope = begin(held) or _NO_SCOPE
    try:
        result = await function(*held.pop(), **held.pop())
    except BaseException as error:
        scope.fail(error)
        raise
    return scope.finish(result)


def _steps(function: Any, begin: Begin, held: list[Any]) -> Steps:
    scope = (runtime.pipeline and begin(held)) or _NO_SCOPE
    try:
        return Steps(function(*held.pop(), **held.pop()), scope)
    except BaseException as error:
        scope.fail(error)
        raise


_CLOSES_IN_CONTEXT_CHANGES: Final = sys.version_info < (3, 12)
"""True if the collector may close a generator inside `ContextVar.set`: a change of the context crashes there."""


class Steps:
    """The steps of a generator or an async generator.

    An item is only ever in `_held`, and is taken out as it is passed on: a frame that refers to an item keeps one more
    of them alive, and one that refers to the exception that passed it is a cycle.
    """

    __slots__ = ("_generator", "_held", "_is_begun", "_is_resumed", "_scope", "_step")

    def __init__(self, generator: Any, scope: Scope) -> None:
        self._generator = generator
        self._scope = scope
        self._held: list[Any] = []
        self._is_begun = False
        self._is_resumed = True
        """True if its steps run in the scope's context."""
        self.send(None)

    def take(self) -> Any:
        """Return the item, or the generator's result."""
        return self._held.pop()

    def send(self, value: Any) -> None:
        """Take what the consumer sends."""
        generator = self._generator
        self._step = generator.send if hasattr(generator, "send") else generator.asend
        self._held.append(value)

    def throw(self, error: BaseException) -> None:
        """Take what the consumer throws, or GeneratorExit: the generator handles it."""
        generator = self._generator
        self._step = generator.throw if hasattr(generator, "throw") else generator.athrow
        self._held.append(error)
        if _CLOSES_IN_CONTEXT_CHANGES and isinstance(error, GeneratorExit):
            self._is_resumed = False

    def advance(self) -> bool:
        """Run the generator to its next item; return False at its end."""
        held = self._held
        try:
            self._enter()
            held.append(self._step(held.pop()))
        except StopIteration as stop:
            self._scope.exhaust()
            held.append(stop.value)
            return False
        except BaseException as error:
            self._scope.fail(error)
            raise
        return self._leave()

    async def advance_later(self) -> bool:
        """Run an async generator to its next item; return False at its end."""
        held = self._held
        try:
            self._enter()
            if self._is_begun:
                held.append(await self._step(held.pop()))
            else:
                self._is_begun = True
                held.clear()
                held.append(await _first_step(self._generator))
        except StopAsyncIteration:
            self._scope.exhaust()
            return False
        except BaseException as error:
            self._scope.fail(error)
            raise
        return self._leave()

    def _enter(self) -> None:
        if self._is_resumed:
            self._scope.resume()

    def _leave(self) -> bool:
        self._scope.pause()
        self._scope.add_yielded(self._held[-1])
        return True


def _first_step(generator: Any) -> Any:
    """Return the awaitable of a generator's first item, without the event loop hearing of the generator.

    A loop closes all async generators that it tracks when it ends. It tracks the traced one, which closes this one.
    """
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return generator.asend(None)
    finally:
        sys.set_asyncgen_hooks(*hooks)


# The source of wrappers that run later. Each has the parameters of its function, so that Python checks the arguments of
# a call when it checks the function's own; names of ours begin with `_rollout_`.
_HELD: Final = """
        _rollout_held = [{{{by_name}}}, ({by_place})]
        {forget}
"""
_COROUTINE: Final = (
    """
    async def traced({declared}):
        if _rollout_runtime.pipeline is None and not _rollout_while_off:
            return await _rollout_function({by_place} **{{{by_name}}})
"""
    + _HELD
    + """
        return await _rollout_run(_rollout_held)
"""
)
_ITERATION: Final = (
    """
    {keyword} traced({declared}):
"""
    + _HELD
    + """
        _rollout_steps = _rollout_run(_rollout_held)
        while {advance}:
            try:
                _rollout_steps.send((yield _rollout_steps.take()))
            except BaseException as _rollout_error:
                _rollout_steps.throw(_rollout_error)
"""
)
_GENERATOR: Final = (
    _ITERATION.replace("{keyword}", "def").replace("{advance}", "_rollout_steps.advance()")
    + """
        return _rollout_steps.take()
"""
)
_ASYNC_GENERATOR: Final = _ITERATION.replace("{keyword}", "async def").replace(
    "{advance}", "await _rollout_steps.advance_later()"
)


def _compile(function: Any, source: str, run: Any, while_off: bool = False) -> Any:
    declaration, defaults = declare(own_parameters(function))
    return _maker(source, declaration)(runtime, function, run, while_off, *defaults)


@functools.lru_cache(maxsize=1024)
def _maker(source: str, declaration: Declaration) -> Callable[..., Any]:
    """Return a function that makes wrappers; functions with the same parameters have one."""
    names = ["_rollout_runtime", "_rollout_function", "_rollout_run", "_rollout_while_off", *declaration.defaults]
    text = source.format(
        declared=declaration.declared,
        by_place=declaration.by_place,
        by_name=declaration.by_name,
        forget=f"del {declaration.names}" if declaration.names else "",
    )
    namespace: dict[str, Any] = {}
    # The source holds only parameter names, and `inspect.Parameter` takes nothing but identifiers.
    exec(f"def make({', '.join(names)}):{text}\n    return traced", namespace)  # noqa: S102
    return namespace["make"]  # type: ignore[no-any-return]


def follow(scope: Scope, result: Any, references: int) -> Any:
    """Return a form of a coroutine or generator that ends the scope of the call that returned it.

    None if the scope ends now: the result is neither, or the program has it elsewhere, or has begun it.
    """
    if type(result) not in RUNNING or not _is_untouched(result, references):
        return None
    later: Any
    if type(result) is CoroutineType:
        later = _await(scope, _Unawaited(result))
    elif type(result) is AsyncGeneratorType:
        later = _follow_async_generator(runtime, None, functools.partial(_steps_of, result, scope), False)()
    elif is_generator_coroutine(result.gi_code):
        later = _resume(scope, _Unawaited(result))
    else:
        later = _follow_generator(runtime, None, functools.partial(_steps_of, result, scope), False)()
    later.__name__, later.__qualname__ = result.__name__, result.__qualname__
    scope.pause()
    return later


def _steps_of(generator: Any, scope: Scope, held: list[Any]) -> Steps:
    return Steps(generator, scope)


_follow_generator: Final = _maker(_GENERATOR, declare([])[0])
_follow_async_generator: Final = _maker(_ASYNC_GENERATOR, declare([])[0])


async def _await(scope: Scope, awaited: _Unawaited) -> Any:
    return await _resume(scope, awaited)


@coroutine
def _resume(scope: Scope, awaited: _Unawaited) -> Any:
    try:
        scope.resume()
        result = yield from awaited.take()
    except BaseException as error:
        scope.fail(error)
        raise
    return scope.finish(result)


class _Unawaited:
    """A coroutine that another one will await; closed if the other is dropped, as Python would warn of both."""

    __slots__ = ("coroutine",)

    def __init__(self, coroutine: Any) -> None:
        self.coroutine = coroutine

    def __del__(self) -> None:
        if self.coroutine is not None:
            self.coroutine.close()

    def take(self) -> Any:
        """Return the coroutine, which is now the caller's to await."""
        coroutine, self.coroutine = self.coroutine, None
        return coroutine


RUNNING: Final = (AsyncGeneratorType, CoroutineType, GeneratorType)
"""The types of results that run later."""


def is_kind(test: Callable[[Any], bool], function: Any) -> bool:
    """Return True if a test of `inspect` holds for a callable, or for the `__call__` of its class."""
    return test(function) or test(type(function).__call__)


def is_generator_function(function: Any) -> bool:
    """Return True for a generator function whose items are the caller's: not a `types.coroutine`, which is awaited."""
    if not inspect.isgeneratorfunction(function):
        return False
    while isinstance(function, functools.partial):
        function = function.func
    return not is_generator_coroutine(getattr(function, "__func__", function).__code__)


def is_generator_coroutine(code: CodeType) -> bool:
    """Return True for the code of a `types.coroutine`, whose items are the event loop's."""
    return bool(code.co_flags & inspect.CO_ITERABLE_COROUTINE)


def _is_untouched(result: Any, references: int) -> bool:
    """Return True if a coroutine or generator has not begun, and only the code that asks refers to it.

    Nobody can notice then that another one is handed on in its place.
    """
    if references > _UNSHARED:
        return False
    if type(result) is CoroutineType:
        return inspect.getcoroutinestate(result) == inspect.CORO_CREATED
    if type(result) is GeneratorType:
        return inspect.getgeneratorstate(result) == inspect.GEN_CREATED
    # `inspect.getasyncgenstate` is Python 3.12's; before its first step, a frame is at its first line.
    if sys.version_info >= (3, 12):
        return inspect.getasyncgenstate(result) == inspect.AGEN_CREATED
    frame = result.ag_frame
    return frame is not None and not result.ag_running and frame.f_lineno == result.ag_code.co_firstlineno


class _Counting(Scope):
    """Counts the references to a result that nobody else has."""

    def finish(self, result: Any) -> int:
        return sys.getrefcount(result)


_UNSHARED: Final[int] = wrap(object, lambda held: _Counting(), while_off=True)()
"""The count of references to a new object in `Scope.finish`; it differs between versions of Python."""
