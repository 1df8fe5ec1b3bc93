"""The `otel-rollout` command: parses the command line and runs the module of its command."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys
from collections.abc import Callable, Sequence

from otel_rollout.cli.messages import complain
from otel_rollout.cli.parser import build_parser, parse
from otel_rollout.errors import RolloutTraceError
from otel_rollout.text.plain_text import printable

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None, at_start: Callable[[], object] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments after the program's name; those of the process if None.
        at_start: Called once an interrupt is handled here.

    Returns:
        The exit code.
    """
    command = ""
    try:
        if at_start is not None:
            at_start()
        parsed = _parse(sys.argv[1:] if arguments is None else arguments)
        if parsed is None:
            return 0
        command = f" {parsed.command}"
        code: int = importlib.import_module(f"otel_rollout.cli.{getattr(parsed, 'module', parsed.command)}").run(parsed)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `otel-rollout ls | head`: or the interpreter would flush into the broken pipe at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (RolloutTraceError, OSError) as error:
        complain(f"otel-rollout{command}: {error}")
        return 2
    return code


def _parse(arguments: Sequence[str]) -> argparse.Namespace | None:
    """Return the parsed command line; None if there is no command, which prints the help."""
    for stream in (sys.stdout, sys.stderr):
        # Without UTF-8, a character that the encoding lacks becomes a mark, not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PlainText())
    parser = build_parser()
    parsed = parse(parser, arguments)
    if parsed.command is None:
        parser.print_help()
        return None
    return parsed


class _PlainText(logging.Formatter):
    """Formats log records without control characters: libraries log text that a model wrote."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines of text."""
        return "\n".join(map(printable, super().format(record).split("\n")))
