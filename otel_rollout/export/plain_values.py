"""Attributes' values as backends' JSON takes them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from otel_rollout.text.sanitize import fits_int64, replace_surrogates


def plain_text(value: object) -> str:
    """Return a value as text without lone surrogates."""
    return replace_surrogates(str(value))


def plain_value(value: Any) -> Any:
    """Return an attribute's value, or one parsed from JSON, with texts in place of what JSON or 64 bits can't hold.

    MLflow stores a trace with a wider integer, and then can't return it over REST.
    """
    if isinstance(value, str):
        return replace_surrogates(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if fits_int64(value) else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {plain_text(key): plain_value(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain_value(item) for item in value]
    return plain_text(value)
