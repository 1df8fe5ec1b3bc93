"""Plain data to JSON text: by orjson on our own threads, by the standard library on the program's.

orjson crashes where memory ends, and its walk of private data can't be interrupted otherwise.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson

from otel_rollout.text.sanitize import fits_int64, integer_text, replace_surrogates

MAX_DEPTH: Final = 64
"""Containers below it become a note: orjson writes 254 levels, backends read fewer."""
HEAD_BYTES: Final = 8
"""First bytes of a `bytes` value that are shown."""


class _Thread(threading.local):
    is_program = False


_thread: Final = _Thread()


@contextmanager
def on_program_thread() -> Iterator[None]:
    """Use the standard library's JSON in the block."""
    before = _thread.is_program
    _thread.is_program = True
    try:
        yield
    finally:
        _thread.is_program = before


def dumps(value: Any) -> bytes:
    """Return plain data as JSON in UTF-8.

    Raises:
        TypeError: It has something that JSON doesn't have.
        ValueError: Likewise.
    """
    if not _thread.is_program:
        return orjson.dumps(value)
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def loads(text: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: It is none.
    """
    return json.loads(text) if _thread.is_program else orjson.loads(text)


def value_to_json(value: Any) -> bytes:
    """Return a snapshot's value, or a part of it, as JSON in UTF-8."""
    if not _thread.is_program:
        # With its option, orjson imports numpy.
        option = orjson.OPT_SERIALIZE_NUMPY if "numpy" in sys.modules else 0
        try:
            return orjson.dumps(value, default=_default, option=option)
        except (TypeError, ValueError):
            # An integer over 64 bits, a lone surrogate, a key that is no text, or an array that orjson can't write.
            return orjson.dumps(_plain(value, 0), option=option)
    return dumps(_plain(value, 0))


def with_text_keys(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Return a dict with a text for each key; of two keys with one text, the later gets a number."""
    result: dict[str, Any] = {}
    numbers: dict[str, int] = {}
    for key, item in pairs:
        text = name = key_text(key)
        while name in result:
            numbers[text] = number = numbers.get(text, 1) + 1
            name = f"{text} ({number})"
        result[name] = item
    return result


def key_text(key: Any) -> str:
    """Return the text that stands for a key in JSON."""
    kind = type(key)
    if kind is str:
        return replace_surrogates(key)
    if kind is int:
        return integer_text(key)
    if key is None or kind is bool:
        return "null" if key is None else "true" if key else "false"
    if kind is tuple:
        return f"({', '.join(map(key_text, key))})"
    if kind is frozenset:
        return f"{{{', '.join(sorted(map(key_text, key)))}}}"
    if kind is list:
        return f"[{', '.join(map(key_text, key))}]"
    if kind is dict:
        name = key.get("type")
        return f"<{name if type(name) is str else ', '.join(map(key_text, key))}>"
    return repr(key)


def describe_bytes(kind: str, value: Any, length: int) -> dict[str, Any]:
    """Return a description of bytes: type, length and first bytes.

    Args:
        kind: The name of their type.
        value: The bytes, or their beginning.
        length: The number of all.
    """
    described: dict[str, Any] = {"type": kind, "length": length}
    if length:
        described["head"] = bytes(value[:HEAD_BYTES]).hex()
    return described


def _default(value: Any) -> Any:
    kind = type(value)
    if kind is set or kind is frozenset:
        return list(value)
    if kind is bytes or kind is bytearray:
        return describe_bytes(kind.__name__, value, len(value))
    raise TypeError


def _plain(value: Any, depth: int) -> Any:
    """Return a copy of a snapshot's value that every JSON library can write."""
    kind = type(value)
    if kind is str:
        return replace_surrogates(value)
    if kind is int:
        return value if fits_int64(value) else integer_text(value)
    if kind is float:
        return value if value - value == 0 else None
    if kind is bool or value is None:
        return value
    if depth >= MAX_DEPTH:
        return f"…<{kind.__name__}>"
    if kind is dict:
        pairs = with_text_keys(value.items()).items()
        return {key: _plain(item, depth + 1) for key, item in pairs}
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return [_plain(item, depth + 1) for item in value]
    if kind is bytes or kind is bytearray:
        return describe_bytes(kind.__name__, value, len(value))
    # An array of numpy.
    return _plain(value.tolist(), depth) if hasattr(value, "tolist") else str(value)
