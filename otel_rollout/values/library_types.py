"""Readers of the standard library's types, and of numpy, torch, PIL, pandas and OmegaConf.

A reader calls the functions of the type that it knows, never the value's own methods: a subclass may override them.
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
from typing import Any, Final

from otel_rollout.safety.log_once import call_user_function
from otel_rollout.safety.signal_handlers import is_from_signal_handler
from otel_rollout.values.exception_record import exception_text
from otel_rollout.values.object_reading import (
    Reader,
    Standin,
    class_name,
    fields_of,
    find_static,
    integer_text,
    is_one_of,
    is_subclass,
    module_of,
    object_reader,
    per_class,
)

__all__ = ["key_text", "reader_of"]

MAX_ARRAY_ELEMENTS: Final = 1024
"""Arrays and tensors with more elements are summarized, except for one-dimensional integer ones (token ids)."""
ARRAY_EDGE_ELEMENTS: Final = 8
MAX_COLUMNS: Final = 100
"""Columns of a table that are shown."""
_SCALARS: Final = (int, float, bool, type(None))
_LEAVES: Final = (str, *_SCALARS, dt.datetime, dt.date, dt.time, uuid.UUID)

_SAFE_ZONES: Final = (type(None), dt.timezone, zoneinfo.ZoneInfo)
"""Other time zones compute their offset by code of their class."""
_DATE_FIELDS: Final = ("year", "month", "day")
_TIME_FIELDS: Final = ("hour", "minute", "second", "microsecond")


def _as_it_is(value: Any, room: int, deep: bool) -> Any:
    return value


def _by(convert: Callable[[Any], Any]) -> Reader:
    return lambda value, room, deep: convert(value)


def _items_by(iterate: Callable[[Any], Any], length: Callable[[Any], int]) -> Reader:
    """Return a reader of a collection that calls a standard class's functions."""

    def read(value: Any, room: int, deep: bool) -> Any:
        items = [*islice(iterate(value), max(room, 0))]
        left = length(value) - len(items)
        return [*items, f"…[{left:,} items cut]"] if left > 0 else items

    return read


def _read_dict(value: Any, room: int, deep: bool) -> Any:
    copied = {key_text(key): item for key, item in [*islice(dict.items(value), max(room, 0))]}
    left = dict.__len__(value) - len(copied)
    return {**copied, "…": f"[{left:,} keys cut]"} if left > 0 else copied


def _read_bytes(value: bytes | bytearray | memoryview, room: int, deep: bool) -> dict[str, Any]:
    base: Any = next(known for known in (bytes, bytearray, memoryview) if is_subclass(type(value), known))
    # A view of a subclass would call its `__buffer__`.
    plain: Any = value if base is memoryview else base.__getitem__(value, slice(0, ARRAY_EDGE_ELEMENTS))
    view = memoryview(plain)
    length = view.nbytes if base is memoryview else base.__len__(value)
    described: dict[str, Any] = {"type": base.__name__, "length": length}
    if view.c_contiguous and view.nbytes:
        described["head"] = view.cast("B")[:ARRAY_EDGE_ELEMENTS].hex()
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
    if kind is dt.date:
        return value
    if not is_subclass(kind, dt.datetime):
        return dt.date(*_numbers(dt.date, value, _DATE_FIELDS)).isoformat()
    zone = dt.datetime.tzinfo.__get__(value)
    if is_one_of(type(zone), _SAFE_ZONES):
        return value if kind is dt.datetime else dt.datetime.isoformat(value)
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
    return Standin(fields_of(value).get("data"))


def _read_numpy(numpy: Any) -> Reader:
    def read(value: Any, room: int, deep: bool) -> Any:
        if is_subclass(type(value), numpy.generic):
            return _read_numpy_scalar(numpy, value)
        if type(value) is numpy.ma.MaskedArray:
            return value.tolist() if value.size <= MAX_ARRAY_ELEMENTS else _array_summary(numpy, value)
        return _read_array(numpy, value, room)

    return read


def _read_numpy_scalar(numpy: Any, value: Any) -> Any:
    kind = value.dtype.kind
    if kind in "mM":
        # `item()` of one in nanoseconds would be a bare number.
        return numpy.array(value).astype(str).item()
    item = numpy.generic.item(value)
    if isinstance(item, numpy.generic):
        # `longdouble` and `clongdouble` are wider than Python's numbers.
        return float(item) if kind == "f" else complex.__repr__(complex(item))
    return complex.__repr__(item) if type(item) is complex else Standin(item)


def _read_array(numpy: Any, value: Any, room: int) -> Any:
    size, kind = numpy.ndarray.size.__get__(value), numpy.ndarray.dtype.__get__(value).kind
    shape = numpy.ndarray.shape.__get__(value)
    is_ids = len(shape) == 1 and kind in "iu" and size <= room
    if size > MAX_ARRAY_ELEMENTS and not is_ids:
        return _array_summary(numpy, value)
    if kind in "iufb" and shape:
        # A private copy, which orjson writes on the delivery thread; it knows neither longdouble nor half.
        copied = numpy.array(value, copy=True, order="C", subok=False)
        if not copied.dtype.isnative:
            copied = copied.astype(copied.dtype.newbyteorder("="))
        if copied.dtype.itemsize in (1, 2, 4, 8):
            return copied
        return copied.astype(numpy.float64)
    return Standin(_elements(numpy, value))


def _elements(numpy: Any, value: Any) -> Any:
    plain = numpy.asarray(value) if type(value) is numpy.ndarray else numpy.array(value, subok=False)
    return (plain.astype(str) if plain.dtype.kind in "mM" else plain).tolist()


