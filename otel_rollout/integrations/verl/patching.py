"""Runs an observer around each call of a function: the one place in which a hook touches what verl does.

The function is called once, with the arguments that were given, and what it returns or raises is what the caller gets.
An observer that fails is reported once and left out. Arguments and results are changed only by observers that say so
(`changed`, `wrapped`), and stay as they were where that fails.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, Token
from types import CoroutineType, FunctionType
from typing import Any, Final

from otel_rollout.capture import call as calls
from otel_rollout.capture.signature import compile_binder, read_signature
from otel_rollout.integrations.verl import recorded
from otel_rollout.integrations.verl.faults import is_fault, report
from otel_rollout.integrations.verl.hook import Call, Hook, Observer, Patch
from otel_rollout.spans import runtime

__all__ = ["install", "is_replaced", "observe"]

_MARK: Final = "__otel_rollout_hook__"
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def install(hook: Hook | Patch, module: Any) -> None:
    """Put a hook in place; where it doesn't fit, one warning says what is not traced, and all stays as it is.

    Args:
        hook: The hook.
        module: The module that it is for, imported.
    """
    try:
        if isinstance(hook, Patch):
            hook.apply(module)
        else:
            _replace(hook, module)
    except Exception as error:  # noqa: BLE001, RUF100 - verl goes on as it is
        report(hook.target, hook.lost, error.with_traceback(None))


def observe(function: Callable[..., Any], hook: Hook, *, is_method: bool = True) -> Callable[..., Any]:
    """Return a function that does what `function` does, and is observed.

    It has the original's name, module, signature and kind: verl and Ray look at these, and cloudpickle finds classes
    by them.

    Args:
        function: A function or a coroutine function.
        hook: How it is observed.
        is_method: Whether its first argument is `self` or `cls`.

    Raises:
        TypeError: It is a generator, or lacks a parameter that the hook needs.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{hook.target} is a generator")
    observed = _Observed(function, hook, is_method)
    wrap = _around_coroutine if inspect.iscoroutinefunction(function) else _around_function
    wrapper = wrap(function, observed)
    setattr(wrapper, _MARK, True)
    return wrapper


def is_replaced(function: Any) -> bool:
    """Whether this is what `install` has put in place of a function."""
    return hasattr(function, _MARK)


def _replace(hook: Hook, module: Any) -> None:
    *path, name = hook.target.split(".")
    owner = module
    for part in path:
        owner = getattr(owner, part)
    try:
        found = vars(owner)[name]
    except KeyError:
        raise AttributeError(f"{getattr(owner, '__name__', owner)} has no {name}") from None
    kind = type(found) if isinstance(found, (classmethod, staticmethod)) else None
    function = found if kind is None else found.__func__
    if is_replaced(function):
        return
    if not isinstance(function, FunctionType):
        raise TypeError(f"{name} is no function but {type(function).__name__}")
    wrapper: Any = observe(function, hook, is_method=bool(path) and kind is not staticmethod)
    setattr(owner, name, wrapper if kind is None else kind(wrapper))


