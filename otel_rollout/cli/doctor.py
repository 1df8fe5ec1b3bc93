"""`otel-rollout doctor`: show the tracer's settings here, and try each backend."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from typing import Final

import orjson

from otel_rollout.cli.options import add_seconds, exit_codes
from otel_rollout.doctor import describe, examine
from otel_rollout.text.plain_text import printable

_STYLES: Final = {"heading": "\x1b[1m", "dim": "\x1b[2m", "good": "\x1b[32m", "bad": "\x1b[31m"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Show what the tracer reads in this environment: each setting with its value and
its origin, variables that nothing reads, the exporters that are installed. Then
send one small trajectory to each backend, and read it back if the backend
allows.
"""
    parser.epilog = exit_codes("all is well", failed="a backend failed")
    parser.add_argument(
        "--backend", metavar="NAME[,NAME]", help="mlflow, weave, otlp, … (default: OTEL_TRACES_EXPORTER)"
    )
    parser.add_argument(
        "--project", default="otel-rollout-doctor", help="the trajectory's project (default: otel-rollout-doctor)"
    )
    add_seconds(parser, "--timeout", "for a backend to take the trajectory, and to give it back (default: 60)")
    parser.add_argument("--offline", action="store_true", help="leave the backends alone")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    # Keep the console exporter's tree out of the JSON.
    with contextlib.redirect_stdout(sys.stderr) if arguments.json else contextlib.nullcontext():
        examination = examine(
            arguments.backend,
            project=arguments.project,
            timeout=arguments.timeout,
            is_offline=arguments.offline,
            on_backend=lambda name: _announce(f"trying {name} …"),
        )
    _announce("")
    if arguments.json:
        print(orjson.dumps(examination.as_dict(), option=orjson.OPT_INDENT_2).decode())
        return examination.exit_code
    is_coloured = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in describe(examination, width):
        style = _STYLES.get(line.tone) if is_coloured else None
        text = printable(line.text)
        print(f"{style}{text}\x1b[0m" if style and text else text)
    return examination.exit_code


def _announce(message: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{message}", end="", file=sys.stderr, flush=True)
