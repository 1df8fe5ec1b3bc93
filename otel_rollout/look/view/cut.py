"""Long texts, cut for a list; the place that shows one thing has it whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

__all__ = ["Cutter"]

MAX_TEXT: Final = 20_000
"""The characters of one text in a list."""
MAX_ANSWER: Final = 8_000_000
"""The characters of all texts of one answer."""
MIN_TEXT: Final = 200
"""The characters of a text once the answer is full."""


class Cutter:
    """Cuts the texts of one answer, each and altogether.

    Args:
        each: The most characters of a text; None for no bound.
        total: The most characters of all, after which each has 200.
    """

    def __init__(self, each: int | None = MAX_TEXT, total: int = MAX_ANSWER) -> None:
        self._each = each
        self._left = total

    def text(self, text: str) -> tuple[str, int]:
        """Return a text's beginning and the number of characters that are cut."""
        if self._each is None:
            return text, 0
        kept = text[: self._each if self._left > 0 else MIN_TEXT]
        self._left -= len(kept)
        return kept, len(text) - len(kept)

    def value(self, value: Any) -> tuple[Any, int]:
        """Return a value as JSON can hold it; one that is long becomes the beginning of its text."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.text(value.hex())
        if isinstance(value, (Mapping, list, tuple)):
            value = list(value) if isinstance(value, tuple) else value
            text = orjson.dumps(value, default=str).decode()
            kept, cut = self.text(text)
            return (kept, cut) if cut else (value, 0)
        return value, 0
