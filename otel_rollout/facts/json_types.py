"""Dataclasses and named tuples as JSON, and back by their type hints: another program may have written it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import orjson

from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN

Each = TypeVar("Each")
Reader: TypeAlias = Callable[[Any], Any]
Bounds: TypeAlias = tuple[float, float]


_SCALARS: Final[Mapping[Any, Bounds | None]] = {
    NoneType: None,
    bool: None,
    str: None,
    int: (INT64_MIN, INT64_MAX),
    float: (-sys.float_info.max, sys.float_info.max),
}
"""The types of JSON, with the bounds that a number has without an annotation of its own."""
_NEVER: Final = (1, 0)


def to_json(value: Any) -> bytes:
    """Return dataclasses and named tuples, or lists and objects of them, as JSON; each is an object with its names."""
    return orjson.dumps(value, default=_as_object)


def _as_object(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, Sequence):
        return tuple(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def from_json(kind: type[Each], fields: Any) -> Each:
    """Return a dataclass or a named tuple.

    Args:
        kind: Its class.
        fields: Its fields as parsed JSON: an object, or an array for a named tuple.

    Raises:
        TypeError: A field is missing or unknown, or has another type.
        ValueError: A number is out of range.
    """
    record: Any = kind
    found: Each = _record(record)(fields)
    return found


@lru_cache(None)
def readers_of(kind: type) -> Mapping[str, Reader]:
    """Return a function for each field of a class, which reads it from parsed JSON and raises as `from_json`."""
    return {name: _reader_of(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}


@lru_cache(None)
def _reader_of(hint: Any) -> Reader:
    """Return a function that returns a value of a type from parsed JSON, and raises as `from_json`."""
    kinds = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    if all((get_args(kind)[0] if get_origin(kind) is Annotated else kind) in _SCALARS for kind in kinds):
        return _scalar(kinds)
    if len(kinds) > 1:
        (inner,) = (kind for kind in kinds if kind is not NoneType)
        read_inner = _reader_of(inner)
        return lambda value: None if value is None else read_inner(value)
    arguments = get_args(hint)
    match get_origin(hint):
        case origin if origin is tuple and arguments[-1] is ...:
            return _tuple(_reader_of(arguments[0]), arguments[0] is str)
        case origin if origin is tuple:
            return _fixed(tuple(map(_reader_of, arguments)))
        case origin if origin is Sequence:
            return _tuple(_reader_of(arguments[0]), arguments[0] is str)
        case origin if origin is Mapping:
            return _mapping(_reader_of(arguments[1]))
    return _record(hint)


def _scalar(kinds: tuple[Any, ...]) -> Reader:
    bounds: dict[type, Bounds | None] = {}
    for kind in kinds:
        plain, *given = get_args(kind) if get_origin(kind) is Annotated else (kind,)
        bounds[plain] = given[0] if given else _SCALARS[plain]
    if float in bounds:
        # JSON has integers for floats.
        bounds.setdefault(int, bounds[float])

    find = bounds.get

    def read(value: Any) -> Any:
        bound = find(type(value), _NEVER)
        if bound is None or bound[0] <= value <= bound[1]:
            return value
        raise ValueError(f"{value!r:.40} is out of range, or has another type")

    return read


def _tuple(read_item: Reader, is_text: bool) -> Reader:
    def read(value: Any) -> Any:
        if type(value) not in (list, tuple):
            raise TypeError("no list")
        if is_text and set(map(type, value)) <= {str}:
            return tuple(value)
        return tuple(map(read_item, value))

    return read


def _fixed(readers: tuple[Reader, ...]) -> Reader:
    def read(value: Any) -> Any:
        if type(value) not in (list, tuple) or len(value) != len(readers):
            raise TypeError("no list of this length")
        return tuple([read(item) for read, item in zip(readers, value, strict=True)])

    return read


def _mapping(read_item: Reader) -> Reader:
    def read(value: Any) -> Any:
        if type(value) is not dict:
            raise TypeError("no object")
        return {key: read_item(item) for key, item in value.items()} if value else value

    return read


@lru_cache(None)
def _record(kind: Any) -> Reader:
    """Return the reader of a dataclass, which is an object in JSON, or of a named tuple, which may be an array too."""
    is_tuple = hasattr(kind, "_fields")
    if not is_dataclass(kind) and not is_tuple:
        raise TypeError(f"no reader for {kind}")

    readers = readers_of(kind)
    in_order = tuple(readers.values())
    types = list(get_type_hints(kind, include_extras=True).values())
    is_of_integers = is_tuple and set(types) == {int}

    def read(value: Any) -> Any:
        if type(value) in (list, tuple) and is_tuple:
            # Together, in a third of the time: most trajectories have some.
            if is_of_integers and [*map(type, value)] == types and INT64_MIN <= min(value) <= max(value) <= INT64_MAX:
                return kind(*value)
            if len(value) != len(in_order):
                raise TypeError(f"no {kind.__name__}")
            return kind(*[read(item) for read, item in zip(in_order, value, strict=True)])
        if type(value) is not dict or value.keys() != readers.keys():
            raise TypeError(f"no {kind.__name__}")
        return kind(**{name: read(value[name]) for name, read in readers.items()})

    return read
