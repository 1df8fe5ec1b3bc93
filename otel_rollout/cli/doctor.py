"""`otel-rollout doctor`: what the tracer would do here, and whether its backends take a trace."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any, Final

import orjson

from otel_rollout.cli.arguments import seconds

__all__ = ["add_to"]

DESCRIPTION: Final = """\
Show what the tracer reads in this environment: each setting with its value and
where it comes from, the variables that nothing reads, the exporters that are
installed. Then send one small trajectory to each backend, and read it back
where the backend allows.
"""

EPILOG: Final = """\
exit codes:
  0  all is well
  1  a backend failed
  2  a setting needs a change
"""

_STYLES: Final = {"heading": "\x1b[1m", "dim": "\x1b[2m", "good": "\x1b[32m", "bad": "\x1b[31m"}


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of the command line."""
    parser = commands.add_parser(
        "doctor",
        help="check the settings, and try each backend",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--backend", metavar="NAME[,NAME]", help="mlflow, weave, otlp, … (default: OTEL_TRACES_EXPORTER)"
    )
    parser.add_argument(
        "--project",
        default="otel-rollout-doctor",
        help="what the trajectories are filed under (default: otel-rollout-doctor)",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="for a backend to take the trajectory, and to give it back (default: 60)",
    )
    parser.add_argument("--offline", action="store_true", help="leave the backends alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from otel_rollout.analysis.trace_tree import printable
    from otel_rollout.doctor.examination import examine
    from otel_rollout.doctor.wording import describe

    # The console exporter's tree must not stand in the middle of the JSON.
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        examination = examine(
            arguments.backend,
            project=arguments.project,
            timeout=arguments.timeout,
            is_offline=arguments.offline,
            on_backend=_announce,
        )
    _clear_announcement()
    if arguments.json:
        print(orjson.dumps(examination.as_dict(), option=orjson.OPT_INDENT_2).decode())
        return examination.exit_code
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    for line in describe(examination):
        style = _STYLES.get(line.tone) if is_coloured else None
        text = printable(line.text)
        print(f"{style}{text}\x1b[0m" if style and text else text)
    return examination.exit_code


def _announce(name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[Ktrying {name} …", end="", file=sys.stderr, flush=True)


def _clear_announcement() -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
