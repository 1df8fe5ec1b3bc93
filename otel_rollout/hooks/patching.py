"""Wrap a function so that an observer runs around each call.

The function is called once, with the given arguments, and its result or exception goes to the caller. A step of an
observer that fails is logged once and skipped. Only `changed` and `wrapped` replace arguments or results.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from contextvars import Token
from types import CoroutineType, FunctionType
from typing import Any, Final

from otel_rollout.guard.guard import is_plain
from otel_rollout.hooks import recorded
from otel_rollout.hooks.guard import DRIFT, guarded, report
from otel_rollout.hooks.hook import Call, Hook, Observer, Patch
from otel_rollout.record import call as calls
from otel_rollout.record import runtime
from otel_rollout.record.context import leave_variable
from otel_rollout.record.signature import compile_binder, read_signature

_MARK: Final = "__otel_rollout_hook__"


def install_hook(hook: Hook | Patch, module: Any) -> None:
    """Install a hook in an imported module; if it doesn't fit, log what isn't traced and change nothing."""
    try:
        if isinstance(hook, Patch):
            hook.apply(module)
        else:
            _replace(hook, module)
    except DRIFT as error:
        if not is_plain(error, DRIFT):
            raise
        report(hook, error.with_traceback(None))


def observe(function: Callable[..., Any], hook: Hook, *, is_method: bool = True) -> Callable[..., Any]:
    """Return an observed wrapper of a function.

    It keeps name, module, signature and kind: verl and Ray look at these, and cloudpickle finds classes by them.

    Args:
        function: A function or a coroutine function.
        hook: Its observers.
        is_method: True if the first argument is `self` or `cls`.

    Raises:
        TypeError: The function is a generator, or lacks a parameter that the hook needs.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{hook.target} is a generator")
    observed = _Observed(function, hook, is_method)
    wrap = _around_coroutine if inspect.iscoroutinefunction(function) else _around_function
    wrapper = wrap(function, observed)
    setattr(wrapper, _MARK, True)
    return wrapper


def is_replaced(function: Any) -> bool:
    """Return True if a function is a wrapper that `install` or `observe` made."""
    return hasattr(function, _MARK)


def _replace(hook: Hook, module: Any) -> None:
    *path, name = hook.target.split(".")
    owner = functools.reduce(getattr, path, module)
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
    """A hooked function, read once."""

    def __init__(self, function: Callable[..., Any], hook: Hook, is_method: bool) -> None:
        self._signature = read_signature(function)
        parameters = self._signature.parameters
        missing = [name for name in hook.needs if name not in parameters]
        if missing:
            raise TypeError(f"{hook.target} takes {', '.join(parameters) or 'nothing'}, not {', '.join(missing)}")
        self.hook = hook
        self.operation = calls.Operation(
            function, hook.name, hook.kind, capture_inputs=hook.captures[0], capture_output=hook.captures[1]
        )
        self._is_known = not hook.lost_unknown or recorded.is_known(hook, function)
        if not self._is_known:
            report(hook, TypeError("its source is not one that is recorded"), hook.lost_unknown)
        self._is_method = is_method
        self._bind = compile_binder(function)
        self._rest = next((name for name, each in parameters.items() if each.kind is each.VAR_KEYWORD), None)

    def is_off(self) -> bool:
        """Return True if calls are not observed."""
        return runtime.pipeline is None and not self.hook.while_off

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return a call of the function; raises TypeError if the arguments don't fit."""
        arguments = self._bind(*args, **kwargs)
        if self._rest is not None:
            arguments.update(arguments.pop(self._rest, ()))
        receiver = args[0] if args and self._is_method else None
        return Call(receiver, arguments, args, kwargs, self._signature, self._is_known)


