"""Sentences and commands on a terminal: broken between words, and elsewhere whole."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

_WORDS: Final = re.compile(r"""(?:'[^']*'|"[^"]*"|\S)+""")
CONTINUED: Final = "    "
"""The margin of a command's further lines."""


def sentence_lines(text: str, width: int | None, margin: str = "") -> Iterator[str]:
    """Yield a sentence's lines; a word that is longer than a line, such as a path, stays whole.

    Args:
        text: The sentence.
        width: The screen's columns; None for programs.
        margin: Precedes each line.
    """
    if width is None or len(margin + text) <= width:
        yield margin + text
        return
    yield from textwrap.wrap(
        text, width, initial_indent=margin, subsequent_indent=margin, break_long_words=False, break_on_hyphens=False
    )


def command_lines(command: str, width: int | None, margin: str = "") -> Iterator[str]:
    """Yield a command's lines, which can be copied as they are: all but the last end with a backslash.

    Args:
        command: The command, as it is typed.
        width: The screen's columns; None for programs.
        margin: Precedes each line.
    """
    if width is None or len(margin + command) <= width:
        yield margin + command
        return
    line = ""
    for part in _parts(_WORDS.findall(command)):
        if line and len(f"{margin}{line} {part} \\") > width:
            yield f"{margin}{line} \\"
            line = CONTINUED + part
        else:
            line = f"{line} {part}" if line else part
    yield margin + line


def _parts(words: list[str]) -> Iterator[str]:
    """Yield the words of a command, an option with its value."""
    option = ""
    for word in words:
        if option and word.startswith("-"):
            yield option
            option = ""
        if word.startswith("--"):
            option = word
            continue
        yield f"{option} {word}" if option else word
        option = ""
    if option:
        yield option
