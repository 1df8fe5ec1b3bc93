"""Text that every backend accepts."""

from __future__ import annotations

__all__ = ["clean_text"]


def clean_text(value: object) -> str:
    """Return a value as text without lone surrogates, for which Weave refuses the whole batch.

    Args:
        value: Any value; bytes are read as UTF-8.
    """
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
