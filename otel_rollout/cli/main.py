"""The `otel-rollout` command: parses the command line and runs the module of its command."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

from otel_rollout.cli.messages import complain
from otel_rollout.cli.options import HelpFormatter, exit_codes
from otel_rollout.errors import RolloutTraceError
from otel_rollout.text.plain_text import printable
from otel_rollout.version import __version__

COMMANDS: Final = {
    "demo": "run a small agentic rollout and trace it",
    "ls": "list a trace folder by step, the trajectories of a step, or the rollouts of a prompt",
    "show": "show one trajectory of a trace folder: as a tree, or as a conversation",
    "stats": "count what a trace folder holds",
    "diagnose": "find what is wrong with a run, with the trajectories that prove it",
    "compare": "compare two runs, figure by figure and prompt by prompt",
    "query": "ask a trace folder a question in SQL",
    "export": "write a trace folder as Parquet tables, and add the steps that have finished since",
    "view": "open a run in a browser: steps, groups, trajectories, timelines, search",
    "top": "show the trajectories that run now, and what a step waits for",
    "replay": "send recorded trajectories to a backend",
    "receive": "take spans over OTLP, and write them into a trace folder",
    "import": "add the OpenTelemetry Collector's files to a trace folder",
    "doctor": "check the settings, and try each backend",
}
"""The commands; each is a module of this package, which is imported if the command is on the command line."""
_MODULES: Final = {"import": "import_files"}
"""Modules that can't have the name of their command, which is a keyword of Python."""
_BELOW_ZERO: Final = re.compile(r"-[\d.]")


def main(arguments: Sequence[str] | None = None, at_start: Callable[[], object] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The arguments after the program's name; the process's if None.
        at_start: Called once an interrupt is handled here.

    Returns:
        The exit code.
    """
    command = ""
    try:
        if at_start is not None:
            at_start()
        _prepare_streams()
        parsed = parse(sys.argv[1:] if arguments is None else arguments)
        if parsed.command is None:
            return 0
        command = f" {parsed.command}"
        code: int = _module(parsed.command).run(parsed)
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


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; without a command print the help; if it is wrong, exit with 2 and the usage.

    Args:
        arguments: The arguments after the program's name.
    """
    parser = argparse.ArgumentParser(
        prog="otel-rollout",
        description="Trace agentic RL rollouts: one OpenTelemetry trace per trajectory.",
        epilog=exit_codes(
            "what was asked for is done: shown, checked, or delivered as a whole",
            failed="spans were lost, a backend was not reached, or a check found something",
            interrupted="interrupted; what was traced until then was delivered",
        ),
        formatter_class=HelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"otel-rollout {__version__}")
    choices = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    parsers = {
        name: choices.add_parser(name, help=short, formatter_class=HelpFormatter) for name, short in COMMANDS.items()
    }
    # The options before a command have no values.
    at = next((at for at, argument in enumerate(arguments) if not argument.startswith("-")), len(arguments))
    command = "".join(arguments[at : at + 1])
    if command not in parsers:
        parsed = parser.parse_args(arguments)
        parser.print_help()
        return parsed
    parser.parse_args(arguments[:at])
    own = parsers[command]
    _module(command).add_options(own)
    # Options and folders come in any order.
    parsed, unknown = own.parse_known_intermixed_args(_joined(arguments[at + 1 :]))
    if unknown:
        own.error(f"unrecognized arguments: {' '.join(unknown)}")
    parsed.command = command
    return parsed


def _module(command: str) -> ModuleType:
    return importlib.import_module(f"otel_rollout.cli.{_MODULES.get(command, command)}")


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join `--reward` with a range that begins with a minus, which argparse takes for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--reward" and _BELOW_ZERO.match(argument):
            joined[-1] = f"--reward={argument}"
        else:
            joined.append(argument)
    return joined


def _prepare_streams() -> None:
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        # `>&-`: the next file to be opened would get the descriptor.
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - the process's
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        # Without UTF-8, a character that the encoding lacks becomes a mark, not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_PlainText())


class _PlainText(logging.Formatter):
    """Formats log records without control characters: libraries log text that a model wrote."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as lines of text."""
        return "\n".join(map(printable, super().format(record).split("\n")))
