"""Helpers of the commands that read a trace folder: selection, what could not be read, JSON."""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, cast

from otel_rollout.analysis.plain_text import counted, printable
from otel_rollout.errors import MissingExtraError
from otel_rollout.installing import install_line
from otel_rollout.trace_folder.reader import ReadProblem, RecordedTrajectory, read
from otel_rollout.trace_folder.selection import Filters

__all__ = ["ProblemLog", "complain", "filters_of", "in_order_of_prompts", "print_json", "require_rich", "selected"]

UNESCAPED: Final = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Control and format characters that JSON leaves unescaped, though a terminal acts on them."""


class ProblemLog:
    """Counts what could not be read."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, Path]] = Counter()

    def note(self, problem: ReadProblem) -> None:
        """Count a problem; the `on_problem` of `read`."""
        self._counts[problem.what, problem.path] += 1

    def print(self) -> None:
        """Print a line for each file with problems on standard error."""
        for (what, path), count in self._counts.items():
            complain(f"{counted(count, what)} skipped in {path}")


def complain(message: str) -> None:
    """Print a line on standard error."""
    print(printable(message), file=sys.stderr)


def filters_of(arguments: argparse.Namespace) -> Filters:
    """Return the command line's filters as keyword arguments of `read`."""
    return cast(Filters, {name: getattr(arguments, name) for name in Filters.__optional_keys__})


def selected(arguments: argparse.Namespace, problems: ProblemLog) -> Iterator[RecordedTrajectory]:
    """Return the trajectories of the command line's folder that its filters let through."""
    return read(arguments.folder, **filters_of(arguments), on_problem=problems.note)


def require_rich() -> None:
    """Check that rich is installed, which draws tables and trees.

    Raises:
        MissingExtraError: It is not.
    """
    if importlib.util.find_spec("rich") is None:
        raise MissingExtraError(f"this needs rich: {install_line('cli')} (--json works without)")


def in_order_of_prompts(trajectories: Iterable[RecordedTrajectory]) -> list[RecordedTrajectory]:
    """Sort trajectories by step, prompt and rollout."""
    return sorted(
        trajectories,
        key=lambda each: (
            each.step is None,
            each.step or 0,
            each.validate,
            str(each.experiment_name or ""),
            _sortable(each.sample_index),
            _sortable(each.rollout_n),
            each.start_time,
        ),
    )


def _sortable(value: object) -> tuple[int, float, str]:
    # Numbers by value, then text, then None; a trace of another program may have any type here.
    if value is None:
        return 2, 0, ""
    return (0, value, "") if isinstance(value, (int, float)) else (1, 0, str(value))


def print_json(line: bytes) -> None:
    """Print a line of JSON with what a terminal acts on escaped; it parses to the same value.

    Args:
        line: The JSON text, without a line break.
    """
    # JSON has no tab inside a string, and a terminal moves what it shows at one.
    text = line.replace(b"\t", b"").decode()
    if not text.isprintable():
        text = UNESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", text)
    sys.stdout.buffer.write(text.encode() + b"\n")
