"""Plain data to JSON text: by orjson on our own threads, by the standard library on the program's.

orjson crashes where memory ends, and its walk of private data can't be interrupted otherwise.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import orjson

from otel_rollout.record.object_reading import integer_text
from otel_rollout.record.snapshot import Snapshot, snapshot
from otel_rollout.record.stream import read_bytes, with_text_keys
from otel_rollout.text.sanitize import fits_int64, replace_surrogates

__all__ = ["dumps", "json_text", "loads", "on_program_thread", "to_json", "value_to_json"]

MAX_DEPTH: Final = 64
"""Containers below it become a note: orjson writes 254 levels, backends read fewer."""
_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY


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


def to_json(taken: Snapshot) -> bytes:
    """Return a snapshot as JSON in UTF-8."""
    return value_to_json(taken.load())


def json_text(value: Any) -> str:
    """Return any value as JSON text, on the program's thread."""
    with on_program_thread():
        return to_json(snapshot(value)).decode()


def value_to_json(value: Any) -> bytes:
    """Return a snapshot's value, or a part of it, as JSON in UTF-8."""
    if not _thread.is_program:
        try:
            return orjson.dumps(value, default=_default, option=_OPTIONS)
        except (TypeError, ValueError):
            # An integer over 64 bits, a lone surrogate, a key that is no text, or an array that orjson doesn't know.
            return orjson.dumps(_plain(value, 0), option=_OPTIONS)
    return dumps(_plain(value, 0))


def _default(value: Any) -> Any:
    kind = type(value)
    if kind is set or kind is frozenset:
        return list(value)
    if kind is bytes or kind is bytearray:
        return read_bytes(value)
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
        return {replace_surrogates(key): _plain(item, depth + 1) for key, item in pairs}
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        return [_plain(item, depth + 1) for item in value]
    if kind is bytes or kind is bytearray:
        return read_bytes(value)
    # An array of numpy.
    return _plain(value.tolist(), depth) if hasattr(value, "tolist") else str(value)
