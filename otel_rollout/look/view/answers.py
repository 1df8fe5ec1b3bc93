"""JSON answers of the viewer's server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response

from otel_rollout.otlp.json_writing import clean
from otel_rollout.text.sanitize import fits_int64

__all__ = ["AskedWrongError", "error_answer", "json_answer", "json_bytes"]


class AskedWrongError(Exception):
    """A request that can't be answered, with the status for the reason.

    Args:
        status: 400 or 404.
        message: A sentence with the fault and the remedy.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def json_bytes(value: Any) -> bytes:
    """Return a value of dataclasses, named tuples, mappings and plain values as JSON."""
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except orjson.JSONEncodeError:
        # Lone surrogates, which the detour through Python's JSON would keep, or integers of another program.
        return orjson.dumps(clean(_plain_tree(value)), option=orjson.OPT_NON_STR_KEYS)


def json_answer(value: Any, status: int = 200) -> Response:
    """Return a value as an answer."""
    return Response(json_bytes(value), status, media_type="application/json")


def error_answer(status: int, message: str) -> Response:
    """Return an error as an answer."""
    return json_answer({"error": message}, status)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return value._asdict() if hasattr(value, "_asdict") else list(value)
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)


def _plain_tree(value: Any) -> Any:
    """Return a value with only dicts, lists and scalars, integers beyond 64 bits as text."""
    if hasattr(value, "__dataclass_fields__"):
        value = {name: getattr(value, name) for name in value.__dataclass_fields__}
    elif isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        return {str(key): _plain_tree(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain_tree(item) for item in value]
    if isinstance(value, int) and not fits_int64(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
