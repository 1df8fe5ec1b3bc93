"""Numbers, durations and sizes for people, and text without control characters or without its middle."""

from __future__ import annotations

import unicodedata
from typing import Final

JOINERS: Final = "\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NON-JOINER}"


def printable(text: str) -> str:
    """Return `text` with each control and format character replaced by U+FFFD."""
    # A terminal obeys escape sequences in a name or an error.
    return text if text.isprintable() else "".join(map(_printable_character, text))


def _printable_character(character: str) -> str:
    if character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs":
        return character
    return "\N{REPLACEMENT CHARACTER}"


def shorten(text: str, limit: int) -> str:
    """Return `text` on one line of at most `limit` characters.

    Args:
        text: A text of any length; only its first ten times `limit` characters are read.
        limit: The most characters.
    """
    line = " ".join(text[: 10 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def cut_text(text: str, characters: int) -> str:
    """Return `text` with a note in place of its middle, about `characters` long."""
    head = max(1, characters * 3 // 4)
    tail = max(0, characters - head)
    return f"{text[:head]}…[{len(text) - head - tail:,} characters cut]…{text[len(text) - tail :] if tail else ''}"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural if needed."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a noun, or of one with its purpose: `file for reading`."""
    noun, preposition, purpose = noun.partition(" for ")
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}es" if noun.endswith(("ch", "s")) else f"{noun}s"
    return many + preposition + purpose


def duration(nanoseconds: int) -> str:
    """Return a duration in µs, ms or s."""
    if abs(nanoseconds) < 1_000_000:
        return f"{nanoseconds / 1e3:.0f} µs"
    return f"{nanoseconds / 1e6:.1f} ms" if abs(nanoseconds) < 1_000_000_000 else f"{nanoseconds / 1e9:.2f} s"


def size(count: int) -> str:
    """Return a number of bytes in B, kB, MB, GB or TB."""
    amount = float(count)
    for unit in ("B", "kB", "MB"):
        if amount < 999.5:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB" if amount < 999.5 else f"{amount / 1000:.4g} TB"


def step_name(step: int | None, *, validate: bool) -> str:
    """Return a step's name in tables: its number, with `val` for a validation pass."""
    name = "none" if step is None else str(step)
    return f"{name} val" if validate else name


def status_name(status: object, *, has_root: bool) -> str:
    """Return a trajectory's status in tables: `no root` while it is running, `-` if it is unknown."""
    return printable(str(status or "-")) if has_root else "no root"
