"""JSON on standard output, a line for each object."""

from __future__ import annotations

import re
import sys
from typing import Any, Final

import orjson

__all__ = ["print_json", "print_json_text"]

ACTED_ON: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What JSON lets through unescaped though a terminal acts on it: some control and format characters."""


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print_json_text(orjson.dumps(value))


def print_json_text(line: bytes) -> None:
    """Print a line of JSON; whoever parses it gets the very same value.

    Args:
        line: The JSON text, without a line break.
    """
    # A tab is never within a text of JSON, and moves what a terminal shows.
    text = line.replace(b"\t", b"").decode()
    if not text.isprintable():
        text = ACTED_ON.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
    sys.stdout.buffer.write(text.encode() + b"\n")
