"""`otel-rollout show`: draw one trajectory as a tree."""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Final

from otel_rollout.cli.parser import TRACE_ID_DIGITS
from otel_rollout.cli.reading import ProblemLog, complain, in_order_of_prompts, print_json, require_reader, selected
from otel_rollout.trace_folder.reader import RecordedTrajectory

__all__ = ["run"]

MAX_CANDIDATES: Final = 20


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    problems = ProblemLog()
    beginning = arguments.trace or ""
    matching = (each for each in selected(arguments, problems) if each.trace_id.startswith(beginning))
    found = list(islice(matching, 1 if len(beginning) == TRACE_ID_DIGITS else MAX_CANDIDATES + 1))
    problems.print()
    if not found:
        complain(f"no trajectory in {arguments.folder} is like that")
        return 2
    if len(found) > 1:
        _print_candidates(found)
        return 2
    if arguments.json:
        print_json(found[0].otlp_json())
    else:
        _print_drawing(found[0], is_whole=arguments.full, is_chat=arguments.chat)
    return 0


def _print_drawing(trajectory: RecordedTrajectory, *, is_whole: bool, is_chat: bool) -> None:
    require_reader()
    from otel_rollout.terminal.chat_drawing import draw_chat
    from otel_rollout.terminal.screen import open_screen
    from otel_rollout.terminal.trace_drawing import draw_heading, draw_spans

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


def _print_candidates(found: list[RecordedTrajectory]) -> None:
    complain(
        f"{'more than ' * (len(found) > MAX_CANDIDATES)}{min(len(found), MAX_CANDIDATES)} trajectories are like that;"
        " name one of them with --step, --sample and --rollout, or with --trace:"
    )
    for each in in_order_of_prompts(found[:MAX_CANDIDATES]):
        names = (("step", each.step), ("sample", each.sample_index), ("rollout", each.rollout_n))
        options = [f"--{name} {value}" for name, value in names if value is not None]
        options += ["--validate"] * each.validate
        complain(f"  --trace {each.trace_id}  {' '.join(options)}".rstrip())
