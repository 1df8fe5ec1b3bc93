"""An iterator that is followed to its end: a proxy for it ends the span of the call that returned it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final

from otel_rollout.record.call import Call
from otel_rollout.record.callables import special_methods

_CLOSING: Final = ("aclose", "close")
"""The methods that end an iteration early."""


def follow_iterator(call: Call, result: Any) -> Any:
    """Return a proxy for an iterator or async iterator; None if the result is neither.

    Args:
        call: The call that returned it, which has been set aside.
        result: The result.
    """
    return _proxy(result, _Iteration(call)) if _is_iterator(result) else None


class _Iteration:
    """The rest of a call: the steps of what it returned. All proxies gone, it ends.

    Args:
        call: The call.
    """

    __slots__ = ("call",)

    def __init__(self, call: Call) -> None:
        self.call: Call | None = call
        """None after the end."""

    def __del__(self) -> None:
        if self.call is not None:
            self.end(GeneratorExit())

    def step(self, advance: Callable[[Any], Any], iterator: Any) -> Any:
        """Return the next item of an iterator."""
        call = self.call
        if call is None:
            return advance(iterator)
        try:
            _continue(call)
            item = advance(iterator)
            call.pause()
            call.add_yielded(item)
            return item
        except StopIteration:
            self.end()
            raise
        except BaseException as error:
            self.end(error)
            raise
        finally:
            if call.outer is not None:
                # Interrupted before the end.
                call.clean_up()

    async def step_later(self, advance: Callable[[Any], Awaitable[Any]], iterator: Any) -> Any:
        """Return the next item of an async iterator."""
        call = self.call
        if call is None:
            return await advance(iterator)
        try:
            _continue(call)
            item = await advance(iterator)
            call.pause()
            call.add_yielded(item)
            return item
        except StopAsyncIteration:
            self.end()
            raise
        except BaseException as error:
            self.end(error)
            raise
        finally:
            if call.outer is not None:
                # Interrupted before the end.
                call.clean_up()

    def end(self, error: BaseException | None = None) -> None:
        """End the call's span, if it has not ended.

        Args:
            error: The exception that ended the iteration; None if there are no more items.
        """
        call = self.call
        if call is None:
            return
        try:
            call.stop(error)
            self.call = None
        finally:
            if call.is_open:
                call.clean_up()


def _continue(call: Call) -> None:
    if call.is_open:
        call.resume()
    else:
        call.take_up()


class _Proxy:
    """A proxy for an object: whatever is asked of it, the object answers; `isinstance` takes it for the object."""

    __slots__ = ("__weakref__", "_iteration", "_target")

    def __getattribute__(self, name: str) -> Any:
        if name in _SPECIAL:
            return object.__getattribute__(self, name)
        found = getattr(_target_of(self), name)
        if name in _CLOSING and callable(found):
            return _closing(found, _iteration_of(self))
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(_target_of(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(_target_of(self), name)


_set_target, _target_of = _Proxy._target.__set__, _Proxy._target.__get__  # type: ignore[attr-defined]  # noqa: SLF001 - slots
_set_iteration, _iteration_of = _Proxy._iteration.__set__, _Proxy._iteration.__get__  # type: ignore[attr-defined]  # noqa: SLF001 - slots


def _proxy(target: Any, iteration: _Iteration) -> Any:
    made = _class_for(type(target))()  # type: ignore[arg-type]  # mypy: a class is hashable
    _set_target(made, target)
    _set_iteration(made, iteration)
    return made


@lru_cache(maxsize=256)
def _class_for(kind: type) -> type:
    """Return the class of the proxies for objects of a class: Python looks for special methods in the class."""
    namespace: dict[str, Any] = {"__slots__": ()}
    for name in special_methods(kind):
        method = getattr(kind, name)
        namespace[name] = _SPECIAL.get(name, _forward)(method)
    if kind.__hash__ is None:
        namespace["__hash__"] = None
    return type(kind.__name__, (_Proxy,), namespace)


def _forward(method: Any) -> Callable[..., Any]:
    return lambda proxy, *args, **kwargs: method(_target_of(proxy), *args, **kwargs)


def _next(method: Any) -> Callable[..., Any]:
    return lambda proxy: _iteration_of(proxy).step(method, _target_of(proxy))


def _next_later(method: Any) -> Callable[..., Any]:
    return lambda proxy: _iteration_of(proxy).step_later(method, _target_of(proxy))


def _same(method: Any) -> Callable[..., Any]:
    """Forward a method that returns the object itself, or an iterator of its items."""
    return lambda proxy: _known(proxy, method(_target_of(proxy)))


def _same_later(method: Any) -> Callable[..., Any]:
    async def enter(proxy: Any) -> Any:
        return _known(proxy, await method(_target_of(proxy)))

    return enter


def _known(proxy: Any, found: Any) -> Any:
    if found is _target_of(proxy):
        return proxy
    return _proxy(found, _iteration_of(proxy)) if _is_iterator(found) else found


def _exit(method: Any) -> Callable[..., Any]:
    def leave(proxy: Any, *exception: Any) -> Any:
        try:
            return method(_target_of(proxy), *exception)
        finally:
            _iteration_of(proxy).end(GeneratorExit())

    return leave


def _exit_later(method: Any) -> Callable[..., Any]:
    async def leave(proxy: Any, *exception: Any) -> Any:
        try:
            return await method(_target_of(proxy), *exception)
        finally:
            _iteration_of(proxy).end(GeneratorExit())

    return leave


def _closing(close: Callable[..., Any], iteration: _Iteration) -> Callable[..., Any]:
    def close_and_end(*args: Any, **kwargs: Any) -> Any:
        try:
            return close(*args, **kwargs)
        finally:
            iteration.end(GeneratorExit())

    return close_and_end


_SPECIAL: Final[dict[str, Callable[[Any], Callable[..., Any]]]] = {
    "__next__": _next,
    "__anext__": _next_later,
    "__iter__": _same,
    "__aiter__": _same,
    "__enter__": _same,
    "__aenter__": _same_later,
    "__exit__": _exit,
    "__aexit__": _exit_later,
}


def _is_iterator(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__next__") or hasattr(kind, "__anext__")
