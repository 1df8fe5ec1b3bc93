"""The shape of a trajectory, read on first use from the flat lists of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, overload

import orjson

from otel_rollout.facts.figures import COLUMNS, KINDS, MAX_SHAPES, NO_COLUMNS, SpanRow
from otel_rollout.facts.table import SpanShape
from otel_rollout.text.sanitize import INT64_MAX

Place: TypeAlias = tuple[str, str, int, int, int, int]
_ID_DIGITS: Final = 16
_UINT32_MAX: Final = 2**32 - 1
_MAX_CACHED: Final = 64


class Shapes(Sequence[SpanShape]):
    """The spans by start, as `SpanShape`s made on access: keeping them would take ten times the memory.

    Args:
        columns: As `shape_columns` returns them, or their JSON.
        otherwise: Returns them from the spans if the JSON has another form; without it, there are no spans then.

    Raises:
        ValueError: They are of another form, and no JSON.
    """

    __slots__ = ("_given", "_otherwise")

    def __init__(
        self, columns: Mapping[str, Any] | bytes, otherwise: Callable[[], Mapping[str, Any]] | None = None
    ) -> None:
        if not isinstance(columns, bytes):
            _check(columns)
        self._given = columns
        self._otherwise = otherwise

    @property
    def columns(self) -> Mapping[str, Any]:
        """The columns, as `shape_columns` returns them."""
        if not isinstance(self._given, bytes):
            return self._given
        parsed = _parsed(self._given)
        if parsed is None:
            parsed = self._given = NO_COLUMNS if self._otherwise is None else self._otherwise()
        return parsed

    def __len__(self) -> int:
        return len(self.columns["spans"][0])

    @overload
    def __getitem__(self, position: int) -> SpanShape: ...
    @overload
    def __getitem__(self, position: slice) -> Sequence[SpanShape]: ...
    def __getitem__(self, position: int | slice) -> SpanShape | Sequence[SpanShape]:
        return self._all()[position]

    def __iter__(self) -> Iterator[SpanShape]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._all())

    def places(self) -> Iterator[Place]:
        """Yield the first six fields of each `SpanShape`."""
        columns = self.columns
        names = columns["names"]
        for name, kind, offset, duration, status, at in zip(*columns["spans"][:6], strict=True):
            yield names[name], KINDS[kind], offset, duration, status, at

    def rows(self, start: int, names: dict[str, int]) -> Iterator[SpanRow]:
        """Yield the rows that the shapes were made of.

        Args:
            start: The trajectory's start in microseconds.
            names: The positions of names that other rows refer to; the names of the shapes are added.
        """
        own = [names.setdefault(name, len(names)) for name in self.columns["names"]]
        ids, parents = self._ids(), self._parents()
        for span_id, parent, numbers in zip(ids, parents, self._spans(), strict=True):
            name, kind, offset, duration, status, _, content, call, asked, answered = numbers
            begin = start + offset
            yield begin, begin + duration, span_id, parent, content, call, asked, answered, own[name], kind, status

    def _all(self) -> tuple[SpanShape, ...]:
        columns = self.columns
        names = columns["names"]
        return tuple(
            SpanShape(
                names[name],
                KINDS[kind],
                offset,
                duration,
                status,
                at,
                f"{span_id:016x}",
                f"{parent:016x}" if parent else "",
                f"{content:08x}" if content else "",
                f"{call:08x}" if call else "",
                None if asked < 0 else asked,
                None if answered < 0 else answered,
            )
            for span_id, parent, (name, kind, offset, duration, status, at, content, call, asked, answered) in zip(
                self._ids(), self._parents(), self._spans(), strict=True
            )
        )

    def _spans(self) -> Iterator[tuple[int, ...]]:
        return zip(*self.columns["spans"], strict=True)

    def _ids(self) -> list[int]:
        ids = self.columns["ids"]
        return [int(ids[at : at + _ID_DIGITS], 16) for at in range(0, len(ids), _ID_DIGITS)]

    def _parents(self) -> list[int]:
        ids = self._ids()
        elsewhere = self.columns.get("parents", ())
        known = dict(zip(elsewhere[::2], elsewhere[1::2], strict=True))
        positions = self.columns["spans"][5]
        return [
            ids[position] if position >= 0 else int(known.get(own, "0"), 16) for own, position in enumerate(positions)
        ]


def places_of(shape: Sequence[SpanShape]) -> list[Place]:
    """Return the first six fields of each `SpanShape`; of `Shapes`, without making its ids."""
    return list(shape.places() if isinstance(shape, Shapes) else (each[:6] for each in shape))


@lru_cache(_MAX_CACHED)
def _parsed(columns: bytes) -> Mapping[str, Any] | None:
    """Return parsed columns; None if they are of another program or version."""
    try:
        parsed: Mapping[str, Any] = orjson.loads(columns)
        _check(parsed)
    except ValueError:
        return None
    return parsed


def _check(columns: Any) -> None:
    """Check the form of columns, which another program may have written."""
    try:
        names, ids, spans = columns["names"], columns["ids"], columns["spans"]
        elsewhere = columns.get("parents", [])
        if type(names) is not list or type(spans) is not list or type(elsewhere) is not list or type(ids) is not str:
            raise ValueError("a field has another type")
        if len(spans) != COLUMNS or not set(map(type, spans)) <= {list, tuple}:
            raise ValueError("a column is missing")
        count = len(spans[0])
        if count > MAX_SHAPES or set(map(len, spans)) != {count} or len(ids) != _ID_DIGITS * count:
            raise ValueError("spans are missing")
        if count == 0:
            return
        if len(bytes.fromhex(ids)) * 2 != len(ids):
            raise ValueError("an id has another form")
        if any(set(map(type, column)) != {int} for column in spans) or set(map(type, names)) != {str}:
            raise ValueError("a field has another type")
        bounds = (len(names) - 1, len(KINDS) - 1, INT64_MAX, INT64_MAX, 2, count - 1, _UINT32_MAX, _UINT32_MAX)
        lowest = (0, 0, 0, 0, 0, -1, 0, 0, -1, -1)
        for first, (low, column) in enumerate(zip(lowest, spans, strict=True)):
            if min(column) < low or (first < len(bounds) and max(column) > bounds[first]):
                raise ValueError("a number is out of range")
        if not all(type(each) is int for each in elsewhere[::2]) or not all(
            type(each) is str and len(each) == _ID_DIGITS and bytes.fromhex(each) for each in elsewhere[1::2]
        ):
            raise ValueError("a parent has another type")
        if len(elsewhere) % 2:
            raise ValueError("a parent is missing")
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError("no shape") from error