def _array_summary(numpy: Any, value: Any) -> dict[str, Any]:
    plain = value if type(value) is numpy.ndarray else numpy.ndarray.view(value, numpy.ndarray)
    flat = plain.ravel(order="K") if plain.flags.forc else plain.flat
    return {
        "type": class_name(type(value)),
        "dtype": str(plain.dtype),
        "shape": list(plain.shape),
        "head": _elements(numpy, flat[:ARRAY_EDGE_ELEMENTS]),
        "tail": _elements(numpy, flat[-ARRAY_EDGE_ELEMENTS:]),
    }


def _read_torch(torch: Any) -> Reader:
    def read(value: Any, room: int, deep: bool) -> Any:
        kind = type(value)
        if kind is not torch.Tensor and kind is not torch.nn.Parameter:
            # A subclass may override any function (`__torch_function__`), and may be spread over machines.
            return f"<{class_name(kind)}>"
        dtype = str(value.dtype).removeprefix("torch.")
        if (
            value.device.type != "cpu"
            or value.layout is not torch.strided
            or value.is_quantized
            or value.is_nested
            or value.dtype.is_complex
        ):
            # Reading a tensor on an accelerator would wait for all work queued before it.
            shape = None if value.is_nested else [int(length) for length in value.shape]
            return {"type": class_name(kind), "dtype": dtype, "shape": shape, "device": str(value.device)}
        value = value.detach()
        count = value.numel()
        is_ids = value.dim() == 1 and not value.dtype.is_floating_point and count <= room
        if count <= MAX_ARRAY_ELEMENTS or is_ids:
            try:
                return _read_array(sys.modules["numpy"], value.numpy(), room) if value.dim() else value.item()
            except (KeyError, TypeError, RuntimeError) as error:
                if is_from_signal_handler(error):
                    raise
                # numpy has no bfloat16, and may be absent.
                return value.tolist()
        if value.is_contiguous():
            first = last = value.reshape(-1)
        else:
            first, last = value[(0,) * (value.dim() - 1)], value[(-1,) * (value.dim() - 1)]
        return {
            "type": "torch.Tensor",
            "dtype": dtype,
            "shape": list(value.shape),
            "head": first[:ARRAY_EDGE_ELEMENTS].tolist(),
            "tail": last[-ARRAY_EDGE_ELEMENTS:].tolist(),
        }

    return read


def _read_pandas(value: Any, room: int, deep: bool) -> Any:
    cls = type(value)
    kind = f"pandas.{cls.__qualname__}"
    if hasattr(cls, "columns"):
        return {
            "type": kind,
            "shape": list(value.shape),
            "columns": [key_text(column) for column in islice(value.columns, MAX_COLUMNS)],
            "head": value.iloc[:ARRAY_EDGE_ELEMENTS, :MAX_COLUMNS].astype(object).to_numpy().tolist(),
        }
    if hasattr(cls, "dtype") and hasattr(cls, "tolist"):
        head = (value.iloc if hasattr(cls, "iloc") else value)[:ARRAY_EDGE_ELEMENTS].tolist()
        return {"type": kind, "shape": list(value.shape), "dtype": str(value.dtype), "head": head}
    return value.isoformat() if hasattr(cls, "isoformat") else f"<{class_name(cls)}>"


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
    return Standin(fields.get("_content", fields.get("_val")))


_DICT_VIEWS: Final = tuple(type(getattr({}, name)()) for name in ("keys", "values", "items"))
_FUNCTIONS: Final = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)

_EXACT: Final[dict[type, Reader]] = {
    uuid.UUID: _as_it_is,
    decimal.Decimal: _by(str),
    fractions.Fraction: _by(str),
    dt.timedelta: _by(str),
    range: _by(repr),
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
    return reader or _reader_by_package(kind) or _reader_by_base(kind) or object_reader(kind)


def key_text(key: Any) -> str:
    """Return the JSON key for any key of a dict."""
    kind = type(key)
    if kind is str:
        return key  # type: ignore[no-any-return]  # just checked
    if kind is int:
        return integer_text(key)
    if key is None or kind is bool:
        return "null" if key is None else "true" if key else "false"
    if kind is float:
        return repr(key)
    read = reader_of(kind)(key, 0, False)  # a reader takes its arguments by position
    if type(read) is Standin:
        read = read.value
    if not is_one_of(type(read), _LEAVES):
        return f"<{class_name(kind)}>"
    return read if type(read) is str else key_text(read) if type(read) in _SCALARS else str(read)


def _user_payload(value: Any, room: int, deep: bool) -> Any:
    def method() -> Any:
        # Looked up within the guard: it may be a property.
        return value.__rollout_payload__()

    return Standin(call_user_function("__rollout_payload__", method))


def _reader_by_base(kind: type) -> Reader | None:
    if is_subclass(kind, tuple):
        names = find_static(kind, "_fields")
        if type(names) is tuple and all(type(name) is str for name in names):
            return _read_named_tuple(names)
    if is_subclass(kind, pathlib.PurePath) and module_of(kind) == "pathlib":
        return _by(str)
    return next((reader for base, reader in _BASES if is_subclass(kind, base)), None)


def _reader_by_package(kind: type) -> Reader | None:
    numpy = sys.modules.get("numpy")
    if numpy is not None and (is_subclass(kind, numpy.ndarray) or is_subclass(kind, numpy.generic)):
        return _read_numpy(numpy)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "nn") and is_subclass(kind, torch.Tensor):
        return _read_torch(torch)
    package = module_of(kind)
    if package == "pandas":
        return _read_pandas
    if package == "PIL" and kind.__name__.endswith("Image"):
        return _read_image
    if package == "omegaconf":
        return _read_omegaconf
    if package == "torch" and kind.__qualname__ == "dtype":
        return _by(repr)
    return None
