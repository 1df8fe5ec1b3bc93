"""`otel-rollout replay`: send recorded trajectories to any backend."""

from __future__ import annotations

import argparse
import sys

from otel_rollout.backends import requested_backend
from otel_rollout.cli.reading import filters_of
from otel_rollout.errors import ConfigurationError
from otel_rollout.replay import describe, replay, show_progress
from otel_rollout.settings import resolve_settings
from otel_rollout.text.plain_text import printable

__all__ = ["run"]


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
