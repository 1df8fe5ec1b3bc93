"""The `otel-rollout` command line: parses it and hands it to the command."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from collections.abc import Sequence

from otel_rollout.analysis.trace_tree import printable
from otel_rollout.cli import demo, doctor, ls, replay, show, stats
from otel_rollout.errors import RolloutTraceError
from otel_rollout.version import __version__

__all__ = ["main"]

EXIT_CODES = """\
exit codes:
  0    what was asked for is done: shown, checked, or delivered as a whole
  1    spans were lost, or the backend could not be reached in time
  2    the command line, the folder (damaged, say) or the installation needs a change
  130  interrupted; what was traced until then was delivered
  141  nobody reads the output any more
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments after the program's name; those of the process where None.

    Returns:
        The exit code.
    """
    for stream in (sys.stdout, sys.stderr):
        # Where there is no UTF-8, what has no letter there is a mark, and no error.
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
        code: int = parsed.run(parsed)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `otel-rollout ls | head`: the interpreter must not find the pipe broken once more at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (RolloutTraceError, OSError) as error:
        print(printable(f"otel-rollout {parsed.command}: {error}"), file=sys.stderr)
        return 2
    return code


class _PlainText(logging.Formatter):
    """Formats what libraries log of a trace, text that a model wrote say, so that no terminal acts on it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines of text."""
        return "\n".join(map(printable, super().format(record).split("\n")))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="otel-rollout",
        description="Trace agentic RL rollouts: one OpenTelemetry trace per trajectory.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"otel-rollout {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for command in (demo, ls, show, stats, replay, doctor):
        command.add_to(commands)
    return parser
