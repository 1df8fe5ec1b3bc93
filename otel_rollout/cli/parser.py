"""The command line: its commands. Imports nothing that a command needs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Final

from otel_rollout.cli.reading_commands import add_diagnose, add_ls, add_show, add_stats, add_top, add_view
from otel_rollout.cli.shared_options import exit_codes
from otel_rollout.cli.tracing_commands import add_demo, add_doctor, add_import, add_receive, add_replay
from otel_rollout.version import __version__

__all__ = ["build_parser", "parse"]

EXIT_CODES: Final = exit_codes(
    "what was asked for is done: shown, checked, or delivered as a whole",
    failed="spans were lost, a backend was not reached, or diagnose has findings",
    interrupted="interrupted; what was traced until then was delivered",
)

_BELOW_ZERO: Final = re.compile(r"-[\d.]")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line; `module`, else `command`, of `otel_rollout.cli` runs it."""
    parser = argparse.ArgumentParser(
        prog="otel-rollout",
        description="Trace agentic RL rollouts: one OpenTelemetry trace per trajectory.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"otel-rollout {__version__}")
    commands = parser.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for add in (
        add_demo,
        add_ls,
        add_show,
        add_stats,
        add_diagnose,
        add_view,
        add_top,
        add_replay,
        add_receive,
        add_import,
        add_doctor,
    ):
        add(commands)
    return parser


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line; exits with 2 and the usage of its command if it is wrong.

    Args:
        parser: The parser of `build_parser`.
        arguments: The arguments after the program's name.
    """
    parsed, unknown = parser.parse_known_args(_joined(arguments))
    if unknown:
        own = _commands_of(parser).get(parsed.command or "", parser)
        own.error(f"unrecognized arguments: {' '.join(unknown)}")
    return parsed


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join `--reward` with a range that begins with a minus, which argparse takes for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] == "--reward" and _BELOW_ZERO.match(argument):
            joined[-1] = f"--reward={argument}"
        else:
            joined.append(argument)
    return joined


def _commands_of(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no other way to its subparsers
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return action.choices
    return {}
