"""`otel-rollout demo`: a small agentic rollout, traced, with a look at what came of it."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import Any

from otel_rollout.cli.arguments import positive, seconds

__all__ = ["add_to"]

DESCRIPTION = """\
Run a small agentic rollout and trace it: word problems, an agent loop with two
tools, and a policy that makes mistakes.

Without --backend, OTEL_TRACES_EXPORTER and OTEL_EXPORTER_OTLP_ENDPOINT say where
the traces go; without those, they go to MLflow in the file mlruns.db of this
folder, or stay on the screen where mlflow is not installed.
"""


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of the command line."""
    parser = commands.add_parser(
        "demo",
        help="run a small agentic rollout and trace it",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--backend", metavar="NAME[,NAME]", help="mlflow, weave, otlp, console, or another exporter")
    parser.add_argument("--steps", type=positive, default=2, metavar="N", help="training steps (default: 2)")
    parser.add_argument("--samples", type=positive, default=16, metavar="N", help="problems a step (default: 16)")
    parser.add_argument("--rollouts", type=positive, default=4, metavar="N", help="rollouts of each (default: 4)")
    parser.add_argument("--concurrency", type=positive, default=64, metavar="N", help="at a time (default: 64)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="decides what the policy does (default: 0)")
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="wait for the backend at the end (default: 60)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    missing = [package for package in ("rich", "tokenizers") if importlib.util.find_spec(package) is None]
    if missing:
        print(
            f"otel-rollout demo needs {' and '.join(missing)}: pip install 'otel-rollout[demo]'",
            file=sys.stderr,
        )
        return 2
    from otel_rollout.demo.session import Settings, run_session

    return run_session(
        Settings(
            backend=arguments.backend,
            steps=arguments.steps,
            samples=arguments.samples,
            rollouts=arguments.rollouts,
            concurrency=arguments.concurrency,
            seed=arguments.seed,
            timeout=arguments.timeout,
        )
    )
