"""Values that hypothesis makes for ops to capture: plain, odd, hostile, and all of them nested in each other."""

from __future__ import annotations

import array
import collections
import ctypes
import datetime as dt
import io
import mmap
import queue
import re
import socket
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

from hypothesis import strategies as st

from tests.fuzz.hostile import hostile_bases, make_hostile, odd_objects
from tests.fuzz.libraries import holders, library_values

__all__ = ["values"]

DEEP = 10_000
LONG = 5_000_000
HEAVY_IN = 30
"""So many examples are light for one that is not."""


class Held:
    """Can be referred to weakly."""


class Structure(ctypes.Structure):
    """A structure of C."""

    _fields_ = [("number", ctypes.c_int), ("text", ctypes.c_char_p)]


def _deep(wrap: Callable[[Any], Any]) -> Any:
    value: Any = "bottom"
    for _ in range(DEEP):
        value = wrap(value)
    return value


def _bomb(wrap: Callable[[Any], Any]) -> Any:
    value: Any = "shared"
    for _ in range(40):
        value = wrap(value)
    return value


def _cycle() -> Any:
    messages: list[Any] = []
    messages.append({"parent": messages, "view": messages.__iter__()})
    holder = Held()
    holder.__dict__["itself"] = holder
    return [messages, holder]


def _generator() -> Any:
    yield 1


def _released() -> memoryview:
    view = memoryview(bytearray(8))
    view.release()
    return view


def _mapped() -> Any:
    mapped = mmap.mmap(-1, 4096)
    return [mapped, memoryview(b"bytes"), memoryview(array.array("d", [1.0, 2.0]))]


def _closed_map() -> Any:
    mapped = mmap.mmap(-1, 4096)
    mapped.close()
    return mapped


def _socket() -> socket.socket:
    opened = socket.socket()
    opened.close()
    return opened


def _dead() -> Any:
    return [weakref.proxy(Held()), weakref.ref(Held())]


def _failed() -> BaseException:
    try:
        raise ValueError("no") from KeyError(Held())
    except ValueError as error:
        return error


_HEAVY: tuple[Callable[[], Any], ...] = (
    lambda: _deep(lambda value: [value]),
    lambda: _deep(lambda value: {"a": value}),
    lambda: _deep(lambda value: (value,)),
    lambda: _deep(lambda value: types.SimpleNamespace(a=value)),
    lambda: _bomb(lambda value: [value] * 10),
    lambda: _bomb(lambda value: {"a": value, "b": value}),
    lambda: _bomb(lambda value: types.SimpleNamespace(a=value, b=value)),
    lambda: "x" * LONG,
    lambda: "é\ud800" * (LONG // 2),
    lambda: b"x" * LONG,
    lambda: [7] * (LONG // 4),
    lambda: {"ids": list(range(50_000)), "text": "\ud800"},
    lambda: [{"n": number} for number in range(50_000)],
    lambda: dict.fromkeys(range(50_000)),
    lambda: set(range(50_000)),
    lambda: 10**5_000,
)
_ODD: tuple[Callable[[], Any], ...] = (
    _cycle,
    _generator,
    threading.Lock,
    threading.RLock,
    threading.local,
    queue.Queue,
    _socket,
    _released,
    _mapped,
    _closed_map,
    _dead,
    _failed,
    Structure,
    lambda: (ctypes.c_int * 4)(1, 2, 3, 4),
    lambda: ctypes.pointer(ctypes.c_int(1)),
    lambda: types,
    lambda: _generator,
    lambda: len,
    lambda: [].append,
    lambda: Held,
    lambda: type,
    lambda: int.__add__,
    lambda: property(len),
    lambda: range(10**12),
    lambda: slice(1, 2),
    lambda: Ellipsis,
    lambda: NotImplemented,
    lambda: types.MappingProxyType({"a": 1}),
    lambda: collections.ChainMap({"a": 1}, {"b": 2}),
    {"a": 1}.keys,
    {"a": [1]}.items,
    lambda: array.array("q", [1, 2]),
    lambda: re.compile("x"),
    lambda: io.StringIO("x"),
    lambda: iter([1, 2]),
    lambda: map(str, [1]),
    lambda: types.GenericAlias(list, (int,)),
    lambda: mock.MagicMock(spec=dict),
    mock.Mock,
    lambda: dt.datetime.now(dt.timezone.utc),
    lambda: dt.datetime(2026, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1))),
)
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**65)
    | st.floats()
    | st.text(st.characters(codec=None))
    | st.text(st.characters(categories=["Cs"]), max_size=5)
    | st.binary(max_size=20)
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.complex_numbers()
    | st.decimals()
    | st.fractions()
    | st.uuids()
    | st.builds("/".join, st.lists(st.text(max_size=5), max_size=3))
)
_hostile_keys = [make_hostile(str)("key"), make_hostile(int)(7), make_hostile(tuple)((1, 2)), make_hostile(object)()]
_keys = (
    st.text(st.characters(codec=None), max_size=10)
    | st.integers()
    | st.none()
    | st.booleans()
    | st.floats()
    | st.binary(max_size=5)
    | st.tuples(st.integers())
    | st.sampled_from(_hostile_keys)
)


def _made(makers: list[Callable[[], Any]] | tuple[Callable[[], Any], ...]) -> st.SearchStrategy[Any]:
    return st.integers(0, len(makers) - 1).map(lambda position: makers[position]())


def values() -> st.SearchStrategy[Any]:
    """Return the strategy of all of them; each value is made anew."""
    odd = _made(_ODD) | _made(library_values()) | _made(odd_objects()) | _made(hostile_bases())
    holding = holders()
    lists = make_hostile(list)
    dicts = make_hostile(dict, is_attribute_hostile=True)
    nested = st.recursive(
        _scalars | odd,
        lambda inner: (
            st.lists(inner, max_size=5)
            | st.dictionaries(_keys, inner, max_size=5)
            | st.tuples(inner, inner)
            | st.builds(collections.deque, st.lists(inner, max_size=3))
            | st.builds(lists, st.lists(inner, max_size=3))
            | st.builds(dicts, st.dictionaries(st.text(max_size=5), inner, max_size=3))
            | st.builds(lambda value: [value] * 3, inner)
            | st.builds(lambda position, value: holding[position](value), st.integers(0, len(holding) - 1), inner)
        ),
        max_leaves=12,
    )
    # Those that take time stand in few examples.
    return st.integers(0, HEAVY_IN - 1).flatmap(lambda number: _nested_heavy(nested) if number == 1 else nested)


def _nested_heavy(nested: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    heavy = _made(_HEAVY)
    return (
        heavy | st.lists(heavy | nested, max_size=3) | st.dictionaries(st.text(max_size=5), heavy | nested, max_size=3)
    )