class _Observed:
    """What is known of a function before it is called."""

    def __init__(self, function: Callable[..., Any], hook: Hook, is_method: bool) -> None:
        parameters = list(read_signature(function).parameters.values())
        names = [parameter.name for parameter in parameters]
        missing = [name for name in hook.needs if name not in names]
        if missing:
            raise TypeError(f"{hook.target} takes {', '.join(names) or 'nothing'}, not {', '.join(missing)}")
        self.hook = hook
        self.operation = calls.Operation(
            function, hook.name, hook.kind, capture_inputs=hook.captures[0], capture_output=hook.captures[1]
        )
        self.is_known = not hook.lost_unknown or recorded.is_known(hook, function)
        if not self.is_known:
            report(hook.target, hook.lost_unknown, TypeError("it does something else than it did"))
        self._is_method = is_method
        self._bind = compile_binder(function)
        self._positions = {
            parameter.name: position for position, parameter in enumerate(parameters) if parameter.kind in _POSITIONAL
        }
        self._named = frozenset(
            parameter.name
            for parameter in parameters
            if parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        )
        self._rest = next(
            (parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.VAR_KEYWORD), None
        )

    def is_off(self) -> bool:
        """Whether a call is not observed at all."""
        return runtime.pipeline is None and not self.hook.while_off

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return a call of the function; raises TypeError where the arguments are not its own."""
        arguments = self._bind(*args, **kwargs)
        if self._rest is not None:
            arguments.update(arguments.pop(self._rest, ()))
        receiver = args[0] if args and self._is_method else None
        return Call(receiver, arguments, args, kwargs, self._positions, self._named, self.is_known)


class _Watch:
    """One call, observed."""

    __slots__ = ("_hook", "_misfit", "_observer", "_span", "_token", "args", "kwargs")

    def __init__(self, observed: _Observed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        self._hook = observed.hook
        self._observer: Observer | None = None
        self._span: calls.Call | None = None
        self._token: Token[Any] | None = None
        self._misfit: TypeError | None = None
        try:
            self._begin(observed)
        except BaseException as error:
            self.fail(error)
            raise

    @property
    def settles(self) -> bool:
        """Whether there is something to wait for when the call has returned."""
        return self._observer is not None and self._observer.settles

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to observe in this call."""
        return self._observer is None

    def _begin(self, observed: _Observed) -> None:
        try:
            call = observed.call(self.args, self.kwargs)
        except TypeError as error:
            # Where the program calls it wrongly, the function says so.
            self._misfit = error.with_traceback(None)
            return
        self._observer = observer = self._try(self._hook.observer, call)
        if observer is None:
            return
        # A step that an observer has nothing to do in would cost more than all of the rest here.
        kind = type(observer)
        if kind.changed is not Observer.changed:
            changed = self._try(observer.changed, call)
            if changed is not None:
                self.args, self.kwargs = changed
        self._enter(observer)
        pipeline = runtime.pipeline
        if observer.opens_span and pipeline is not None:
            self._span = self._try(observed.operation.start, pipeline, self.args, self.kwargs)
        if kind.started is not Observer.started:
            self._try(observer.started)

    def end(self, result: Any) -> Any:
        """Return what the caller gets for the function's result."""
        observer = self._observer
        if observer is None:
            if self._misfit is not None:
                report(self._hook.target, self._hook.lost, self._misfit)
            return result
        returned = None
        try:
            self._try(observer.end, result)
            if observer.wraps:
                returned = self._try(observer.wrapped, result)
            if self._span is not None:
                self._try(self._span.succeed, result)
        finally:
            self._finish(observer)
        return result if returned is None else returned

    def fail(self, error: BaseException) -> None:
        """Note that an exception leaves the call."""
        observer = self._observer
        if observer is None:
            return
        try:
            self._try(observer.fail, error)
            if self._span is not None:
                self._try(self._span.fail, error)
        finally:
            self._finish(observer)

    async def settle(self, result: Any) -> None:
        """Wait for what the observer waits for."""
        if self._observer is None:
            return
        try:
            await self._observer.settle(result)
        except BaseException as error:
            if not is_fault(error):
                raise
            report(self._hook.target, self._hook.lost, error)

    def suspend(self) -> None:
        """Leave the call's context: it has returned a coroutine that runs later."""
        if self._observer is not None:
            if self._span is not None:
                self._try(self._span.pause)
            self._leave(self._observer)

    def resume(self) -> None:
        """Enter the call's context again."""
        if self._observer is not None:
            self._enter(self._observer)
            if self._span is not None:
                self._try(self._span.resume)

    def _finish(self, observer: Observer) -> None:
        try:
            self._leave(observer)
        finally:
            if type(observer).close is not Observer.close:
                self._try(observer.close)

    def _enter(self, observer: Observer) -> None:
        if type(observer).enter is not Observer.enter:
            self._try(observer.enter)
        variable = observer.variable
        if variable is not None:
            self._token = self._try(_set, variable, observer)

    def _leave(self, observer: Observer) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:  # noqa: SIM105 - contextlib.suppress costs more than the rest
                token.var.reset(token)
            except ValueError:
                # An abandoned coroutine is closed from another context than it ran in.
                pass
        if type(observer).leave is not Observer.leave:
            self._try(observer.leave)

    def _try(self, step: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return step(*arguments)
        except BaseException as error:
            if not is_fault(error):
                raise
            report(self._hook.target, self._hook.lost, error)
            return None


def _set(variable: ContextVar[Any], observer: Observer) -> Token[Any]:
    return variable.set(observer.value)


def _around_coroutine(function: Callable[..., Any], observed: _Observed) -> Callable[..., Any]:
    @functools.wraps(function)
    async def observing(*args: Any, **kwargs: Any) -> Any:
        if observed.is_off():
            return await function(*args, **kwargs)
        watch = _Watch(observed, args, kwargs)
        try:
            result = await function(*watch.args, **watch.kwargs)
            if watch.settles:
                await watch.settle(result)
        except BaseException as error:
            watch.fail(error)
            raise
        return watch.end(result)

    return observing


def _around_function(function: Callable[..., Any], observed: _Observed) -> Callable[..., Any]:
    @functools.wraps(function)
    def observing(*args: Any, **kwargs: Any) -> Any:
        if observed.is_off():
            return function(*args, **kwargs)
        watch = _Watch(observed, args, kwargs)
        try:
            result = function(*watch.args, **watch.kwargs)
        except BaseException as error:
            watch.fail(error)
            raise
        if type(result) is not CoroutineType or watch.is_idle:
            return watch.end(result)
        # A coroutine function in disguise, by a decorator.
        watch.suspend()
        following: Any = _follow(watch, result)
        following.__name__, following.__qualname__ = result.__name__, result.__qualname__
        return following

    return observing


async def _follow(watch: _Watch, coroutine: Coroutine[Any, Any, Any]) -> Any:
    watch.resume()
    try:
        result = await coroutine
        if watch.settles:
            await watch.settle(result)
    except BaseException as error:
        watch.fail(error)
        raise
    return watch.end(result)
