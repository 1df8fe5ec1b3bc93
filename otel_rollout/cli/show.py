"""`otel-rollout show`: one trajectory as a tree."""

from __future__ import annotations

import argparse
import sys
from itertools import islice
from typing import Any, Final

from otel_rollout.analysis.trace_tree import printable
from otel_rollout.cli.json_output import print_json_text
from otel_rollout.cli.reading import ProblemLog, in_order_of_prompts, require_rich, selected
from otel_rollout.cli.trajectory_filters import add_filters, add_folder
from otel_rollout.trace_folder.reader import RecordedTrajectory

__all__ = ["add_to", "run"]

DESCRIPTION = """\
Show one trajectory as a tree of its spans: kind, duration, when each ran, input
and output. Name it by --step, --sample and --rollout, or by --trace.
"""

MAX_CANDIDATES: Final = 20
TRACE_ID_DIGITS: Final = 32


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of the command line."""
    parser = commands.add_parser(
        "show",
        help="show one trajectory of a trace folder as a tree",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_folder(parser)
    parser.add_argument("--trace", metavar="ID", type=_trace_id, help="its trace id; the beginning will do")
    add_filters(parser)
    parser.add_argument("--full", action="store_true", help="whole payloads, all attributes and events")
    parser.add_argument("--json", action="store_true", help="one line of OTLP JSON, as any OTLP receiver takes it")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    problems = ProblemLog()
    beginning = arguments.trace or ""
    matching = (each for each in selected(arguments, problems) if each.trace_id.startswith(beginning))
    found = list(islice(matching, 1 if len(beginning) == TRACE_ID_DIGITS else MAX_CANDIDATES + 1))
    problems.print()
    if not found:
        print(printable(f"no trajectory in {arguments.folder} is like that"), file=sys.stderr)
        return 2
    if len(found) > 1:
        _print_candidates(found)
        return 2
    if arguments.json:
        print_json_text(found[0].otlp_json())
    else:
        _print_tree(found[0], is_whole=arguments.full)
    return 0


def _print_tree(trajectory: RecordedTrajectory, *, is_whole: bool) -> None:
    require_rich()
    from otel_rollout.cli.screen import open_screen
    from otel_rollout.cli.trajectory_drawing import draw_heading, draw_spans

    screen = open_screen()
    is_clipped = screen.is_terminal and not is_whole
    for line in draw_heading(trajectory):
        screen.print(line, soft_wrap=True)
    screen.print()
    for line in draw_spans(trajectory.spans, width=screen.width, is_whole=is_whole):
        screen.print(line, no_wrap=is_clipped, overflow="ellipsis" if is_clipped else None, soft_wrap=not is_clipped)


def _print_candidates(found: list[RecordedTrajectory]) -> None:
    print(
        f"{'more than ' * (len(found) > MAX_CANDIDATES)}{min(len(found), MAX_CANDIDATES)} trajectories are like that;"
        " name one of them with --step, --sample and --rollout, or with --trace:",
        file=sys.stderr,
    )
    for each in in_order_of_prompts(found[:MAX_CANDIDATES]):
        names = (("step", each.step), ("sample", each.sample_index), ("rollout", each.rollout_n))
        options = [f"--{name} {value}" for name, value in names if value is not None]
        options += ["--validate"] * each.validate
        print(printable(f"  --trace {each.trace_id}  {' '.join(options)}".rstrip()), file=sys.stderr)


def _trace_id(text: str) -> str:
    digits = text.lower().removeprefix("0x")
    if not digits or len(digits) > TRACE_ID_DIGITS or set(digits) - set("0123456789abcdef"):
        raise argparse.ArgumentTypeError(f"{text!r} is not the beginning of a trace id: 32 hexadecimal digits")
    return digits
