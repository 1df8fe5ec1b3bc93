"""One table of readers for values that aren't plain data, by the first known base of their class.

A reader calls the functions of the type that it is for, never the value's own methods, which a subclass may override.
"""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import fractions
import pathlib
import sys
import uuid
import zoneinfo
from array import array
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from otel_rollout.guard.log_once import call_user_function
from otel_rollout.guard.provenance import is_programs
from otel_rollout.record.exception_record import exception_text
from otel_rollout.record.fields import Part, class_name, fields_of, find_static, module_of, object_reader, per_class
from otel_rollout.text.plain_json import describe_bytes, key_text, with_text_keys

SCALARS: Final = frozenset((str, int, float, bool, type(None)))
MAX_ARRAY_ELEMENTS: Final = 1024
"""Arrays and tensors with more elements are summarized, except for one-dimensional integer ones (token ids)."""
MAX_IDS: Final = 128 * 1024
EDGE: Final = 8
"""The first and last elements of an array, the first rows of a table."""
MAX_COLUMNS: Final = 100
MAX_ITEMS: Final = 16 * 1024
"""The first items of a collection that are read."""
_SAFE_ZONES: Final = (type(None), dt.timezone, zoneinfo.ZoneInfo)
"""Other time zones compute their offset by code of their class."""


class Reader(NamedTuple):
    """Reads a class's values: as a scalar, a private dict, list or array, or another value, to be read in turn."""

    read: Callable[[Any], Any]
    cost: int = 32
    """The units of a call."""
    is_known: bool = True
    """False for a class that declares no fields, of which objects far down are only named."""
    is_leaf: bool = False
    """True if it returns scalars, as a rule."""


def _private(value: Any) -> Any:
    return value.copy() if type(value) in (dict, list) else value


def _read_own_payload(value: Any) -> Any:
    return _private(call_user_function("__rollout_payload__", type(value).__rollout_payload__, value))


