"""Finds the brackets and commas of JSON without parsing it."""

from __future__ import annotations

import re
from collections.abc import Iterator


def marks_outside_text(json_bytes: bytes, marks: bytes) -> Iterator[bytes]:
    """Yield the bytes of JSON that are one of `marks`, except for those within a text, which may be cut off."""
    # Without escaped quotes: an expression with them looks for the end of a text without one from each of them.
    plain = json_bytes.replace(rb"\\", b"").replace(rb"\"", b"")
    for match in re.finditer(rb'"[^"]*"?|([%b])' % re.escape(marks), plain):
        if mark := match[1]:
            yield mark
