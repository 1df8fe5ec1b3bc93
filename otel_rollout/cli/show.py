"""`otel-rollout show`: draw one trajectory as a tree."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice

from otel_rollout.cli.argument_types import TRACE_ID_DIGITS
from otel_rollout.cli.candidates import Candidates
from otel_rollout.cli.messages import complain
from otel_rollout.cli.reading import ProblemLog, nothing_matches, print_json, require_reader, selected
from otel_rollout.folder.reader import RecordedTrajectory

__all__ = ["run"]


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    problems = ProblemLog()
    beginning = arguments.trace or ""
    matching: Iterator[RecordedTrajectory] = (
        each for each in selected(arguments, problems) if each.trace_id.startswith(beginning)
    )
    if len(beginning) == TRACE_ID_DIGITS:
        # Its file is found without reading the others.
        matching = islice(matching, 1)
    candidates = Candidates(matching)
    problems.print()
    if not candidates.count:
        complain(nothing_matches(arguments))
        return 2
    if candidates.count > 1:
        for line in candidates.describe(is_terminal=sys.stderr.isatty()):
            complain(line)
        return 2
    trajectory = candidates.first[0]
    if arguments.json:
        print_json(trajectory.otlp_json())
    else:
        _print_drawing(trajectory, is_whole=arguments.full, is_chat=arguments.chat)
    return 0


def _print_drawing(trajectory: RecordedTrajectory, *, is_whole: bool, is_chat: bool) -> None:
    require_reader()
    from otel_rollout.look.terminal.chat_drawing import draw_chat
    from otel_rollout.look.terminal.screen import open_screen
    from otel_rollout.look.terminal.trace_drawing import draw_heading, draw_spans

    screen = open_screen()
    wrap_at = screen.width if screen.is_terminal else None
    for line in draw_heading(trajectory):
        screen.print(line, soft_wrap=True)
    screen.print()
    if is_chat:
        lines = draw_chat(trajectory, width=wrap_at)
    else:
        lines = draw_spans(trajectory.spans, width=screen.width, is_whole=is_whole, wrap_at=wrap_at)
    is_clipped = screen.is_terminal and not is_whole and not is_chat
    for line in lines:
        screen.print(line, no_wrap=is_clipped, overflow="ellipsis" if is_clipped else None, soft_wrap=not is_clipped)
