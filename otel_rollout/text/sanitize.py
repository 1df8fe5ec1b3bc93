"""Text and integers that JSON, protobuf and the backends' databases accept.

On the hot path, compare with `INT64_MIN` and `INT64_MAX` in place of a call.
"""

from __future__ import annotations

from typing import Final

__all__ = ["INT64_MAX", "INT64_MIN", "fits_int64", "replace_surrogates"]

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1


def fits_int64(number: int) -> bool:
    """Return True if `number` fits into a signed 64-bit integer."""
    return INT64_MIN <= number <= INT64_MAX


def replace_surrogates(text: str) -> str:
    """Return `text` with `?` for each lone surrogate; they come from file names and model output."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
