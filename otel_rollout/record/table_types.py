"""The reader of tables and columns of pandas, from the arrays that they hold.

No function of pandas is called: they are Python code, and drop exceptions of signal handlers that come meanwhile. Nor
is one of pyarrow that makes values: they fail at dates beyond Python's, and run code of a program's own types.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from otel_rollout.record.array_types import read_elements
from otel_rollout.record.object_reading import class_name, fields_of, find_static, is_one_of, is_subclass
from otel_rollout.text.sanitize import integer_text

MAX_ROWS: Final = 8
"""First rows that are shown."""
MAX_COLUMNS: Final = 100
"""Columns that are shown."""
MAX_BLOCKS: Final = 1_000
"""Arrays of a frame that are looked at for these columns."""
MAX_LEVELS: Final = 8
"""Levels of columns' names that are shown."""
MAX_CELL_BYTES: Final = 16 * 1024
"""The bytes of a text of Arrow that are shown."""
MAX_DEPTH: Final = 4
_OF_NUMBERS: Final = frozenset({"Categorical", "PeriodArray"})
"""Arrays that hold the numbers of their values."""
COST: Final = 160
"""The cost of a table, in items of a container."""


class _Array(NamedTuple):
    """The values of a column, or of several.

    Args:
        values: An array of numpy, or one of Arrow in chunks.
        mask: An array that is true where a value is missing; None without one.
    """

    values: Any
    mask: Any


def read_pandas(value: Any, room: int, deep: bool) -> Any:
    """Return the content of a frame, a series or an index; of other objects of pandas, the class.

    Args:
        value: The object.
        room: Unused, as of each reader.
        deep: Unused.
    """
    kind = type(value)
    if kind.__qualname__ == "NaTType":
        return "NaT"
    if is_subclass(kind, dt.datetime):
        return dt.datetime.isoformat(value)
    if is_subclass(kind, dt.timedelta):
        return dt.timedelta.__str__(value)
    described: dict[str, Any] = {"type": f"pandas.{kind.__qualname__}"}
    manager = fields_of(value).get("_mgr")
    if manager is None:
        array = _array_in(value)
        if array is None:
            return f"<{class_name(kind)}>"
        return {**described, **_series(array)}
    axes, blocks = _member(manager, "axes"), _member(manager, "blocks")
    if type(axes) is not list or type(blocks) is not tuple:
        return f"<{class_name(kind)}>"
    described["shape"] = [*map(_length, reversed(axes))]
    if len(axes) == 1:
        array = _array_in(_member(blocks[0], "values")) if blocks else None
        if array is not None:
            described |= _series(array)
        return described
    described["columns"] = _names(axes[0]) or [str(at) for at in range(min(described["shape"][1], MAX_COLUMNS))]
    return {**described, "head": _rows(blocks, described["shape"])}


def _series(array: _Array) -> dict[str, Any]:
    values = array.values
    if not _is_arrow(values):
        return {"shape": list(values.shape), "dtype": str(values.dtype), "head": _cells(array)}
    head = {"head": _cells(array)} if _is_text(values) else {}
    # The text of another class can be long, or the program's.
    is_simple = type(values.type) is sys.modules["pyarrow.lib"].DataType
    return {"shape": [len(values)], "dtype": str(values.type) if is_simple else class_name(type(values.type)), **head}


def _names(axis: Any) -> list[str]:
    """Return the names of columns; empty if they are numbers in order."""
    held, levels = fields_of(axis).get("_range"), _levels(axis)
    if type(held) is range:
        return [*map(str, held[:MAX_COLUMNS])]
    if not levels:
        array = _array_in(axis)
        return [] if array is None else [_label(name) for name in _cells(array, count=MAX_COLUMNS)]
    named = []
    for codes, level in levels:
        array = _array_in(level)
        if array is not None:
            named.append(
                [_label(*_cells(array, code, 1)) if code >= 0 else "" for code in codes[:MAX_COLUMNS].tolist()]
            )
    return [" / ".join(names) for names in zip(*named, strict=False)]


def _levels(axis: Any) -> Sequence[tuple[Any, Any]]:
    """Return the levels of an index with several: the position of each value, and the values."""
    fields = fields_of(axis)
    codes, levels = fields.get("_codes"), fields.get("_levels")
    if codes is None or levels is None or not (is_subclass(type(codes), list) and is_subclass(type(levels), list)):
        return ()
    found = zip(list.__iter__(codes), list.__iter__(levels), strict=False)
    return [each for each, _ in zip(found, range(MAX_LEVELS), strict=False)]


def _label(name: Any) -> str:
    """Return the text of a column's name: any object may be one."""
    kind = type(name)
    if kind is int:
        return integer_text(name)
    return str(name) if is_one_of(kind, (str, float, bool, type(None))) else f"<{class_name(kind)}>"


