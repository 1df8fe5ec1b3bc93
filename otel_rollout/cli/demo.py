"""`otel-rollout demo`: run a small agentic rollout, traced."""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import Final

from otel_rollout.cli import view
from otel_rollout.cli.parser import build_parser, parse
from otel_rollout.errors import MissingExtraError
from otel_rollout.installing import install_line

__all__ = ["run"]

INTERRUPTED: Final = 130
DEFAULT_BACKENDS: Final = ("mlflow", "file")
"""The demo's backends if nothing names one, for a first look without setup."""


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
        view.run(parse(build_parser(), ["view"]))
    return code
