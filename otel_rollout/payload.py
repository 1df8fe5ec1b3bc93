"""Any value to one JSON text, on the caller's thread: the snapshot.

Agents go on changing the message lists that they pass around, so what a span shows must be taken at the call.
Serialising is the cheapest snapshot there is: orjson writes a value faster than `copy.deepcopy` copies it.
Whatever needs a look at the text afterwards (limits, redaction) happens later, in `payload_limits` and `redaction`.
"""

from __future__ import annotations

import dataclasses
import sys
from array import array
from collections import UserList, deque
from collections.abc import Collection, Mapping, MappingView
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final

import orjson

__all__ = ["clean_text", "cut_text", "snapshot", "snapshot_arguments"]

MAX_ARRAY_ELEMENTS: Final = 1024
"""Arrays and tensors with more elements are summed up; one-dimensional integer ones (token ids) are kept."""
MAX_ID_ELEMENTS: Final = 1_000_000
ARRAY_EDGE_ELEMENTS: Final = 8
MAX_COLUMNS: Final = 100
"""Of a table, how many columns are shown."""
MAX_REPR_CHARACTERS: Final = 200
MAX_DEPTH: Final = 40
MAX_NODES: Final = 20_000
"""How much of a value that orjson can't write in one go is walked in Python."""
MAX_TEXT_CHARACTERS: Final = 4 * 1024 * 1024
"""A longer text directly among the arguments is cut before it is copied."""

_DICT_VIEWS: Final[tuple[type, ...]] = tuple(type(getattr({}, name)()) for name in ("keys", "values", "items"))
_IN_MEMORY: Final[tuple[type, ...]] = (set, frozenset, deque, UserList, array, *_DICT_VIEWS)
"""Collections whose items are there; those of others may be made as they are read."""

_OPTIONS = orjson.OPT_NON_STR_KEYS


def snapshot(value: Any) -> bytes:
    """Return `value` as JSON text in UTF-8; never raises, whatever the value.

    Args:
        value: Anything. Known types (pydantic, dataclasses, attrs, OmegaConf, numpy, torch, PIL, pandas, enums,
            dates, sets) are written by their content; one whose class has a method `__rollout_payload__` as what that
            returns; others as a short text with their type.
    """
    if type(value) in _LONG_KINDS:
        value = _cut_long(value)
    try:
        return orjson.dumps(value, default=_encode)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return orjson.dumps(value, default=_encode, option=_OPTIONS)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        # Too deep, cyclic, an integer over 64 bits, a lone surrogate, or keys that JSON has not.
        return orjson.dumps(_simplify(value, 0, [MAX_NODES], set()))
    except Exception:  # noqa: BLE001, RUF100 - a value may do anything when it is looked at
        return orjson.dumps(_short_text(value))


def snapshot_arguments(arguments: dict[str, Any]) -> bytes:
    """Return the arguments of a call as JSON text, with giant texts and lists among them cut before they are copied.

    Args:
        arguments: The arguments by name; changed in place where one is cut.
    """
    for name, value in arguments.items():
        if type(value) in _LONG_KINDS:
            arguments[name] = _cut_long(value)
    return snapshot(arguments)


def cut_text(text: str, characters: int) -> str:
    """Return `text` with its middle replaced by a note of what was cut, at most about `characters` long."""
    head = max(1, characters * 3 // 4)
    tail = max(0, characters - head)
    return f"{text[:head]}…[{len(text) - head - tail:,} characters cut]…{text[len(text) - tail :] if tail else ''}"


def clean_text(text: str) -> str:
    """Return `text` with what UTF-8 can't hold (lone surrogates) replaced by `?`."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


_LONG_KINDS: Final = frozenset({str, list, tuple})


def _cut_long(value: Any) -> Any:
    """Return a text or list as it is, or shortened where copying it would take long."""
    if type(value) is str:
        return value if len(value) <= MAX_TEXT_CHARACTERS else cut_text(value, MAX_TEXT_CHARACTERS)
    return value if len(value) <= MAX_ID_ELEMENTS else _edges(value)


def _encode(value: Any) -> Any:
    """Return what orjson should write in place of a value that it doesn't know; called by orjson."""
    try:
        return _encode_known(value)
    except Exception:  # noqa: BLE001, RUF100 - a value may do anything when it is looked at
        return _short_text(value)


def _encode_known(value: Any) -> Any:
    cls = type(value)
    # The class is asked, not the instance: a mock or a proxy answers yes to any attribute, and says it is of any class.
    # A model of pydantic: of its second version, whose older names are properties that take their time, or its first.
    if hasattr(cls, "__pydantic_fields_set__") or hasattr(cls, "__fields__"):
        extra = getattr(value, "__pydantic_extra__", None)
        return {**value.__dict__, **extra} if extra else dict(value.__dict__)
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(cls, torch.Tensor):
        return _encode_tensor(torch, value)
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, (numpy.ndarray, numpy.generic)):
        return _encode_scalar(numpy, value) if value.ndim == 0 else _encode_array(value)
    if issubclass(cls, (str, float, int, complex)):
        return _plain_scalar(value)
    if issubclass(cls, (bytes, bytearray, memoryview)):
        return _describe_bytes(value)
    if issubclass(cls, tuple):
        names = getattr(cls, "_fields", None)
        return dict(zip(names, value, strict=True)) if names else _listed(value)
    if issubclass(cls, _IN_MEMORY):
        return _listed(value)
    if issubclass(cls, (AbstractSet, MappingView)):
        return list(value) if len(value) <= MAX_NODES else _edges(value)
    if issubclass(cls, type):
        return f"{value.__module__}.{value.__qualname__}"
    if hasattr(cls, "__rollout_payload__"):
        return value.__rollout_payload__()
    if issubclass(cls, BaseException):
        text = str(value)
        return f"{cls.__name__}: {text if len(text) <= MAX_TEXT_CHARACTERS else cut_text(text, MAX_TEXT_CHARACTERS)}"
    package = cls.__module__.partition(".")[0]
    if package == "PIL" and hasattr(cls, "size"):
        return {"type": f"{cls.__module__}.{cls.__qualname__}", "mode": value.mode, "size": list(value.size)}
    if package == "pandas":
        return _encode_pandas(value)
    if package == "omegaconf":
        return sys.modules["omegaconf"].OmegaConf.to_container(value, resolve=False)
    if hasattr(cls, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name, None) for field in cls.__attrs_attrs__}
    if issubclass(cls, Mapping):
        # Reading an item of one that is no dict may take long.
        pairs = {key: value[key] for key in islice(value, MAX_NODES)}
        left = len(value) - len(pairs)
        return {**pairs, "…": f"[{left:,} keys cut]"} if left > 0 else pairs
    if hasattr(cls, "isoformat"):
        # A date of a subclass, or in a time zone that orjson doesn't know.
        return value.isoformat()
    return _short_text(value)


