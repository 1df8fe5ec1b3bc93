"""An iterator that is followed to its end: a proxy for it ends the span of the call that returned it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import wrapt

if TYPE_CHECKING:
    from otel_rollout.record.driver import Scope


def follow_iterator(scope: Scope, result: Any) -> Any:
    """Return a proxy for an iterator or async iterator, and pause the scope; None if the result is neither."""
    kind = _proxy_kind(result)
    if kind is None:
        return None
    scope.pause()
    return kind(result, _Iteration(scope))


class _Iteration:
    """The rest of a call: a block around each step of what it returned. All proxies gone, it ends."""

    __slots__ = ("is_open", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.is_open = True

    def __del__(self) -> None:
        self.end(GeneratorExit())

    def __enter__(self) -> None:
        if self.is_open:
            self.scope.resume()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self.end(None if isinstance(error, (StopIteration, StopAsyncIteration)) else error)
        elif self.is_open:
            self.scope.pause()

    def take(self, item: Any) -> Any:
        """Add an item to the output, and return it."""
        if self.is_open:
            self.scope.add_yielded(item)
        return item

    def end(self, error: BaseException | None = None) -> None:
        """End the call, if it has not ended."""
        if not self.is_open:
            return
        self.is_open = False
        if error is None:
            self.scope.exhaust()
        else:
            self.scope.fail(error)


class _Followed(wrapt.BaseObjectProxy):  # type: ignore[type-arg]  # of any
    """Whatever is asked of it, the iterator answers; leaving its block or closing it ends the call."""

    def __init__(self, target: Any, iteration: _Iteration) -> None:
        super().__init__(target)
        self._self_iteration = iteration

    def __repr__(self) -> str:
        return repr(self.__wrapped__)

    def __copy__(self) -> Any:
        return copy.copy(self.__wrapped__)

    def __deepcopy__(self, known: dict[int, Any]) -> Any:
        return copy.deepcopy(self.__wrapped__, known)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__wrapped__.__reduce_ex__(protocol)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__wrapped__, name)
        return _closing(found, self._self_iteration) if name in ("aclose", "close") and callable(found) else found

    def __enter__(self) -> Any:
        return self._self_same(self.__wrapped__.__enter__())

    def __exit__(self, *exception: object) -> Any:
        try:
            return self.__wrapped__.__exit__(*exception)
        finally:
            self._self_iteration.end(GeneratorExit())

    async def __aenter__(self) -> Any:
        return self._self_same(await self.__wrapped__.__aenter__())

    async def __aexit__(self, *exception: object) -> Any:
        try:
            return await self.__wrapped__.__aexit__(*exception)
        finally:
            self._self_iteration.end(GeneratorExit())

    def _self_same(self, found: Any) -> Any:
        """Return a proxy for what a method returned: the iterator itself, or an iterator of its items."""
        if found is self.__wrapped__:
            return self
        kind = _proxy_kind(found)
        return found if kind is None else kind(found, self._self_iteration)


class _FollowedIterator(_Followed):
    def __iter__(self) -> Any:
        return self._self_same(iter(self.__wrapped__))

    def __next__(self) -> Any:
        with self._self_iteration:
            item = next(self.__wrapped__)
        return self._self_iteration.take(item)


class _FollowedAsyncIterator(_Followed):
    def __aiter__(self) -> Any:
        return self._self_same(aiter(self.__wrapped__))

    async def __anext__(self) -> Any:
        with self._self_iteration:
            item = await anext(self.__wrapped__)
        return self._self_iteration.take(item)


def _proxy_kind(value: Any) -> Any:
    kind = type(value)
    if hasattr(kind, "__next__"):
        return _FollowedIterator
    return _FollowedAsyncIterator if hasattr(kind, "__anext__") else None


def _closing(close: Callable[..., Any], iteration: _Iteration) -> Callable[..., Any]:
    def close_and_end(*args: Any, **kwargs: Any) -> Any:
        try:
            return close(*args, **kwargs)
        finally:
            iteration.end(GeneratorExit())

    return close_and_end
