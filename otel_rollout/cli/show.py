"""`otel-rollout show`: draw one trajectory as a tree."""

from __future__ import annotations

import argparse
import heapq
import sys
from collections.abc import Iterable, Iterator
from operator import attrgetter
from shutil import get_terminal_size
from typing import Any, Final

from otel_rollout.catalog.grouping import prompt_order
from otel_rollout.cli.messages import complain
from otel_rollout.cli.options import READ, add_filters, add_folder, add_trace, exit_codes
from otel_rollout.cli.reading import (
    ProblemLog,
    complain_of_redaction,
    distinct_digits,
    nothing_matches,
    print_json,
    redacted_in,
    require_reader,
    selected,
)
from otel_rollout.folder.reader import RecordedTrajectory
from otel_rollout.text.plain_text import status_name

MAX_CANDIDATES: Final = 20
SHORT_ID: Final = 12
GAP: Final = "  "
_OPTIONS: Final = {
    "--step": attrgetter("step"),
    "--train or --validate": attrgetter("validate"),
    "--experiment": attrgetter("experiment_name"),
    "--run": attrgetter("run_id"),
    "--sample": attrgetter("sample_index"),
    "--rollout": attrgetter("rollout_n"),
}
"""The options that name a trajectory, with the attribute that each is compared with."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Show one trajectory as a tree of its spans: kind, duration, when each ran, input
and output; or with --chat as a conversation. Name it by --step, --sample and
--rollout (and --experiment, if the folder has several), or by --trace.
"""
    parser.epilog = exit_codes("shown")
    add_folder(parser, READ)
    add_trace(parser)
    add_filters(parser)
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--chat", action="store_true", help="the conversation: who said what, tool calls, the reward")
    forms.add_argument("--full", action="store_true", help="whole payloads, all attributes and events")
    forms.add_argument("--json", action="store_true", help="one line of OTLP JSON, as any OTLP receiver takes it")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    problems = ProblemLog()
    candidates = Candidates(selected(arguments, problems, arguments.trace or ""))
    problems.print()
    if not candidates.count:
        complain(nothing_matches(arguments))
        return 2
    if candidates.count > 1:
        for line in candidates.describe(get_terminal_size().columns if sys.stderr.isatty() else None):
            complain(line)
        return 2
    trajectory = candidates.first[0]
    if arguments.json:
        print_json(trajectory.otlp_json())
        payloads = [span.attributes or {} for span in trajectory.spans]
        payloads += [event.attributes or {} for span in trajectory.spans for event in span.events]
        complain_of_redaction(redacted_in(item for payload in payloads for item in payload.items()))
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


class Candidates:
    """The trajectories that match.

    Args:
        matching: All of them; only the first in the order of prompts are kept.
    """

    def __init__(self, matching: Iterable[RecordedTrajectory]) -> None:
        self.count = 0
        self._values: dict[str, set[str]] = {option: set() for option in _OPTIONS}
        self.first = heapq.nsmallest(MAX_CANDIDATES, self._counted(matching), key=prompt_order)
        """The first of them."""

    def _counted(self, matching: Iterable[RecordedTrajectory]) -> Iterator[RecordedTrajectory]:
        for each in matching:
            self.count += 1
            for option, value_of in _OPTIONS.items():
                if len(self._values[option]) < 2:
                    self._values[option].add(str(value_of(each)))
            yield each

    def describe(self, width: int | None) -> Iterator[str]:
        """Yield lines that list the matches and how to pick one.

        Args:
            width: The columns of a terminal, where tags that all of them have and the ends of the ids are left out, and
                the outcomes if there is no room for them; None for programs.
        """
        tags = {tuple(str(value_of(each)) for value_of in _OPTIONS.values()) for each in self.first}
        telling = [option for option, values in self._values.items() if len(values) > 1]
        advice = f"with {', '.join(telling)}, or with --trace" if telling else "with --trace: their tags are the same"
        if telling and len(tags) < len(self.first):
            advice = "with --trace: some have the same tags"
        more = f", of which these are the first {MAX_CANDIDATES}" if self.count > MAX_CANDIDATES else ""
        yield f"{self.count:,} trajectories match{more}; pick one {advice}"
        rows = [_cells(each) for each in self.first]
        columns = list(zip(*rows, strict=True))
        outcomes = columns[len(_OPTIONS) - 1 : -2]
        if "--run" not in telling:
            del columns[-1]
        if width is not None:
            digits = distinct_digits([each.trace_id for each in self.first])
            columns[0] = tuple(cell[: len("--trace ") + digits] for cell in columns[0])
            if "--run" in telling:
                columns[-1] = tuple(cell[: len("--run ") + SHORT_ID] for cell in columns[-1])
            columns = [column for column in columns if len(set(column)) > 1 or not column[0].startswith("--")]
            while outcomes and sum(max(map(len, column)) + len(GAP) for column in columns) > width:
                columns.remove(outcomes.pop())
        widths = [max(map(len, column)) for column in columns]
        for row in zip(*columns, strict=True):
            cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width)
            yield f"{GAP}{GAP.join(cells)}".rstrip()


def _cells(each: RecordedTrajectory) -> list[str]:
    def option(name: str, value: Any) -> str:
        return "" if value is None else f"{name} {value}"

    return [
        f"--trace {each.trace_id}",
        option("--step", each.step),
        "--validate" if each.validate else "",
        option("--sample", each.sample_index),
        option("--rollout", each.rollout_n),
        status_name(each.status, has_root=each.has_root),
        "no reward" if each.reward is None else f"reward {each.reward:.3g}",
        option("--experiment", each.experiment_name),
        option("--run", each.run_id),
    ]
