"""Any value to one JSON text, on the caller's thread: the snapshot.

Agents go on changing the message lists that they pass around, so what a span shows must be taken at the call.
Serialising is the cheapest snapshot there is: orjson writes a value faster than `copy.deepcopy` copies it.
Whatever needs a look at the text afterwards (limits, redaction) happens later, in `payload_limits` and `redaction`.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any, Final

import orjson

__all__ = ["snapshot"]

MAX_ARRAY_ELEMENTS: Final = 1024
"""Arrays and tensors with more elements are summed up; one-dimensional integer ones (token ids) are kept."""
MAX_ID_ELEMENTS: Final = 1_000_000
ARRAY_EDGE_ELEMENTS: Final = 8
MAX_REPR_CHARACTERS: Final = 200
MAX_DEPTH: Final = 40
MAX_NODES: Final = 20_000
"""How much of a value that orjson can't write in one go is walked in Python."""
MAX_TEXT_CHARACTERS: Final = 4 * 1024 * 1024
"""A longer text directly among the arguments is cut before it is copied."""

_OPTIONS = orjson.OPT_NON_STR_KEYS


def snapshot(value: Any) -> bytes:
    """Return `value` as JSON text in UTF-8; never raises, whatever the value.

    Args:
        value: Anything. Known types (pydantic, dataclasses, attrs, OmegaConf, numpy, torch, PIL, pandas, enums,
            dates, sets) are written by their content; others as a short text with their type.
    """
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
        kind = type(value)
        if kind is str:
            if len(value) > MAX_TEXT_CHARACTERS:
                arguments[name] = cut_text(value, MAX_TEXT_CHARACTERS)
        elif kind is list and len(value) > MAX_ID_ELEMENTS:
            arguments[name] = _edges(value, len(value), "list")
    return snapshot(arguments)


