"""Users' patterns: compiled, and refused if a search could take more than linear time.

`re` holds the GIL while it searches: a pattern that backtracks would stop the trainer, not only delivery.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["compile_pattern"]

MAX_WAYS: Final = 1000
"""At most this many ways of matching are tried at one place of a text."""

_ATOM: Final = re.compile(
    r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-9]{1,3}|.)"
    r"|\[\^?\]?(?:\\.|\[:|[^\]\\])*\]"
    r"|\(\?#[^)]*\)"
    r"|\((?:\?(?:P<\w+>|P=\w+|<?[=!]|[aiLmsux-]*:|[aiLmsux]+(?=\))|>|\(\w+\)))?"
    r"|.",
    re.DOTALL,
)
_REPEAT: Final = re.compile(r"(?:([*+?])|\{(\d*)(,?)(\d*)\})[?+]?")


def compile_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern, compiled.

    Args:
        text: A regular expression of Python's `re`.

    Raises:
        ValueError: The text is not a regular expression, matches the empty text, or may take more than linear time.
    """
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"regular expressions, and {text!r} is none: {error}") from None
    if pattern.search("") is not None:
        raise ValueError(f"regular expressions that match something, and {text!r} matches the empty text")
    fault = _fault(text)
    if fault:
        raise ValueError(f"regular expressions that take linear time, and {text!r} may not: {fault}")
    return pattern


def _fault(text: str) -> str:
    """Return the reason why a pattern may take more than linear time; an empty text if there is none."""
    # For each open group: the ways to match its earlier alternatives, and the current one.
    open_groups: list[list[int]] = [[0, 1]]
    position = 0
    while position < len(text):
        atom = _ATOM.match(text, position)
        if atom is None:
            break
        position, sign = atom.end(), atom[0]
        ways = 1
        if sign[0] == "(" and sign[-1] != ")":
            open_groups.append([0, 1])
            continue
        if sign == "|":
            group = open_groups[-1]
            group[0], group[1] = group[0] + group[1], 1
            continue
        if sign == ")" and len(open_groups) > 1:
            ways = sum(open_groups.pop())
        repeat = _REPEAT.match(text, position)
        if repeat is not None and (repeat[1] or repeat[2] or repeat[4]):
            position = repeat.end()
            least, most = _bounds(repeat)
            if most is None:
                if ways > 1:
                    return "a repeat without an end holds another choice"
                if text[position:].strip(")"):
                    return "a repeat that more follows needs an end, such as {1,100} in the place of +"
                most = least
            elif ways > 1 and ways**most > MAX_WAYS:
                return "its repeats hold other choices"
            ways = ways**most * (most - least + 1)
        open_groups[-1][1] *= ways
        if open_groups[-1][1] > MAX_WAYS:
            return f"its repeats have more than {MAX_WAYS:,} ways to match together"
    return ""


def _bounds(repeat: re.Match[str]) -> tuple[int, int | None]:
    if repeat[1]:
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[repeat[1]]
    least = int(repeat[2] or 0)
    if not repeat[3]:
        return least, least
    return least, int(repeat[4]) if repeat[4] else None