def _plain_scalar(value: str | complex) -> str | float:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else complex.__repr__(value)


def _encode_scalar(numpy: Any, value: Any) -> Any:
    if isinstance(value, numpy.ndarray):
        return value[()]
    if value.dtype.kind in "mM":
        # As an item, one in nanoseconds would be a bare number.
        return str(value)
    item = value.item()
    if type(item) is type(value):
        # Wider than any number of Python's: `longdouble`, `clongdouble`.
        return float(item) if value.dtype.kind == "f" else str(item)
    return item


def _encode_array(value: Any) -> Any:
    kind = value.dtype.kind
    if value.size <= MAX_ARRAY_ELEMENTS or (value.ndim == 1 and kind in "iu" and value.size <= MAX_ID_ELEMENTS):
        if kind in "iufb" and value.dtype.isnative and type(value).__name__ == "ndarray":
            try:
                return orjson.Fragment(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))
            except TypeError:
                # Not contiguous, or of a type that orjson has not.
                pass
        return _elements(value)
    flat = value.ravel(order="K") if value.flags.forc else value.flat
    cls = type(value)
    return {
        "type": f"{cls.__module__}.{cls.__qualname__}",
        "dtype": str(value.dtype),
        "shape": list(value.shape),
        "head": _elements(flat[:ARRAY_EDGE_ELEMENTS]),
        "tail": _elements(flat[-ARRAY_EDGE_ELEMENTS:]),
    }


def _elements(value: Any) -> Any:
    return (value.astype(str) if value.dtype.kind in "mM" else value).tolist()


def _encode_tensor(torch: Any, value: Any) -> Any:
    dtype = str(value.dtype).removeprefix("torch.")
    if (
        type(value) not in (torch.Tensor, torch.nn.Parameter)
        or value.device.type != "cpu"
        or value.layout is not torch.strided
        or value.is_quantized
        or value.is_nested
        or value.dtype.is_complex
    ):
        # Reading a tensor on an accelerator would wait for everything queued before it, and one of a subclass may be
        # spread over machines.
        shape = None if value.is_nested else [int(length) for length in value.shape]
        return {"type": _class_name(type(value)), "dtype": dtype, "shape": shape, "device": str(value.device)}
    value = value.detach()
    count = value.numel()
    is_ids = value.dim() == 1 and not value.dtype.is_floating_point and count <= MAX_ID_ELEMENTS
    if count <= MAX_ARRAY_ELEMENTS or is_ids:
        try:
            return _encode_array(value.numpy()) if value.dim() else value.item()
        except (TypeError, RuntimeError):
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


def _describe_bytes(value: bytes | bytearray | memoryview) -> dict[str, Any]:
    view = memoryview(value)
    described: dict[str, Any] = {"type": type(value).__name__, "length": view.nbytes}
    if view.c_contiguous and view.nbytes:
        described["head"] = view.cast("B")[:ARRAY_EDGE_ELEMENTS].hex()
    return described


