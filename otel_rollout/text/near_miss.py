"""Find the name that a misspelt one stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MAX_EDITS: Final = 2
"""Insertions, deletions, replacements and swaps of neighbours between a variable and the intended one."""
PREFIXES: Final = ("OTE", "OTL", "OETL", "TOEL", "MLF", "MFL", "WAN", "WNA", "WF_", "WEA", "PHO", "TRA")
"""The beginnings of variables that are read here, and of misspelt ones."""


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is meant by `name`, if one is near; case, spaces and punctuation don't count."""
    return next(iter(near(name, known, 1)), None)


def near(name: str, known: Iterable[str], most: int) -> list[str]:
    """Return the known names that are near, the nearest first, as `closest` compares them."""
    # Most commands have nothing to guess.
    import difflib

    by_letters = {_letters(one): one for one in known}
    return [by_letters[each] for each in difflib.get_close_matches(_letters(name), by_letters, most, cutoff=0.7)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean 'x'?` for the end of a message; empty if no known name is near."""
    one = closest(name, known)
    return "" if one is None else f"; did you mean {one!r}?"


def misspelt_argument(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is one letter, or one swap of neighbours, away from; None if there is none.

    Stricter than `closest`, as any other name is allowed too: another first letter is another word (`rate`, `fate`),
    and a number makes a name of its own (`reward_2`).
    """
    letters = _letters(name)
    if not letters.isalpha():
        return None
    return next((one for one in known if one[0] == letters[0] and edits(letters, one) <= 1), None)


def _letters(name: str) -> str:
    return re.sub(r"[\W_]", "", name.lower())


def edits(one: str, other: str) -> int:
    """Return the edits between two names; more than `MAX_EDITS` if their lengths differ by more."""
    if abs(len(one) - len(other)) > MAX_EDITS:
        return MAX_EDITS + 1
    before, last = list[int](), list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        line = [row]
        for column, theirs in enumerate(other, 1):
            edits = min(last[column] + 1, line[-1] + 1, last[column - 1] + (letter != theirs))
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == theirs:
                edits = min(edits, before[column - 2] + 1)
            line.append(edits)
        before, last = last, line
    return last[-1]
