"""Patterns: compiled, and refused if a search could take more than linear time.

`re` holds the GIL while it searches: a pattern that backtracks would stop the trainer, not only delivery.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final

try:
    constants, parser = import_module("re._constants"), import_module("re._parser")
except ImportError:  # before Python 3.11
    constants, parser = import_module("sre_constants"), import_module("sre_parse")


MAX_WAYS: Final = 1000
"""At most this many ways of matching are tried at one place of a text."""

_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_LAST_ASCII: Final = 127
_BEYOND_ASCII: Final = 0x100
_ANYTHING: Final = ("ANY", None)
_GROUPS: Final = {"SUBPATTERN": -1, "ATOMIC_GROUP": 0, "ASSERT": 1, "ASSERT_NOT": 1}
"""The place of the group's content in the parsed arguments."""


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
    fault = fault_of(text)
    if fault:
        raise ValueError(f"regular expressions that take linear time, and {text!r} may not: {fault}")
    return pattern


def fault_of(text: str, *, max_ways: int = MAX_WAYS) -> str:
    """Return the reason why a pattern may take more than linear time; an empty text if there is none.

    Args:
        text: A regular expression.
        max_ways: The most ways of matching at one place.
    """
    try:
        _ways(list(parser.parse(text)), [], max_ways)
    except _FaultError as fault:
        return str(fault)
    return ""


class _FaultError(Exception):
    """The pattern may take more than linear time."""


def _ways(items: list[Any], after: list[Any], max_ways: int) -> int:
    """Return the number of ways in which the parsed items may match at one place of a text.

    Args:
        items: Parsed items.
        after: The items that follow them.
        max_ways: The most ways.
    """
    ways = 1
    for place, (operation, argument) in enumerate(items):
        name, rest = str(operation), [*items[place + 1 :], *after]
        if name in _REPEATS:
            least, most, content = argument
            inner = _ways(list(content), rest if most == 1 else [_ANYTHING], max_ways)
            is_open = most is constants.MAXREPEAT
            if inner > 1 and (is_open or inner ** int(most) > max_ways):
                raise _FaultError("a repeat holds another choice")
            if is_open and rest and name != "POSSESSIVE_REPEAT":
                raise _FaultError("a repeat that more follows needs an end, such as {1,100} in the place of +")
            # A repeat that what follows can't be a part of ends in one place.
            is_certain = not rest or name == "POSSESSIVE_REPEAT" or (len(content) == 1 and _are_apart(content[0], rest))
            ways *= inner ** (least if is_open else int(most)) * (1 if is_certain else int(most) - least + 1)
        elif name == "BRANCH":
            ways *= sum(_ways(list(branch), rest, max_ways) for branch in argument[1])
        elif name in _GROUPS:
            content = argument if name == "ATOMIC_GROUP" else argument[_GROUPS[name]]
            inner = _ways(list(content), rest if name == "SUBPATTERN" else [_ANYTHING], max_ways)
            ways *= 1 if name == "ATOMIC_GROUP" else inner
        elif name == "GROUPREF_EXISTS":
            ways *= sum(_ways(list(branch), rest, max_ways) for branch in argument[1:] if branch is not None)
        if ways > max_ways:
            raise _FaultError(f"its repeats have more than {max_ways:,} ways to match together")
    return ways


def _are_apart(repeated: Any, rest: list[Any]) -> bool:
    """Return True if no repeated character can be the first that follows."""
    characters = _characters(repeated)
    following = _first_of(rest)
    return characters is not None and following is not None and characters.isdisjoint(following)


def _first_of(items: list[Any]) -> frozenset[int] | None:
    """Return the characters that items may begin with; None if they can fail without one, or aren't known."""
    found: frozenset[int] = frozenset()
    for item in items:
        name, argument = str(item[0]), item[1]
        is_optional = False
        first: frozenset[int] | None
        if name in _REPEATS:
            first, is_optional = _first_of(list(argument[2])), argument[0] == 0
        elif name == "SUBPATTERN" or (name == "ASSERT" and argument[0] > 0):
            first = _first_of(list(argument[-1]))
        elif name == "BRANCH":
            branches = [_first_of(list(branch)) for branch in argument[1]]
            first = None if None in branches else frozenset().union(*filter(None, branches))
        else:
            first = _characters(item)
        if first is None:
            return None
        found |= first
        if not is_optional:
            return found
    return found


def _characters(item: Any) -> frozenset[int] | None:
    """Return the ASCII characters that an item matches, `_BEYOND_ASCII` for others; None if it is no single one."""
    name = str(item[0])
    if name not in ("LITERAL", "NOT_LITERAL", "IN", "ANY", "CATEGORY"):
        return None
    return frozenset(code for code in (*range(128), _BEYOND_ASCII) if _matches(item, code))


def _matches(item: Any, code: int) -> bool:
    name, argument = str(item[0]), item[1]
    if name == "LITERAL":
        return bool(argument == code) or (argument > _LAST_ASCII and code > _LAST_ASCII)
    if name == "NOT_LITERAL":
        return bool(argument != code)
    if name == "RANGE":
        return bool(argument[0] <= code <= argument[1]) or (code > _LAST_ASCII and argument[1] > _LAST_ASCII)
    if name == "CATEGORY":
        sign = str(argument)
        is_in = {"SPACE": str.isspace, "WORD": lambda one: one.isalnum() or one == "_", "DIGIT": str.isdigit}
        kind = sign.rpartition("_")[2]
        return bool(is_in[kind](chr(code))) != ("NOT" in sign) if kind in is_in else True
    if name == "IN":
        items = list(argument)
        is_negated = str(items[0][0]) == "NEGATE"
        return any(_matches(one, code) for one in items[is_negated:]) != is_negated
    return True
