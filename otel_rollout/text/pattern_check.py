"""Patterns: compiled, and refused if a search takes long: `re` holds the GIL, and would stop the trainer."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import lru_cache
from typing import Final

MAX_SECONDS: Final = 0.5
"""CPU time for the search of all texts; a linear pattern takes a tenth of it."""
MAX_WAIT: Final = 60
_TRY: Final = """
import re, signal, sys
signal.signal(signal.SIGPROF, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
pattern = re.compile(sys.argv[1])
units = ["a", "0", " ", "-", "a ", "ab", "a1", "A", "aA0_", "x@y.", "a=", '"', "\\\\", "1.", "\\u00e9", "key: value\\n"]
signal.setitimer(signal.ITIMER_PROF, float(sys.argv[2]))
for unit in (*units, *sorted(set(filter(str.isalnum, sys.argv[1])))[:8]):
    pattern.sub("", (unit * 20_000)[:20_000] + "!")
"""
"""Searches texts of 20 KB, in which repeats match for long and fail at the end; the timer's signal ends the process."""


@lru_cache(64)
def compile_pattern(text: str) -> re.Pattern[str]:
    """Return the pattern, compiled.

    Args:
        text: A regular expression of Python's `re`.

    Raises:
        ValueError: The text is not a regular expression, matches the empty text, or takes long.
    """
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"regular expressions, and {text!r} is none: {error}") from None
    if pattern.search("") is not None:
        raise ValueError(f"regular expressions that match something, and {text!r} matches the empty text")
    command = [sys.executable, "-I", "-S", "-c", _TRY, text, str(MAX_SECONDS)]
    try:
        code = subprocess.run(command, timeout=MAX_WAIT, check=False).returncode  # noqa: S603  # our own program
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"regular expressions that can be tried in a process of their own: {error}") from None
    if code:
        raise ValueError(
            f"regular expressions that take linear time, and {text!r} takes more than {MAX_SECONDS:g} s of CPU for "
            "480 KB: a repeat that more follows needs an end, such as {1,100} in the place of +"
        )
    return pattern
