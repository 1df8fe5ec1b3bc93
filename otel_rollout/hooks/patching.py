"""Wrap a function so that an observer runs around each call.

The function is called once, with the given arguments, and its result or exception goes to the caller. A step of an
observer that fails is logged once and skipped. Only `changed` and `wrapped` replace arguments or results.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from contextvars import Token
from types import CoroutineType, FunctionType
from typing import Any, Final

from otel_rollout.guard.provenance import is_programs
from otel_rollout.hooks import recorded
from otel_rollout.hooks.guard import guarded, report
from otel_rollout.hooks.hook import Call, Hook, Observer, Patch
from otel_rollout.record import call as calls
from otel_rollout.record.context import leave_variable
from otel_rollout.record.driver import Scope, follow, wrap
from otel_rollout.record.signature import compile_binder, read_signature

_MARK: Final = "__otel_rollout_hook__"


def install_hook(hook: Hook | Patch, module: Any) -> None:
    """Install a hook in an imported module; if it doesn't fit, log what isn't traced and change nothing."""
    try:
        if isinstance(hook, Patch):
            hook.apply(module)
        else:
            _replace(hook, module)
    except BaseException as error:
        if is_programs(error):
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
    wrapper = functools.wraps(function)(wrap(function, observed.begin, while_off=hook.while_off))
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

    def begin(self, held: list[Any]) -> _Watch | None:
        """Return the observer's scope of a call, entered; None if there is nothing to observe."""
        watch = _Watch(self)
        try:
            watch.begin(held)
        except BaseException as error:
            watch.fail(error)
            raise
        return watch

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return a call of the function; raises TypeError if the arguments don't fit."""
        arguments = self._bind(*args, **kwargs)
        if self._rest is not None:
            arguments.update(arguments.pop(self._rest, ()))
        receiver = args[0] if args and self._is_method else None
        return Call(receiver, arguments, args, kwargs, self._signature, self._is_known)


class _Watch(Scope):
    """One call, observed: the scope of a hook."""

    __slots__ = ("_hook", "_is_entered", "_misfit", "_observed", "_span", "_token", "observer")

    def __init__(self, observed: _Observed) -> None:
        self.observer: Observer | None = None
        self._observed = observed
        self._hook = observed.hook
        self._span: calls.Call | None = None
        self._token: Token[Any] | None = None
        self._misfit: TypeError | None = None
        self._is_entered = False

    def begin(self, held: list[Any]) -> None:
        """Make the observer, and run its steps before the call, which may replace the arguments."""
        try:
            call = self._observed.call(held[1], held[0])
        except TypeError as error:
            if is_programs(error):
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
                held[:] = reversed(changed)
        self.resume()
        if observer.opens_span:
            self._span = self._observed.operation.begin(held)
        if kind.started is not Observer.started:
            guarded(self._hook, observer.started)

    def finish(self, result: Any) -> Any:
        """Return the caller's value for the function's result."""
        observer = self.observer
        if observer is None:
            if self._misfit is not None:
                report(self._hook, self._misfit)
            return result
        # A coroutine function in disguise, by a decorator.
        if type(result) is CoroutineType:
            references = sys.getrefcount(result)
            later = follow(self, result, references)
            if later is not None:
                return later
        returned, kind = None, type(observer)
        try:
            if kind.end is not Observer.end:
                guarded(self._hook, observer.end, result)
            if kind.wrapped is not Observer.wrapped:
                returned = guarded(self._hook, observer.wrapped, result)
            if self._span is not None:
                self._span.finish(result)
        finally:
            self._close(observer)
        return result if returned is None else returned

    def fail(self, error: BaseException) -> None:
        """Record an exception that leaves the call."""
        observer = self.observer
        if observer is not None:
            guarded(self._hook, observer.fail, error)
            if self._span is not None:
                self._span.fail(error)
            self._close(observer)

    def pause(self) -> None:
        """Leave the call's context: the call has returned a coroutine that runs later."""
        if self.observer is not None:
            if self._span is not None:
                self._span.pause()
            self._leave(self.observer)

    def resume(self) -> None:
        """Enter the call's context."""
        observer = self.observer
        if observer is None or self._is_entered:
            return
        self._is_entered = True
        if type(observer).enter is not Observer.enter:
            guarded(self._hook, observer.enter)
        if observer.variable is not None:
            self._token = observer.variable.set(observer if observer.value is None else observer.value)
        if self._span is not None:
            self._span.resume()

    def _close(self, observer: Observer) -> None:
        self._leave(observer)
        if type(observer).close is not Observer.close:
            guarded(self._hook, observer.close)

    def _leave(self, observer: Observer) -> None:
        if not self._is_entered:
            return
        self._is_entered = False
        if self._token is not None:
            leave_variable(self._token)
            self._token = None
        if type(observer).leave is not Observer.leave:
            guarded(self._hook, observer.leave)
