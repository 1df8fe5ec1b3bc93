"""Text and integers that JSON, protobuf and the backends' databases accept.

On the hot path, compare with `INT64_MIN` and `INT64_MAX` in place of a call.
"""

from __future__ import annotations

from typing import Any, Final

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
MAX_DECIMAL_BITS: Final = 2_000


def fits_int64(number: int) -> bool:
    """Return True if `number` fits into a signed 64-bit integer."""
    return INT64_MIN <= number <= INT64_MAX


def integer_text(value: int) -> str:
    """Return an integer of any length as text."""
    # Python may refuse to convert integers over 640 digits to decimal, and takes quadratic time for it.
    return str(value) if value.bit_length() < MAX_DECIMAL_BITS else hex(value)


def replace_surrogates(text: str) -> str:
    """Return `text` with `?` for each lone surrogate; they come from file names and model output."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def clean(message: Any) -> Any:
    """Replace the lone surrogates in the values of JSON by question marks."""
    if isinstance(message, str):
        return replace_surrogates(message)
    if isinstance(message, dict):
        return {key: clean(item) for key, item in message.items()}
    return [clean(item) for item in message] if isinstance(message, list) else message
