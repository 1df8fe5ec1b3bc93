"""`otel-rollout ls --perfetto FILE`: the timeline of trajectories as a file for ui.perfetto.dev."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import orjson

from otel_rollout.errors import ConfigurationError
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.folder.summaries import summaries_of
from otel_rollout.look.perfetto import trace_events
from otel_rollout.text.plain_text import counted

__all__ = ["write_timeline"]


def write_timeline(trajectories: Iterable[RecordedTrajectory], path: Path) -> int:
    """Write the file, and return the number of trajectories in it.

    Args:
        trajectories: The trajectories; one that can't be read has no spans there.
        path: The file, which is replaced.

    Raises:
        ConfigurationError: It can't be written.
    """
    summaries = list(summaries_of(trajectories))
    if not summaries:
        return 0
    try:
        with path.open("wb") as file:
            file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
            for position, event in enumerate(trace_events(summaries)):
                file.write((b",\n" if position else b"") + orjson.dumps(event))
            file.write(b"\n]}\n")
    except OSError as error:
        raise ConfigurationError(f"--perfetto {path}: the file can't be written: {error.strerror or error}") from error
    print(
        f"{path}: {counted(len(summaries), 'trajectory')}; open it in https://ui.perfetto.dev or chrome://tracing",
        file=sys.stderr,
    )
    return len(summaries)