def cut_text(text: str, characters: int) -> str:
    """Return `text` with its middle replaced by a note of what was cut, at most about `characters` long."""
    head = max(1, characters * 3 // 4)
    tail = max(0, characters - head)
    return f"{text[:head]}…[{len(text) - head - tail:,} characters cut]…{text[len(text) - tail :] if tail else ''}"


def _encode(value: Any) -> Any:
    """Return what orjson should write in place of a value that it doesn't know; called by orjson."""
    try:
        return _encode_known(value)
    except Exception:  # noqa: BLE001, RUF100 - a value may do anything when it is looked at
        return _short_text(value)


def _encode_known(value: Any) -> Any:
    cls = type(value)
    module = cls.__module__
    package = module.partition(".")[0] if isinstance(module, str) else ""
    if isinstance(value, (set, frozenset, AbstractSet)):
        return list(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _describe_bytes(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, BaseException):
        return f"{cls.__name__}: {value}"
    if package == "torch" and hasattr(value, "detach"):
        return _describe_tensor(value)
    if package in ("numpy", "ml_dtypes"):
        return _encode_numpy(value)
    if package == "PIL" and hasattr(value, "size"):
        return {"type": f"{module}.{cls.__qualname__}", "mode": value.mode, "size": list(value.size)}
    if package == "pandas":
        return _encode_pandas(value)
    if package == "omegaconf":
        return sys.modules["omegaconf"].OmegaConf.to_container(value, resolve=False)
    # The class is asked, not the instance: a mock or a proxy answers yes to any attribute.
    if hasattr(cls, "model_fields") or hasattr(cls, "__fields__"):
        extra = getattr(value, "__pydantic_extra__", None)
        return {**value.__dict__, **extra} if extra else dict(value.__dict__)
    if hasattr(cls, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name, None) for field in cls.__attrs_attrs__}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    if isinstance(value, (str, float, int)):
        return _plain_scalar(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple) or cls.__name__ in ("deque", "dict_keys", "dict_values", "dict_items"):
        return list(value)
    return _short_text(value)


def _plain_scalar(value: str | float) -> str | float:
    if isinstance(value, str):
        return str.__str__(value)
    return int.__int__(value) if isinstance(value, int) else float.__float__(value)


def _encode_numpy(value: Any) -> Any:
    cls = type(value)
    if hasattr(value, "ndim") and value.ndim == 0:
        item = value.item() if cls.__name__ != "ndarray" else value[()]
        if type(item) is not cls:
            return item if not isinstance(item, complex) else str(item)
        return float(item) if cls.__name__ == "longdouble" else str(item)
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        if value.size <= MAX_ARRAY_ELEMENTS or (
            value.ndim == 1 and value.dtype.kind in "iu" and value.size <= MAX_ID_ELEMENTS
        ):
            return value.tolist()
        flat = value.ravel(order="K") if value.flags.forc else value.flat
        return _describe_array(value, str(value.dtype), flat)
    return _short_text(value)


def _describe_tensor(value: Any) -> Any:
    dtype = str(value.dtype).removeprefix("torch.")
    if value.device.type != "cpu" or getattr(value, "is_quantized", False) or value.layout is not _strided(value):
        # Reading a tensor on an accelerator would wait for everything queued before it.
        return {
            "type": "torch.Tensor",
            "dtype": dtype,
            "shape": list(value.shape),
            "device": str(value.device),
        }
    value = value.detach()
    count = value.numel()
    if value.dtype.is_complex:
        return {"type": "torch.Tensor", "dtype": dtype, "shape": list(value.shape)}
    is_ids = value.dim() == 1 and not value.dtype.is_floating_point and count <= MAX_ID_ELEMENTS
    if count <= MAX_ARRAY_ELEMENTS or is_ids:
        return value.tolist()
    edges = value.reshape(-1) if value.is_contiguous() else value[(0,) * (value.dim() - 1)]
    return {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": list(value.shape),
        "head": edges[:ARRAY_EDGE_ELEMENTS].tolist(),
        "tail": edges[-ARRAY_EDGE_ELEMENTS:].tolist(),
    }


def _strided(value: Any) -> Any:
    return getattr(sys.modules.get("torch"), "strided", value.layout)


def _describe_array(value: Any, dtype: str, flat: Any) -> dict[str, Any]:
    cls = type(value)
    return {
        "type": f"{cls.__module__}.{cls.__qualname__}",
        "dtype": dtype,
        "shape": list(value.shape),
        "head": list(flat[:ARRAY_EDGE_ELEMENTS].tolist()),
        "tail": list(flat[-ARRAY_EDGE_ELEMENTS:].tolist()),
    }


def _describe_bytes(value: bytes | bytearray | memoryview) -> dict[str, Any]:
    head = bytes(value[:ARRAY_EDGE_ELEMENTS])
    return {"type": type(value).__name__, "length": len(value), "head": head.hex()}


def _encode_pandas(value: Any) -> Any:
    cls = type(value)
    kind = f"pandas.{cls.__qualname__}"
    if hasattr(value, "columns"):
        return {
            "type": kind,
            "shape": list(value.shape),
            "columns": [str(column) for column in islice(value.columns, 100)],
            "head": value.head(ARRAY_EDGE_ELEMENTS).to_dict(orient="list"),
        }
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        head = value[:ARRAY_EDGE_ELEMENTS].tolist()
        return {"type": kind, "shape": list(value.shape), "dtype": str(value.dtype), "head": head}
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return _short_text(value)


def _edges(value: list[Any], length: int, kind: str) -> dict[str, Any]:
    return {
        "type": kind,
        "length": length,
        "head": value[:ARRAY_EDGE_ELEMENTS],
        "tail": value[-ARRAY_EDGE_ELEMENTS:],
    }


def _short_text(value: Any) -> str:
    cls = type(value)
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001, RUF100 - a value may do anything when it is looked at
        text = ""
    if not isinstance(text, str) or not text:
        return f"<{cls.__module__}.{cls.__qualname__}>"
    if len(text) > MAX_REPR_CHARACTERS:
        text = f"{text[:MAX_REPR_CHARACTERS]}…"
    if cls.__name__ not in text:
        text = f"{cls.__qualname__}({text})"
    return text.encode("utf-8", "replace").decode()


def _simplify(value: Any, depth: int, nodes_left: list[int], above: set[int]) -> Any:
    """Return `value` rebuilt from plain dicts, lists and scalars, cut where it is too deep or has too many parts.

    Args:
        value: What to rebuild.
        depth: How deep in the whole it stands.
        nodes_left: One number: how many more parts may be rebuilt.
        above: The ids of the containers that it stands in, to find cycles.
    """
    nodes_left[0] -= 1
    if value is None or value is True or value is False:
        return value
    cls = type(value)
    if cls is str:
        return value if value.isascii() else value.encode("utf-8", "replace").decode()
    if cls is int:
        return value if -(2**63) <= value < 2**63 else _big_integer(value)
    if cls is float:
        return value
    if depth >= MAX_DEPTH or nodes_left[0] <= 0:
        return f"…<{cls.__qualname__}>"
    if id(value) in above:
        return f"<cycle to {cls.__qualname__}>"
    if not isinstance(value, (dict, list, tuple)):
        encoded = _encode_native(value)
        # `_encode` may hand back a value of its own kind (an int subclass, say), never a new container of it.
        return _simplify(encoded, depth + 1, nodes_left, above | {id(value)})
    above.add(id(value))
    try:
        if isinstance(value, dict):
            return {
                _key(key): _simplify(item, depth + 1, nodes_left, above)
                for key, item in _bounded(value.items(), nodes_left)
            }
        return [_simplify(item, depth + 1, nodes_left, above) for item in _bounded(value, nodes_left)]
    finally:
        above.discard(id(value))


def _encode_native(value: Any) -> Any:
    """Return what stands for a value that orjson would have written by itself, or that `_encode` knows."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    try:
        return orjson.loads(orjson.dumps(value))
    except (TypeError, ValueError, RecursionError):
        return _encode(value)


def _bounded(items: Iterable[Any], nodes_left: list[int]) -> Iterable[Any]:
    for item in items:
        if nodes_left[0] <= 0:
            return
        yield item


def _key(key: Any) -> str:
    if type(key) is str:
        return key if key.isascii() else key.encode("utf-8", "replace").decode()
    if isinstance(key, (int, float, bool)) or key is None:
        return _big_integer(key) if type(key) is int else str(key)
    return _short_text(key)


def _big_integer(value: int) -> str:
    try:
        return str(value)
    except ValueError:
        # Python refuses to write integers over 4,300 digits in decimal.
        return hex(value)