class _Watch:
    """One call, observed. An exception of the program may come at any instruction; `finish` does what is left."""

    __slots__ = (
        "_hook",
        "_is_entered",
        "_is_finished",
        "_misfit",
        "_observed",
        "_span",
        "_token",
        "args",
        "kwargs",
        "observer",
    )

    def __init__(self, observed: _Observed, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        self.observer: Observer | None = None
        self._observed = observed
        self._hook = observed.hook
        self._span: calls.Call | None = None
        self._token: Token[Any] | None = None
        self._misfit: TypeError | None = None
        self._is_entered = False
        self._is_finished = False

    def begin(self) -> None:
        """Make the observer, and run its steps before the call."""
        try:
            call = self._observed.call(self.args, self.kwargs)
        except TypeError as error:
            if not is_plain(error, (TypeError,)):
                raise
            # If the program's call is wrong, the function raises the same.
            self._misfit = error.with_traceback(None)
            return
        self.observer = observer = guarded(self._hook, self._hook.observer, call)
        if observer is None:
            return
        # Calling empty steps would cost more than all of the rest here.
        kind = type(observer)
        if kind.changed is not Observer.changed:
            changed = guarded(self._hook, observer.changed, call)
            if changed is not None:
                self.args, self.kwargs = changed
        self._enter(observer)
        pipeline = runtime.pipeline
        if observer.opens_span and pipeline is not None:
            self._span = calls.Call(self._observed.operation, pipeline)
            self._span.start(self.args, self.kwargs)
        if kind.started is not Observer.started:
            guarded(self._hook, observer.started)

    def end(self, result: Any) -> Any:
        """Return the caller's value for the function's result."""
        observer = self.observer
        if observer is None:
            if self._misfit is not None:
                report(self._hook, self._misfit)
            return result
        returned, kind = None, type(observer)
        if kind.end is not Observer.end:
            guarded(self._hook, observer.end, result)
        if kind.wrapped is not Observer.wrapped:
            returned = guarded(self._hook, observer.wrapped, result)
        if self._span is not None:
            self._span.succeed(result)
        self.finish()
        return result if returned is None else returned

    def fail(self, error: BaseException) -> None:
        """Record an exception that leaves the call."""
        observer = self.observer
        if observer is not None and not self._is_finished:
            guarded(self._hook, observer.fail, error)
            if self._span is not None:
                self._span.stop(error)
            self.finish()

    def suspend(self) -> None:
        """Leave the call's context: the call has returned a coroutine that runs later."""
        if self.observer is not None:
            if self._span is not None:
                self._span.pause()
            self._leave(self.observer)
        self._is_finished = True

    def resume(self) -> None:
        """Enter the call's context again."""
        self._is_finished = False
        if self.observer is not None:
            self._enter(self.observer)
            if self._span is not None:
                self._span.resume()

    def finish(self) -> None:
        """End what is left, and close the observer; once."""
        observer = self.observer
        if observer is None or self._is_finished:
            return
        if self._span is not None and self._span.is_open:
            self._span.clean_up()
        self._leave(observer)
        self._is_finished = True
        if type(observer).close is not Observer.close:
            guarded(self._hook, observer.close)

    def _enter(self, observer: Observer) -> None:
        self._is_entered = True
        if type(observer).enter is not Observer.enter:
            guarded(self._hook, observer.enter)
        if observer.variable is not None:
            self._token = observer.variable.set(observer if observer.value is None else observer.value)

    def _leave(self, observer: Observer) -> None:
        if not self._is_entered:
            return
        if self._token is not None:
            leave_variable(self._token)
            self._token = None
        if type(observer).leave is not Observer.leave:
            guarded(self._hook, observer.leave)
        self._is_entered = False


def _around_coroutine(function: Callable[..., Any], observed: _Observed) -> Callable[..., Any]:
    @functools.wraps(function)
    async def observing(*args: Any, **kwargs: Any) -> Any:
        if observed.is_off():
            return await function(*args, **kwargs)
        watch = _Watch(observed, args, kwargs)
        try:
            watch.begin()
            return watch.end(await function(*watch.args, **watch.kwargs))
        except BaseException as error:
            watch.fail(error)
            raise
        finally:
            watch.finish()

    return observing


def _around_function(function: Callable[..., Any], observed: _Observed) -> Callable[..., Any]:
    @functools.wraps(function)
    def observing(*args: Any, **kwargs: Any) -> Any:
        if observed.is_off():
            return function(*args, **kwargs)
        watch = _Watch(observed, args, kwargs)
        try:
            watch.begin()
            result = function(*watch.args, **watch.kwargs)
            if type(result) is not CoroutineType or watch.observer is None:
                return watch.end(result)
            # A coroutine function in disguise, by a decorator.
            following: Any = _follow(watch, result)
            following.__name__, following.__qualname__ = result.__name__, result.__qualname__
            watch.suspend()
            return following
        except BaseException as error:
            watch.fail(error)
            raise
        finally:
            watch.finish()

    return observing


async def _follow(watch: _Watch, coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        watch.resume()
        return watch.end(await coroutine)
    except BaseException as error:
        watch.fail(error)
        raise
    finally:
        watch.finish()
