"""Validates summaries that are read from a file; another program may have written it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, get_args, get_origin, get_type_hints

__all__ = ["check_fields"]

_Check: TypeAlias = Callable[[Any], bool]
_known: dict[type, tuple[tuple[str, _Check], ...]] = {}


def check_fields(summary: Any) -> None:
    """Check a summary's fields: each has its declared type, and each number is finite.

    Args:
        summary: A dataclass or a named tuple.

    Raises:
        TypeError: A field has another type.
    """
    for name, check in _checks_of(type(summary)):
        if not check(getattr(summary, name)):
            raise TypeError(f"{name} has another type")


def _checks_of(kind: type) -> tuple[tuple[str, _Check], ...]:
    if (checks := _known.get(kind)) is None:
        checks = _known[kind] = tuple((name, _check_of(hint)) for name, hint in get_type_hints(kind).items())
    return checks


def _check_of(hint: Any) -> _Check:
    origin, arguments = get_origin(hint), get_args(hint)
    if (types := _types_of(hint)) is not None:
        if float not in types:
            return lambda value: type(value) in types
        return lambda value: type(value) in types and (type(value) is not float or math.isfinite(value))
    if origin is UnionType:
        checks = tuple(map(_check_of, arguments))
        return lambda value: any(check(value) for check in checks)
    if origin is tuple:
        types_of_items, check_item = _types_of(arguments[0]), _check_of(arguments[0])
        if types_of_items is not None and float not in types_of_items:
            return lambda value: type(value) is tuple and types_of_items.issuperset(map(type, value))
        return lambda value: type(value) is tuple and all(map(check_item, value))
    if origin is Mapping:
        check_value = _check_of(arguments[1])
        return lambda value: type(value) is dict and all(map(check_value, value.values()))
    return lambda value: (
        type(value) is hint and all(check(getattr(value, name)) for name, check in _checks_of(type(value)))
    )


def _types_of(hint: Any) -> frozenset[type] | None:
    """Return the types of a scalar, or of several; None if it is something else. JSON has integers for floats."""
    kinds = get_args(hint) if get_origin(hint) is UnionType else (hint,)
    return frozenset((*kinds, int) if float in kinds else kinds) if _SCALARS.issuperset(kinds) else None


_SCALARS: Final = frozenset((NoneType, bool, int, float, str))
