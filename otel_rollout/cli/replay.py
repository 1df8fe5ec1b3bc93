"""`otel-rollout replay`: what was recorded to any backend, as if it had been sent live."""

from __future__ import annotations

import argparse
import sys
from typing import Any, Final

from otel_rollout.cli.arguments import seconds
from otel_rollout.cli.trajectory_filters import add_filters, add_folder, filters_of

__all__ = ["add_to"]

DESCRIPTION: Final = """\
Send the trajectories of a trace folder, or of a spool, to a backend: with the
ids, times and tags that they were recorded with.

What the backend has confirmed is noted in DIR/.replay, so that an interrupted
replay goes on where it was, and a second one sends nothing. Sending once more
(--again) adds nothing either, on MLflow, Weave and Phoenix.
"""

EPILOG: Final = """\
exit codes:
  0    the backend has everything that was to be replayed
  1    it does not; the counts say why
  2    the command line or a setting needs a change
  130  interrupted; run it again to go on
"""


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of the command line."""
    parser = commands.add_parser(
        "replay",
        help="send recorded trajectories to a backend",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_folder(parser)
    parser.add_argument(
        "--backend",
        metavar="NAME[,NAME]",
        help="mlflow, weave, otlp, or another exporter (default: OTEL_TRACES_EXPORTER)",
    )
    add_filters(parser)
    parser.add_argument("--again", action="store_true", help="send also what was delivered before")
    parser.add_argument("--remove", action="store_true", help="remove each file of a spool once all in it is delivered")
    parser.add_argument(
        "--patience",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="give up a backend that takes nothing for so long (default: 60)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from otel_rollout.analysis.trace_tree import printable
    from otel_rollout.backends import requested_backend
    from otel_rollout.errors import ConfigurationError
    from otel_rollout.replay.progress import show_progress
    from otel_rollout.replay.session import replay
    from otel_rollout.replay.wording import describe
    from otel_rollout.settings import resolve_settings

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
