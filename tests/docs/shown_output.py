"""Compare the output that a page shows with what a command prints."""

from __future__ import annotations

import re

_SLACK = 6

# In this order: a time or a size is a number too.
_VARYING = [
    (re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]"), ""),
    (re.compile(r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d\b"), "DATE"),
    (re.compile(r"\b\d{8}-\d{6}(?:-\d{3})?\b"), "DATE"),
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "VERSION"),
    (re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8,32}\b"), "ID"),
    (re.compile(r"\b\d[\d,.]* ?(?:µs|ms|s|kB|MB|B)(?!\w)"), "AMOUNT"),
    (re.compile(r'bytes":\d+'), 'bytes":AMOUNT'),
    (re.compile(r"\b0\.\d+ of that\b"), "RATIO of that"),
    (re.compile(r"[━╸╺]+"), "━"),
    (re.compile(r"[ \t]+"), " "),
]


def normalized(text: str) -> list[str]:
    """Return the lines without what differs from run to run: ids, dates, durations, sizes, the widths of columns."""
    for pattern, name in _VARYING:
        text = pattern.sub(name, text)
    return [line.strip() for line in text.strip().splitlines()]


def agrees(shown: str, printed: str) -> bool:
    """Whether the output is as shown, where `…` stands for any text, and on a line of its own for any lines."""
    pattern = "\n".join(_pattern(line) for line in normalized(shown))
    return re.fullmatch(pattern, "\n".join(normalized(printed))) is not None


def _pattern(line: str) -> str:
    if line == "…":
        return r"[^\n]*(?:\n[^\n]*)*"
    # A value that is cut in its middle keeps less of its end then, too.
    first, *others = re.sub(r"…\S+", "…", line).split("…")
    # A column that is a digit wider cuts a preview a little earlier.
    start = first[:-_SLACK] if others and len(first) > 2 * _SLACK else first
    return r"[^\n]*".join(re.escape(part) for part in (start, *others))
