"""Lines on standard error."""

from __future__ import annotations

import shutil
import sys

from otel_rollout.look.terminal.hints import sentence_lines
from otel_rollout.text.plain_text import printable


def complain(message: str) -> None:
    """Print a line on standard error; on a terminal broken between words."""
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
    for line in sentence_lines(printable(message), width):
        print(line, file=sys.stderr)