def _rows(blocks: tuple[Any, ...], shape: list[int]) -> list[list[Any]]:
    """Return the first rows of a frame; cells of an unknown form are the class of their array."""
    width = min(shape[1], MAX_COLUMNS)
    rows: list[list[Any]] = [["…"] * width for _ in range(min(shape[0], MAX_ROWS))]
    found = 0
    for block in blocks[:MAX_BLOCKS]:
        if found >= width:
            break
        held = _member(block, "values")
        array, places = _array_in(held), _member(_member(block, "_mgr_locs"), "as_array")
        unknown = [f"<{class_name(type(held))}>"] * len(rows)
        # Those beyond the shape are of a frame that is changed meanwhile.
        for position in [] if places is None else (places < width).nonzero()[0].tolist():
            place = places[position].item()
            found += 1
            for row, cell in zip(rows, unknown if array is None else _column(array, position, unknown), strict=False):
                row[place] = cell
    return rows


def _column(array: _Array, position: int, unknown: list[Any]) -> list[Any]:
    if _is_arrow(array.values):
        return _cells(array) if _is_text(array.values) else unknown
    is_flat = array.values.ndim == 1
    return _cells(
        array if is_flat else _Array(array.values[position], None if array.mask is None else array.mask[position])
    )


def _member(value: Any, name: str) -> Any:
    """Return a member of an object of an extension module: none of Python's code runs for it."""
    member = find_static(type(value), name)
    is_of_extension = type(member).__name__ in ("getset_descriptor", "member_descriptor")
    return member.__get__(value) if is_of_extension else fields_of(value).get(name)


def _array_in(value: Any, depth: int = 0, *, is_counted: bool = False) -> _Array | None:
    """Return the array of numpy or Arrow in an index, a series or an extension array; None if there is none.

    Args:
        value: The object.
        depth: The number of objects around it.
        is_counted: Any array of the same length will do.
    """
    numpy = sys.modules["numpy"]
    if type(value) is numpy.ndarray or _is_arrow(value):
        return _Array(value, None)
    if value is None or depth > MAX_DEPTH or (not is_counted and type(value).__qualname__ in _OF_NUMBERS):
        return None
    fields = fields_of(value)
    names = ("_ndarray", "_data", "values", "_pa_array", *(("_codes", "_left") if is_counted else ()))
    held = next((fields[name] for name in names if name in fields), None)
    array = _array_in(_member(value, "_ndarray") if held is None else held, depth + 1, is_counted=is_counted)
    mask = fields.get("_mask")
    return array if array is None or type(mask) is not numpy.ndarray else array._replace(mask=mask)


def _length(axis: Any) -> int:
    held = fields_of(axis).get("_range")
    if type(held) is range:
        return len(held)
    if levels := _levels(axis):
        return len(levels[0][0])
    array = _array_in(axis, is_counted=True)
    return 0 if array is None else len(array.values)


def _is_arrow(value: Any) -> bool:
    """Return True for the column that pandas keeps texts in where pyarrow is installed."""
    arrow = sys.modules.get("pyarrow.lib")
    return arrow is not None and type(value) is arrow.ChunkedArray


def _is_text(column: Any) -> bool:
    arrow = sys.modules["pyarrow.lib"]
    return column.type.id in (arrow.Type_STRING, arrow.Type_LARGE_STRING)


def _cells(array: _Array, start: int = 0, count: int = MAX_ROWS) -> list[Any]:
    """Return values of a column."""
    if _is_arrow(array.values):
        return _texts(array.values, start, count) if _is_text(array.values) else []
    numpy, end = sys.modules["numpy"], start + count
    items = read_elements(numpy, array.values[start:end])
    items = items if type(items) is list else [items]
    if array.mask is None:
        return items
    return [None if gone else item for item, gone in zip(items, array.mask[start:end].tolist(), strict=False)]


def _texts(column: Any, start: int, count: int) -> list[str | None]:
    """Return texts of a column of Arrow.

    Source: https://arrow.apache.org/docs/format/Columnar.html#variable-size-binary-layout
    """
    numpy, arrow = sys.modules["numpy"], sys.modules["pyarrow.lib"]
    offset_type = numpy.int32 if column.type.id == arrow.Type_STRING else numpy.int64
    texts: list[str | None] = []
    for chunk in column.slice(start, count).chunks:
        validity, offsets, text = chunk.buffers()
        if not len(chunk):
            continue
        ends = numpy.frombuffer(offsets, offset_type, len(chunk) + 1, chunk.offset * offset_type().itemsize).tolist()
        for at in range(len(chunk)):
            bit = chunk.offset + at
            if validity is not None and not memoryview(validity)[bit >> 3] >> (bit & 7) & 1:
                texts.append(None)
                continue
            first, last = ends[at], ends[at + 1]
            shown = b"" if text is None else bytes(memoryview(text)[first : min(last, first + MAX_CELL_BYTES)])
            rest = f"… ({last - first:,} bytes)" if last - first > MAX_CELL_BYTES else ""
            texts.append(shown.decode("utf-8", "replace") + rest)
    return texts


read_pandas.cost = COST  # type: ignore[attr-defined]  # for `ObjectWalk`
