"""Readers of the standard library's types, and of numpy, torch, PIL, pandas and OmegaConf.

A reader calls the functions of the type that it reads, never the value's own methods: a subclass may override them.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import fractions
import pathlib
import sys
import types
import uuid
import zoneinfo
from array import array
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, cast

from otel_rollout.guard.guard import FAULTS, is_of_call, is_our_fault
from otel_rollout.guard.log_once import call_user_function, internal_error
from otel_rollout.record.array_types import read_numpy, read_torch
from otel_rollout.record.exception_record import exception_text
from otel_rollout.record.object_reading import (
    Part,
    Reader,
    Substitute,
    class_name,
    fields_of,
    find_static,
    is_one_of,
    is_subclass,
    module_of,
    object_reader,
    per_class,
)
from otel_rollout.text.sanitize import integer_text

MAX_ROWS: Final = 8
"""First rows of a table that are shown, and first bytes of a buffer."""
COST_OF_AN_ARRAY: Final = 96
"""In items of a container, for `ObjectWalk`."""
_SCALARS: Final = (int, float, bool, type(None))
_SAFE_ZONES: Final = (type(None), dt.timezone, zoneinfo.ZoneInfo)
"""Other time zones compute their offset by code of their class."""
_DATE_FIELDS: Final = ("year", "month", "day")
_TIME_FIELDS: Final = ("hour", "minute", "second", "microsecond")
_FRACTION_FIELDS: Final = ("_numerator", "_denominator")


def _by(convert: Callable[[Any], Any]) -> Reader:
    return lambda value, room, deep: convert(value)


def _items_by(iterate: Callable[[Any], Any], length: Callable[[Any], int]) -> Reader:
    """Return a reader of a collection that calls a standard class's functions."""

    def read(value: Any, room: int, deep: bool) -> Any:
        items = [*islice(iterate(value), max(room, 0))]
        return Part(items, length(value) - len(items))

    return read


def _read_dict(value: Any, room: int, deep: bool) -> Any:
    pairs = [*islice(dict.items(value), max(room, 0))]
    return Part(pairs, dict.__len__(value) - len(pairs), is_dict=True)


def _read_bytes(value: bytes | bytearray | memoryview, room: int, deep: bool) -> dict[str, Any]:
    base: Any = next(known for known in (bytes, bytearray, memoryview) if is_subclass(type(value), known))
    # A view of a subclass would call its `__buffer__`.
    plain: Any = value if base is memoryview else base.__getitem__(value, slice(0, MAX_ROWS))
    try:
        view = memoryview(plain)
    except ValueError as error:
        if not is_of_call(error, ValueError):
            raise
        return {"type": base.__name__, "released": True}
    length = view.nbytes if base is memoryview else base.__len__(value)
    described: dict[str, Any] = {"type": base.__name__, "length": length}
    if view.c_contiguous and view.nbytes:
        described["head"] = view.cast("B")[:MAX_ROWS].hex()
    return described


def _read_function(value: Any, room: int, deep: bool) -> Any:
    base = next(known for known in _FUNCTIONS if is_subclass(type(value), known))
    function = types.MethodType.__dict__["__func__"].__get__(value) if base is types.MethodType else value
    name = function.__qualname__ if is_one_of(type(function), _FUNCTIONS) else None
    return f"<{base.__name__} {name}>" if type(name) is str else f"<{base.__name__}>"


def _read_enum(value: Any, room: int, deep: bool) -> Any:
    held = fields_of(value).get("_value_")
    kind = type(held)
    if is_one_of(kind, (str, *_SCALARS)):
        return held
    name = fields_of(value).get("_name_")
    return name if type(name) is str else f"<{class_name(type(value))}>"


def _read_date(value: Any, room: int, deep: bool) -> Any:
    kind = type(value)
    if not is_subclass(kind, dt.datetime):
        return dt.date.isoformat(value if kind is dt.date else dt.date(*_numbers(dt.date, value, _DATE_FIELDS)))
    zone = dt.datetime.tzinfo.__get__(value)
    if is_one_of(type(zone), _SAFE_ZONES):
        return dt.datetime.isoformat(value)
    year, month, day, hour, minute, second, microsecond = _numbers(dt.datetime, value, _DATE_FIELDS + _TIME_FIELDS)
    text = dt.datetime(year, month, day, hour, minute, second, microsecond).isoformat()  # noqa: DTZ001 - named beside it
    return f"{text} ({class_name(type(zone))})"


def _read_time(value: Any, room: int, deep: bool) -> Any:
    zone = dt.time.tzinfo.__get__(value)
    hour, minute, second, microsecond = _numbers(dt.time, value, _TIME_FIELDS)
    text = dt.time(hour, minute, second, microsecond).isoformat()
    return text if zone is None else f"{text} ({class_name(type(zone))})"


def _numbers(base: type, value: Any, names: tuple[str, ...]) -> list[int]:
    return [getattr(base, name).__get__(value) for name in names]


def _read_named_tuple(names: tuple[str, ...]) -> Reader:
    return lambda value, room, deep: dict(zip(names, tuple.__iter__(value)))  # noqa: B905 - a subclass may have more


def _read_user_collection(value: Any, room: int, deep: bool) -> Any:
    # `collections.UserDict`, `UserList` and `UserString` wrap `data`.
    return Substitute(fields_of(value).get("data"))


def _read_fraction(value: Any, room: int, deep: bool) -> Any:
    # `str` of a long integer takes quadratic time.
    numerator, denominator = (integer_text(_slot(fractions.Fraction, name, value)) for name in _FRACTION_FIELDS)
    return numerator if denominator == "1" else f"{numerator}/{denominator}"


