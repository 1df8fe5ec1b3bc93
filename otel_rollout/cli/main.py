"""The `otel-rollout` command: parses the command line and runs the module of its command."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from collections.abc import Sequence

from otel_rollout.analysis.plain_text import printable
from otel_rollout.cli.parser import build_parser
from otel_rollout.errors import RolloutTraceError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments after the program's name; those of the process if None.

    Returns:
        The exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        # Without UTF-8, a character that the encoding lacks becomes a mark, not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PlainText())
    parser = build_parser()
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        parser.print_help()
        return 0
    try:
        code: int = importlib.import_module(f"otel_rollout.cli.{parsed.command}").run(parsed)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `otel-rollout ls | head`: or the interpreter would flush into the broken pipe at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (RolloutTraceError, OSError) as error:
        print(printable(f"otel-rollout {parsed.command}: {error}"), file=sys.stderr)
        return 2
    return code


class _PlainText(logging.Formatter):
    """Formats log records without control characters: libraries log text that a model wrote."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines of text."""
        return "\n".join(map(printable, super().format(record).split("\n")))
