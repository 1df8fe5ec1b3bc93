"""The reader of tables and columns of pandas, from the arrays that they hold.

No function of pandas is called: they are Python code, and drop exceptions of signal handlers that come meanwhile.
"""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any, Final

from otel_rollout.record.array_types import read_elements
from otel_rollout.record.object_reading import class_name, fields_of, find_static, is_one_of, is_subclass
from otel_rollout.text.sanitize import integer_text

MAX_ROWS: Final = 8
"""First rows that are shown."""
MAX_COLUMNS: Final = 100
"""Columns that are shown."""
MAX_DEPTH: Final = 4
COST: Final = 160
"""The cost of a table, in items of a container."""


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
    columns = _array_in(axes[0])
    names = [_label(name) for name in _head(columns, MAX_COLUMNS)] if columns is not None else []
    described["columns"] = names or [str(number) for number in range(min(described["shape"][1], MAX_COLUMNS))]
    return {**described, "head": _rows(blocks, described["shape"])}


def _series(array: Any) -> dict[str, Any]:
    if _is_arrow(array):
        return {"shape": [len(array)], "dtype": str(array.type), "head": _head(array)}
    return {"shape": list(array.shape), "dtype": str(array.dtype), "head": _head(array)}


def _label(name: Any) -> str:
    """Return the text of a column's name: any object may be one."""
    kind = type(name)
    if kind is int:
        return integer_text(name)
    return str(name) if is_one_of(kind, (str, float, bool, type(None))) else f"<{class_name(kind)}>"


def _rows(blocks: tuple[Any, ...], shape: list[int]) -> list[list[Any]]:
    """Return the first rows of a frame; cells of an unknown form are the class of their array."""
    width = min(shape[1], MAX_COLUMNS)
    rows: list[list[Any]] = [[None] * width for _ in range(min(shape[0], MAX_ROWS))]
    for block in blocks:
        held = _member(block, "values")
        array, places = _array_in(held), _member(_member(block, "_mgr_locs"), "as_array")
        for position, place in enumerate([] if places is None else places.tolist()):
            # Beyond the shape's: the frame is changed meanwhile.
            if place >= width:
                continue
            unknown = [f"<{class_name(type(held))}>"] * len(rows)
            cells = (
                unknown if array is None else _head(array if _is_arrow(array) or array.ndim == 1 else array[position])
            )
            for row, cell in zip(rows, cells, strict=False):
                row[place] = cell
    return rows


def _member(value: Any, name: str) -> Any:
    """Return a member of an object of an extension module: none of Python's code runs for it."""
    member = find_static(type(value), name)
    is_of_extension = type(member).__name__ in ("getset_descriptor", "member_descriptor")
    return member.__get__(value) if is_of_extension else fields_of(value).get(name)


def _array_in(value: Any, depth: int = 0) -> Any:
    """Return the array of numpy or Arrow in an index, a series or an extension array; None if there is none."""
    numpy = sys.modules["numpy"]
    if type(value) is numpy.ndarray or _is_arrow(value):
        return value
    if value is None or depth > MAX_DEPTH or type(value).__qualname__ == "Categorical":
        # A categorical holds the numbers of its values.
        return None
    fields = fields_of(value)
    held = next(
        (fields[name] for name in ("_ndarray", "_data", "_codes", "values", "_pa_array") if name in fields), None
    )
    held = _member(value, "_ndarray") if held is None else held
    return _array_in(held, depth + 1)


def _length(axis: Any) -> int:
    held = fields_of(axis).get("_range")
    if type(held) is range:
        return len(held)
    array = _array_in(axis)
    return 0 if array is None else len(array)


def _is_arrow(value: Any) -> bool:
    """Return True for the column that pandas keeps texts in where pyarrow is installed."""
    arrow = sys.modules.get("pyarrow.lib")
    return arrow is not None and type(value) is arrow.ChunkedArray


def _head(array: Any, count: int = MAX_ROWS) -> list[Any]:
    if _is_arrow(array):
        return list(array.slice(0, count).to_pylist())
    items = read_elements(sys.modules["numpy"], array[:count])
    return items if type(items) is list else [items]


read_pandas.cost = COST  # type: ignore[attr-defined]  # for `ObjectWalk`