def _encode_pandas(value: Any) -> Any:
    cls = type(value)
    kind = f"pandas.{cls.__qualname__}"
    if hasattr(cls, "columns"):
        return {
            "type": kind,
            "shape": list(value.shape),
            "columns": [str(column) for column in islice(value.columns, MAX_COLUMNS)],
            "head": value.iloc[:ARRAY_EDGE_ELEMENTS, :MAX_COLUMNS].astype(object).to_numpy().tolist(),
        }
    if hasattr(cls, "dtype") and hasattr(cls, "tolist"):
        head = (value.iloc if hasattr(cls, "iloc") else value)[:ARRAY_EDGE_ELEMENTS].tolist()
        return {"type": kind, "shape": list(value.shape), "dtype": str(value.dtype), "head": head}
    if hasattr(cls, "isoformat"):
        return value.isoformat()
    return _short_text(value)


def _listed(value: Collection[Any]) -> Any:
    return list(value) if len(value) <= MAX_ID_ELEMENTS else _edges(value)


def _edges(value: Collection[Any]) -> dict[str, Any]:
    edges: dict[str, Any] = {
        "type": type(value).__name__,
        "length": len(value),
        "head": list(islice(value, ARRAY_EDGE_ELEMENTS)),
    }
    if isinstance(value, (list, tuple)):
        edges["tail"] = list(value[-ARRAY_EDGE_ELEMENTS:])
    return edges


def _short_text(value: Any) -> str:
    """Return the type and a short text of any value; never raises."""
    name = _class_name(type(value))
    try:
        text = str.__str__(repr(value))
    except Exception:  # noqa: BLE001, RUF100 - `__repr__` is the user's
        return f"<{name}>"
    if len(text) > MAX_REPR_CHARACTERS:
        text = f"{text[:MAX_REPR_CHARACTERS]}…"
    short_name = name.rpartition(".")[2]
    return clean_text(text if short_name in text else f"{short_name}({text})")


def _class_name(cls: type) -> str:
    try:
        return clean_text(f"{cls.__module__}.{cls.__qualname__}")
    except Exception:  # noqa: BLE001, RUF100 - a metaclass may do anything when it is looked at
        return "object"


def _simplify(value: Any, depth: int, nodes_left: list[int], above: set[int]) -> Any:
    """Return `value` rebuilt from plain dicts, lists and scalars, cut where it is too deep or has too many parts.

    Args:
        value: What to rebuild.
        depth: How deep in the whole it stands.
        nodes_left: One number: how many more parts may be rebuilt.
        above: The ids of the containers that it stands in, to find cycles.
    """
    nodes_left[0] -= 1
    cls = type(value)
    if value is None or cls is bool or cls is float or cls is orjson.Fragment:
        return value
    if cls is str:
        return clean_text(value)
    if cls is int:
        return value if -(2**63) <= value < 2**63 else _big_integer(value)
    if depth >= MAX_DEPTH or nodes_left[0] <= 0:
        return f"…<{_class_name(cls)}>"
    identity = id(value)
    if identity in above:
        return f"<cycle to {_class_name(cls)}>"
    above.add(identity)
    try:
        if issubclass(cls, dict):
            return _simplify_dict(value, depth, nodes_left, above)
        if issubclass(cls, list) or cls is tuple:
            return _simplify_list(value, depth, nodes_left, above)
        return _simplify(_encode_native(value), depth + 1, nodes_left, above)
    except Exception:  # noqa: BLE001, RUF100 - a value may do anything when it is looked at
        return _short_text(value)
    finally:
        above.discard(identity)


def _simplify_dict(value: dict[Any, Any], depth: int, nodes_left: list[int], above: set[int]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for position, (key, item) in enumerate(value.items()):
        if nodes_left[0] <= 0:
            kept["…"] = f"[{len(value) - position:,} keys cut]"
            break
        kept[_key(key)] = _simplify(item, depth + 1, nodes_left, above)
    return kept


def _simplify_list(
    value: list[Any] | tuple[Any, ...], depth: int, nodes_left: list[int], above: set[int]
) -> list[Any] | orjson.Fragment:
    if len(value) > MAX_ARRAY_ELEMENTS and type(value[0]) is int:
        # Token ids stay whole, whatever stands beside them.
        try:
            return orjson.Fragment(orjson.dumps(value if len(value) <= MAX_ID_ELEMENTS else _edges(value)))
        except TypeError:
            pass
    kept: list[Any] = []
    for position, item in enumerate(value):
        if nodes_left[0] <= 0:
            kept.append(f"…[{len(value) - position:,} items cut]")
            break
        kept.append(_simplify(item, depth + 1, nodes_left, above))
    return kept


def _encode_native(value: Any) -> Any:
    """Return what stands for a value that orjson would have written by itself, or that `_encode` knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: getattr(value, field.name, None)
            for field in dataclasses.fields(value)
            if not field.name.startswith("_")
        }
    try:
        return orjson.loads(orjson.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return _encode(value)


def _key(key: Any) -> str:
    if type(key) is str:
        return clean_text(key)
    try:
        text: str = next(iter(orjson.loads(orjson.dumps({key: None}, option=_OPTIONS))))
    except (TypeError, ValueError, RecursionError):
        if type(key) is int:
            return _big_integer(key)
        encoded = _encode(key)
        return clean_text(str(encoded)) if type(encoded) in (str, int, float, bool) else _short_text(key)
    return text


def _big_integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        # Python refuses to write integers over 4,300 digits in decimal.
        return hex(value)
