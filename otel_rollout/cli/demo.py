"""`otel-rollout demo`: run a small agentic rollout, traced."""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import Final

from otel_rollout.cli import view
from otel_rollout.cli.main import parse
from otel_rollout.cli.options import add_seconds, exit_codes, positive
from otel_rollout.errors import MissingExtraError
from otel_rollout.installing import install_line

INTERRUPTED: Final = 130
DEFAULT_BACKENDS: Final = ("mlflow", "file")
"""The demo's backends if nothing names one, for a first look without setup."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Run a small agentic rollout and trace it: word problems, an agent loop with two
tools, and a policy that makes mistakes.

Without --backend, OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT say
where the traces go; without those, they go to the trace folder rollout-traces,
which otel-rollout view opens, and, if mlflow is installed, to MLflow in the
file mlruns.db of this folder.
"""
    parser.epilog = exit_codes(
        "every backend has every span",
        failed="spans are missing; the counts say where",
        interrupted="interrupted; what was traced until then was delivered",
    )
    parser.add_argument(
        "--backend", metavar="NAME[,NAME]", help="mlflow, weave, phoenix, otlp, file, console, or another exporter"
    )
    parser.add_argument("--steps", type=positive, default=2, metavar="N", help="training steps (default: 2)")
    parser.add_argument("--samples", type=positive, default=16, metavar="N", help="problems a step (default: 16)")
    parser.add_argument("--rollouts", type=positive, default=4, metavar="N", help="rollouts of each (default: 4)")
    parser.add_argument("--concurrency", type=positive, default=64, metavar="N", help="at a time (default: 64)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides what the policy does (default: 0)")
    add_seconds(
        parser,
        "--timeout",
        "wait for the backend at the end (default: 60; before that for a new database, 300 in all)",
        default=None,
    )
    parser.add_argument("--view", action="store_true", help="trace into the folder, and open it in the browser")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    if arguments.view:
        view.require_server()
    missing = [package for package in ("rich", "tokenizers") if importlib.util.find_spec(package) is None]
    if missing:
        raise MissingExtraError(f"this needs {' and '.join(missing)}: {install_line('demo')}")
    from otel_rollout.demo.session import run_session

    # mlflow would log the making of its tables into the progress bar.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    options = {name: value for name, value in vars(arguments).items() if name != "command"}
    code = run_session(default_backends=DEFAULT_BACKENDS, **options)
    if arguments.view and code != INTERRUPTED:
        view.run(parse(["view"]))
    return code