def _field_by(*names: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        fields = fields_of(value)
        return next((_private(fields[name]) for name in names if name in fields), None)

    return read


def _items_by(base: Any) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        items = [*islice(base.__iter__(value), MAX_ITEMS)]
        cut = base.__len__(value) - len(items)
        return Part([*items, f"…[{cut:,} items cut]"], cut) if cut > 0 else items

    return read


def _read_subclass_of_dict(value: Any) -> Any:
    plain = with_plain_keys(dict(islice(dict.items(value), MAX_ITEMS)))
    cut = dict.__len__(value) - len(plain)
    return Part({**plain, "…": f"[{cut:,} keys cut]"}, cut) if cut > 0 else plain


def with_plain_keys(plain: dict[Any, Any]) -> dict[Any, Any]:
    """Return a private dict with plain data as keys: itself, if it has no others."""
    if {*map(type, plain)} <= SCALARS:
        return plain
    return with_text_keys([(plain_key(key), item) for key, item in plain.items()])


def plain_key(key: Any) -> Any:
    """Return plain data with a hash for any key of a dict."""
    kind = type(key)
    if kind in SCALARS:
        return key
    if kind is tuple or kind is frozenset:
        return key_text(kind(map(plain_key, key)))
    read = reader_of(kind).read(key)
    return read if type(read) in SCALARS else f"<{class_name(kind)}>"


def _read_bytes(value: Any) -> Any:
    base: Any = next(known for known in (bytes, bytearray, memoryview) if issubclass(type(value), known))
    if base is not memoryview:
        return describe_bytes(base.__name__, base.__getitem__(value, slice(0, EDGE)), base.__len__(value))
    try:
        head = value.cast("B")[:EDGE] if value.c_contiguous and value.nbytes else None
    except ValueError:
        return {"type": "memoryview", "released": True}
    described = {"type": "memoryview", "length": value.nbytes}
    return described if head is None else {**described, "head": head.hex()}


def _function_name(value: Any) -> Any:
    name = getattr(value, "__qualname__", None)
    return f"<{type(value).__name__} {name}>" if type(name) is str else f"<{type(value).__name__}>"


def _read_enum(value: Any) -> Any:
    fields = object.__getattribute__(value, "__dict__")
    held = fields.get("_value_")
    return held if type(held) in SCALARS else fields.get("_name_")


def _enum_reader(kind: Any) -> Reader:
    held = [fields_of(member).get("_value_") for member in kind.__dict__.get("_member_map_", {}).values()]
    is_usual = find_static(kind, "_value_") is None and kind.__getattribute__ is object.__getattribute__
    return Reader(attrgetter("_value_") if is_usual and {*map(type, held)} <= SCALARS else _read_enum, 4, is_leaf=True)


def _moment_by(base: Any) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        zone = base.tzinfo.__get__(value)
        if type(zone) in _SAFE_ZONES:
            return base.isoformat(value)  # type: ignore[no-any-return]
        return f"{base.isoformat(base.replace(value, tzinfo=None))} ({class_name(type(zone))})"

    return read


def _read_image(value: Any) -> Any:
    fields = fields_of(value)
    size = fields.get("_size", fields.get("size"))
    shown = list(size) if type(size) is tuple else None
    return {"type": class_name(type(value)), "mode": fields.get("_mode", fields.get("mode")), "size": shown}


def _read_pandas(value: Any) -> Any:
    name = type(value).__name__
    if module_of(type(value)) != "pandas":
        # A subclass may override any function.
        return f"<{class_name(type(value))}>"
    described: dict[str, Any] = {"type": f"pandas.{name}", "shape": [*value.shape]}
    if name != "DataFrame":
        head = value[:EDGE] if name.endswith("Index") else value.iloc[:EDGE]
        return {**described, "dtype": str(value.dtype), "head": _cells(head)}
    shown = value.iloc[:EDGE, :MAX_COLUMNS]
    cells = [_cells(shown.iloc[:, number]) for number in range(shown.shape[1])]
    return {**described, "columns": [*map(_label, shown.columns)], "head": [[*row] for row in zip(*cells, strict=True)]}


def _cells(column: Any) -> list[Any]:
    dtype = column.dtype
    try:
        # A cell of lists or dicts of Arrow has any number of items, which pyarrow would convert one by one.
        if dtype.kind != "O" or type(dtype).__name__ != "ArrowDtype":
            return column.tolist()  # type: ignore[no-any-return]
    except Exception as error:  # a date that Python has no place for, or bytes that are no text
        if is_programs(error):
            raise
    return [f"<{dtype}>"] * len(column)


def _label(name: Any) -> str:
    """Return the text of a column's name: any object may be one."""
    if type(name) is tuple:
        return " / ".join(map(_label, name))
    return str(name) if type(name) in SCALARS else f"<{class_name(type(name))}>"


def _numpy_scalar_reader(kind: type) -> Reader:
    dtype = sys.modules["numpy"].dtype(kind)
    plain = _NUMBERS.get(dtype.kind) if kind.__module__ == "numpy" and dtype.itemsize <= 8 else None
    return Reader(plain, 4, is_leaf=True) if plain else Reader(_read_numpy_scalar)


def _read_numpy_scalar(value: Any) -> Any:
    numpy, kind = sys.modules["numpy"], value.dtype.kind
    if kind in "mM":
        # `item()` of one in nanoseconds would be a bare number.
        return numpy.array(value).astype(str).item()
    item = numpy.generic.item(value)
    if isinstance(item, numpy.generic):
        # `longdouble` and `clongdouble` are wider than Python's numbers.
        return float(item) if kind == "f" else complex.__repr__(complex(item))
    return complex.__repr__(item) if type(item) is complex else item


def _read_array(value: Any) -> Any:
    numpy = sys.modules["numpy"]
    if type(value).__name__ == "MaskedArray" and value.size <= MAX_ARRAY_ELEMENTS:
        return value.tolist()
    plain = value if type(value) is numpy.ndarray else numpy.ndarray.view(value, numpy.ndarray)
    kind, size = plain.dtype.kind, plain.size
    if size > MAX_ARRAY_ELEMENTS and (plain.ndim != 1 or kind not in "iu" or size > MAX_IDS):
        return array_summary(value)
    if kind not in "iufb" or not plain.ndim:
        return _elements(plain)
    # A private copy, which orjson writes on the delivery thread; it supports neither longdouble nor half.
    copied = numpy.array(plain, copy=True, order="C")
    if copied.dtype.itemsize not in (1, 2, 4, 8):
        return copied.astype(numpy.float64)
    return copied if copied.dtype.isnative else copied.astype(copied.dtype.newbyteorder("="))


def _elements(plain: Any) -> Any:
    return (plain.astype(str) if plain.dtype.kind in "mM" else plain).tolist()


def array_summary(value: Any) -> dict[str, Any]:
    """Return the dtype, the shape and the edges of an array of numpy."""
    numpy = sys.modules["numpy"]
    plain = numpy.ndarray.view(value, numpy.ndarray)
    flat = plain.ravel(order="K") if plain.flags.forc else plain.flat
    described = {"type": class_name(type(value)), "dtype": str(plain.dtype), "shape": [*plain.shape]}
    return {**described, "head": _elements(flat[:EDGE]), "tail": _elements(flat[-EDGE:])}


def is_compiling() -> bool:
    """Return True while `torch.compile` traces the caller: it would compile our code, or fail on it."""
    torch: Any = sys.modules.get("torch")
    # While its import runs, on whatever thread, it has no parts.
    is_ready = torch is not None and not getattr(getattr(torch, "__spec__", None), "_initializing", False)
    return bool(is_ready and torch.compiler.is_compiling())


def length_of_array(value: Any) -> int | None:
    """Return the length of an array or a tensor of one dimension; None for other values."""
    name = f"{module_of(type(value))}.{type(value).__qualname__}"
    if name == "numpy.ndarray":
        return int(value.size) if value.ndim == 1 else None
    if name != "torch.Tensor":
        return None
    return unseen(lambda torch, tensor: int(tensor.shape[0]) if tensor.dim() == 1 else None, value)  # type: ignore[no-any-return]


def unseen(read: Callable[[Any, Any], Any], value: Any) -> Any:
    """Read a tensor without modes, subclasses and traces of the program noticing it."""
    torch = sys.modules["torch"]
    # There is no public way.
    parts = torch._C  # noqa: SLF001
    tracing = parts._get_tracing_state()  # noqa: SLF001
    with parts.DisableTorchFunction(), parts._DisableTorchDispatch():  # noqa: SLF001
        if tracing is None:
            return read(torch, value)
        parts._set_tracing_state(None)  # noqa: SLF001
        try:
            return read(torch, value)
        finally:
            parts._set_tracing_state(tracing)  # noqa: SLF001


def _read_tensor(value: Any) -> Any:
    torch = sys.modules["torch"]
    if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
        # A subclass may override any function (`__torch_function__`), and may be spread over machines.
        return f"<{class_name(type(value))}>"
    try:
        return unseen(_read_plain_tensor, value)
    except RuntimeError as error:  # it stands for others, in vmap or functionalize
        if is_programs(error):
            raise
        return f"<{class_name(type(value))} without storage>"


def _read_plain_tensor(torch: Any, value: Any) -> Any:
    dtype, count = str(value.dtype).removeprefix("torch."), 0 if value.is_nested else value.numel()
    is_odd = value.layout is not torch.strided or value.is_quantized or value.is_nested or value.dtype.is_complex
    if value.device.type != "cpu" or is_odd:
        # Reading a tensor on an accelerator would wait for all work queued before it.
        shape = None if value.is_nested else [int(length) for length in value.shape]
        return {"type": class_name(type(value)), "dtype": dtype, "shape": shape, "device": str(value.device)}
    # Nor do the graphs of the program notice it.
    value = value.detach()
    if value.dim() == 1 and not value.dtype.is_floating_point and count <= MAX_IDS and "numpy" in sys.modules:
        # Read a copy: a tensor that was given to numpy can't be resized any more.
        return _read_array(value.clone().numpy())
    if count <= MAX_ARRAY_ELEMENTS:
        return value.tolist()
    is_flat, rest = value.is_contiguous(), value.dim() - 1
    first, last = [value.reshape(-1)] * 2 if is_flat else (value[(0,) * rest], value[(-1,) * rest])
    described = {"type": "torch.Tensor", "dtype": dtype, "shape": [*value.shape]}
    return {**described, "head": first[:EDGE].tolist(), "tail": last[-EDGE:].tolist()}


_NUMBERS: Final[dict[str, Any]] = {"b": bool, "i": int, "u": int, "f": float}
_LEAVES: Final[dict[str, Callable[[Any], Any]]] = {
    "builtins.str": str.__str__,
    "builtins.int": int.__int__,
    "builtins.float": float.__float__,
    "builtins.complex": complex.__repr__,
    **dict.fromkeys(("builtins.range", "builtins.ellipsis", "torch.dtype"), repr),
    "builtins.type": class_name,
    "builtins.module": lambda module: "<builtins.module>",
    "builtins.BaseException": exception_text,
    "datetime.datetime": _moment_by(dt.datetime),
    "datetime.date": dt.date.isoformat,
    "datetime.time": _moment_by(dt.time),
    "datetime.timedelta": dt.timedelta.__str__,
    "uuid.UUID": uuid.UUID.__str__,
    "decimal.Decimal": decimal.Decimal.__str__,
    "fractions.Fraction": fractions.Fraction.__str__,
    "pathlib.PurePath": pathlib.PurePath.__str__,
    "pandas.NaTType": lambda value: "NaT",
    "pandas.NAType": lambda value: None,
    **dict.fromkeys(("builtins.function", "builtins.method", "builtins.builtin_function_or_method"), _function_name),
}
_OTHERS: Final[dict[str, Reader]] = {
    **{f"builtins.{base.__name__}": Reader(_items_by(base)) for base in (list, tuple, set, frozenset)},
    **{
        f"builtins.{view.__name__}": Reader(_items_by(view)) for view in map(type, ({}.keys(), {}.values(), {}.items()))
    },
    **{f"builtins.{name}": Reader(_read_bytes) for name in ("bytes", "bytearray", "memoryview")},
    "builtins.dict": Reader(_read_subclass_of_dict),
    "collections.deque": Reader(_items_by(collections.deque)),
    "array.array": Reader(_items_by(array)),
    **{f"collections.User{name}": Reader(_field_by("data")) for name in ("Dict", "List", "String")},
    "numpy.ndarray": Reader(_read_array, 128),
    "torch.Tensor": Reader(_read_tensor, 512),
    "PIL.Image": Reader(_read_image),
    # The raw nodes: resolving interpolations calls code.
    "omegaconf.Node": Reader(_field_by("_content", "_val")),
    **{f"pandas.{name}": Reader(_read_pandas, 16_000) for name in ("DataFrame", "Series", "Index")},
}


@per_class
def reader_of(kind: type) -> Reader:
    """Return the reader of a class's values."""
    if find_static(kind, "__rollout_payload__") is not None:
        return Reader(_read_own_payload)
    names = find_static(kind, "_fields")
    if type(names) is tuple and tuple in kind.__mro__:
        return Reader(lambda value: dict(zip(names, tuple.__iter__(value))))  # noqa: B905 - a subclass may have more
    for base in kind.__mro__:
        name = f"{module_of(base)}.{base.__qualname__}"
        if name in _LEAVES:
            return Reader(_LEAVES[name], 4 if base in SCALARS else 40, is_leaf=True)
        if name in _OTHERS:
            return _OTHERS[name]
        if name == "enum.Enum":
            return _enum_reader(kind)
        if name == "numpy.generic":
            return _numpy_scalar_reader(kind)
    # Values of pandas are named: their fields are of its own.
    name = class_name(kind)
    read, is_known = ((lambda value: f"<{name}>"), True) if module_of(kind) == "pandas" else object_reader(kind)
    return Reader(read, 32 if is_known else 64, is_known)
