"""Dataclasses and named tuples as JSON, and back by their type hints: another program may have written it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN

Each = TypeVar("Each")
Reader: TypeAlias = Callable[[Any], Any]
_BOUNDS: Final[Mapping[Any, tuple[float, float]]] = {
    int: (INT64_MIN, INT64_MAX),
    float: (-sys.float_info.max, sys.float_info.max),
}
"""The bounds of numbers whose hint has none."""


def to_json(value: Any) -> bytes:
    """Return dataclasses and named tuples, or lists and objects of them, as JSON; each is an object with its names."""
    return orjson.dumps(value, default=_as_object)


def _as_object(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, Sequence):
        return tuple(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def from_json(kind: type[Each], fields: Mapping[str, Any]) -> Each:
    """Return a dataclass from parsed JSON, in which named tuples are arrays.

    Raises:
        TypeError: A field is missing.
        ValueError: A field is unknown, has another type or length, or is out of range.
    """
    record: Any = kind
    readers = readers_of(record)
    return kind(**{name: readers.get(name, _refuse)(value) for name, value in fields.items()})


@lru_cache(None)
def readers_of(kind: type) -> Mapping[str, Reader]:
    """Return a function for each field of a class, which reads it from parsed JSON; it raises ValueError."""
    return {name: _reader_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


@lru_cache(None)
def _reader_of(hint: Any) -> Reader:
    by_type = _readers(hint)
    return lambda value: by_type.get(type(value), _refuse)(value)


@lru_cache(None)
def _readers(hint: Any) -> Mapping[type, Reader]:
    """Return the functions that read values of a hint, by their types in JSON."""
    origin, given = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return {kind: read for each in given for kind, read in _readers(each).items()}
    plain, bounds = given if origin is Annotated else (hint, _BOUNDS.get(hint))
    if bounds is not None:
        # JSON has integers for floats.
        return dict.fromkeys((int, plain), _within(*bounds))
    if hint in (str, bool, NoneType):
        return {hint: lambda value: value}
    if origin is Mapping:
        read_item = _reader_of(given[1])
        return {dict: lambda value: {key: read_item(item) for key, item in value.items()}}
    if given and (len(given) == 1 or given[1] is ...):
        read_each = _reader_of(given[0])
        return {list: lambda value: tuple(map(read_each, value))}
    readers = [_reader_of(each) for each in given] or [*readers_of(hint).values()]
    make: Reader = getattr(hint, "_make", tuple)
    return {list: lambda value: make([read(item) for read, item in zip(readers, value, strict=True)])}


def _refuse(value: Any) -> Any:
    raise ValueError(f"{value!r:.40} has another type")


def _within(least: float, most: float) -> Reader:
    def read(value: Any) -> Any:
        if least <= value <= most:
            return value
        raise ValueError(f"{value!r:.40} is out of range")

    return read
