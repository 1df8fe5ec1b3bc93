"""`otel-rollout replay`: send recorded trajectories to any backend."""

from __future__ import annotations

import argparse
import sys

from otel_rollout.backends import requested_backend
from otel_rollout.cli.options import add_filters, add_folder, add_seconds, add_trace, exit_codes
from otel_rollout.cli.reading import filters_of
from otel_rollout.errors import ConfigurationError
from otel_rollout.replay import describe, replay, show_progress
from otel_rollout.settings import resolve_settings
from otel_rollout.text.plain_text import printable


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Send the trajectories of a trace folder, or of a spool, to a backend: with the
ids, times and tags that they were recorded with. Nothing is redacted on the
way: that is done where spans are recorded.

DIR/.replay notes what the backend has confirmed, so that an interrupted replay
goes on where it was, and a second one sends nothing. Sending once more
(--again) adds nothing either, on MLflow, Weave, Phoenix and trackio.
"""
    parser.epilog = exit_codes(
        "the backend has everything that was to be replayed",
        failed="it does not; the counts say why",
        interrupted="interrupted; run it again to go on",
    )
    add_folder(parser)
    parser.add_argument(
        "--backend",
        metavar="NAME[,NAME]",
        help="mlflow, weave, phoenix, otlp, file, or another exporter (default: OTEL_TRACES_EXPORTER)",
    )
    add_trace(parser)
    add_filters(parser, has_attempts=False)
    parser.add_argument("--again", action="store_true", help="send also what was delivered before")
    parser.add_argument("--remove", action="store_true", help="remove each file of a spool once all in it is delivered")
    add_seconds(parser, "--patience", "give up a backend that takes nothing for so long (default: 60)")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    settings = resolve_settings({})
    names = [name for name in requested_backend(arguments.backend) if isinstance(name, str)]
    if not names:
        raise ConfigurationError("which backend? Name it with --backend, or in OTEL_TRACES_EXPORTER")
    code = 0
    for name in names:
        done = replay(
            arguments.folder,
            name,
            settings=settings,
            filters=filters_of(arguments),
            trace=arguments.trace or "",
            is_again=arguments.again,
            is_removing=arguments.remove,
            patience=arguments.patience,
            show=show_progress,
        )
        for line in describe(done):
            print(printable(line), file=sys.stdout if done.report.is_whole else sys.stderr)
        if done.is_interrupted:
            return 130
        code = code if done.report.is_whole else 1
    return code