def _slot(kind: type, name: str, value: Any) -> Any:
    return kind.__dict__[name].__get__(value)


def _read_range(value: range, room: int, deep: bool) -> Any:
    start, stop, step = map(integer_text, (value.start, value.stop, value.step))
    return f"range({start}, {stop})" if step == "1" else f"range({start}, {stop}, {step})"


def _read_image(value: Any, room: int, deep: bool) -> Any:
    fields = fields_of(value)
    size = fields.get("_size", fields.get("size"))
    return {
        "type": class_name(type(value)),
        "mode": fields.get("_mode", fields.get("mode")),
        "size": list(size) if type(size) is tuple else None,
    }


def _read_omegaconf(value: Any, room: int, deep: bool) -> Any:
    # The raw nodes: resolving interpolations calls code.
    fields = fields_of(value)
    return Substitute(fields.get("_content", fields.get("_val")))


_DICT_VIEWS: Final = tuple(type(getattr({}, name)()) for name in ("keys", "values", "items"))
_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)

_EXACT: Final[dict[type, Reader]] = {
    uuid.UUID: _by(uuid.UUID.__str__),
    decimal.Decimal: _by(str),
    fractions.Fraction: _read_fraction,
    dt.timedelta: _by(str),
    range: _read_range,
    type(...): _by(repr),
    **{kind: _items_by(iter, len) for kind in _DICT_VIEWS},
}
"""Types whose subclasses need no reader."""

_BASES: Final[tuple[tuple[type, Reader], ...]] = (
    (enum.Enum, _read_enum),
    (str, _by(str.__str__)),
    (int, _by(int.__int__)),
    (float, _by(float.__float__)),
    (complex, _by(complex.__repr__)),
    (dict, _read_dict),
    (list, _items_by(list.__iter__, list.__len__)),
    (tuple, _items_by(tuple.__iter__, tuple.__len__)),
    (set, _items_by(set.__iter__, set.__len__)),
    (frozenset, _items_by(frozenset.__iter__, frozenset.__len__)),
    (collections.deque, _items_by(collections.deque.__iter__, collections.deque.__len__)),
    (array, _items_by(array.__iter__, array.__len__)),
    (bytes, _read_bytes),
    (bytearray, _read_bytes),
    (memoryview, _read_bytes),
    (dt.date, _read_date),
    (dt.time, _read_time),
    (BaseException, _by(exception_text)),
    (type, _by(class_name)),
    *((kind, _read_function) for kind in _FUNCTIONS),
    (types.ModuleType, _by(lambda module: f"<{class_name(type(module))}>")),
    (collections.UserDict, _read_user_collection),
    (collections.UserList, _read_user_collection),
    (collections.UserString, _read_user_collection),
)
"""The first base of a class counts."""


@per_class
def reader_of(kind: type) -> Reader:
    """Return the reader of a class's values."""
    if find_static(kind, "__rollout_payload__") is not None:
        return _user_payload
    reader = _EXACT.get(kind) if is_one_of(kind, _EXACT) else None
    try:
        return reader or _reader_by_package(kind) or _reader_by_base(kind) or object_reader(kind)
    except FAULTS as error:
        if not is_our_fault(error):
            raise
        name = class_name(kind)
        internal_error(f"reading the class {name}")
        return lambda value, room, deep: f"<{name}>"


def key_of(key: Any) -> Any:
    """Return plain data with a hash for any key of a dict."""
    kind = type(key)
    if is_one_of(kind, (str, *_SCALARS)):
        return key
    if kind is tuple or kind is frozenset:
        return kind(map(key_of, key))
    read = reader_of(kind)(key, 0, False)  # a reader takes its arguments by position
    if type(read) is Substitute:
        read = read.value
    return read if is_one_of(type(read), (str, *_SCALARS)) else f"<{class_name(kind)}>"


def _user_payload(value: Any, room: int, deep: bool) -> Any:
    def method() -> Any:
        # Looked up within the guard: it may be a property.
        return value.__rollout_payload__()

    return Substitute(call_user_function("__rollout_payload__", method))


def _reader_by_base(kind: type) -> Reader | None:
    if is_subclass(kind, tuple):
        names = find_static(kind, "_fields")
        if type(names) is tuple and all(type(name) is str for name in names):
            return _read_named_tuple(names)
    if is_subclass(kind, pathlib.PurePath) and module_of(kind) == "pathlib":
        return _by(str)
    return next((reader for base, reader in _BASES if is_subclass(kind, base)), None)


def _costly(read: Any) -> Reader:
    read.cost = COST_OF_AN_ARRAY
    return cast("Reader", read)


def _reader_by_package(kind: type) -> Reader | None:
    numpy = sys.modules.get("numpy")
    if numpy is not None and is_subclass(kind, numpy.generic):
        return read_numpy(numpy)
    if numpy is not None and is_subclass(kind, numpy.ndarray):
        return _costly(read_numpy(numpy))
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "nn") and is_subclass(kind, torch.Tensor):
        return _costly(read_torch(torch))
    package = module_of(kind)
    if package == "pandas":
        from otel_rollout.record.table_types import read_pandas

        return read_pandas
    if package == "PIL" and kind.__name__.endswith("Image"):
        return _read_image
    if package == "omegaconf":
        return _read_omegaconf
    if package == "torch" and kind.__qualname__ == "dtype":
        return _by(repr)
    return None
