"""`otel-rollout top`: the trajectories that run now, and what the step waits for."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from otel_rollout.catalog import BETWEEN_OPS, LiveRun, Run, RunningTrajectory, StepWait
from otel_rollout.cli.messages import complain
from otel_rollout.cli.options import add_run, default_folder, exit_codes
from otel_rollout.errors import MissingExtraError, NoTracesError
from otel_rollout.text.plain_text import counted, printable, shorten, step_name

if TYPE_CHECKING:
    from rich.console import Console

    from otel_rollout.look.terminal.table import Table

SECONDS_BETWEEN: Final = 2.0
ROWS_IN_A_PIPE: Final = 1000
FEWEST_ROWS: Final = 5
LINES_BESIDE_ROWS: Final = 4
"""An empty line, the table's head, the number of those left out, and the cursor's line."""
MAX_EXPERIMENT: Final = 40
HOME_AND_CLEAR: Final = "\x1b[H\x1b[J"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the description and the options of the command."""
    parser.description = """\
Show the trajectories that run for longer than 3 s, the longest first: in which
op each is, for how long, and how long 99% of such ops took. After a crash, show
what was open. The exporter `file` writes that into the trace folder every two
seconds; no other exporter does. On a terminal it goes on until Ctrl-C.
"""
    parser.epilog = exit_codes("shown")
    parser.add_argument(
        "folders",
        metavar="DIR",
        nargs="*",
        type=Path,
        default=[default_folder()],
        help="trace folders (default: OTEL_ROLLOUT_DIR, else rollout-traces)",
    )
    add_run(parser)
    parser.add_argument("--once", action="store_true", help="print it once, as in a pipe")
    parser.add_argument("--json", action="store_true", help="once, a JSON object on a line for each trajectory")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    for folder in arguments.folders:
        if not folder.is_dir():
            raise NoTracesError(f"there is no trace folder {folder}")
    recorded = Run(arguments.folders, experiment=arguments.experiment, run=arguments.run)
    if arguments.json:
        from otel_rollout.cli.reading import print_json

        live = recorded.live()
        for each in live.trajectories:
            print_json(orjson.dumps({**asdict(each), "is_late": each.is_late}))
        if not live.trajectories:
            _say_why_none(live)
        return 0
    if importlib.util.find_spec("rich") is None:
        from otel_rollout.installing import install_line

        raise MissingExtraError(f"this needs rich: {install_line('cli')} (--json works without)")
    from otel_rollout.look.terminal.screen import open_screen

    screen = open_screen()
    is_live = screen.is_terminal and not arguments.once
    if not is_live:
        draw(screen, recorded.live())
        return 0
    with screen.screen():
        while True:
            live = recorded.live()
            screen.file.write(HOME_AND_CLEAR)
            draw(screen, live, screen.height)
            sys.stdout.flush()
            time.sleep(SECONDS_BETWEEN)


def draw(screen: Console, live: LiveRun, height: int | None = None) -> None:
    """Draw what runs, on a terminal wrapped to its width.

    Args:
        screen: The console.
        live: The running trajectories.
        height: The most lines; None for all rows.
    """
    from rich.text import Text

    from otel_rollout.cli.reading import distinct_digits
    from otel_rollout.look.terminal.screen import wrapped
    from otel_rollout.look.terminal.table import print_lines

    width = screen.width if screen.is_terminal else None
    lines: list[Text] = []
    has_several = len({each.experiment_name for each in live.trajectories}) > 1
    for wait in live.waits:
        sentence = [Text(line) for line in wrapped(_sentence(wait, has_experiment=has_several), width, "")]
        if height is None or not lines or len(lines) + len(sentence) <= height // 3:
            lines += sentence
    dead = {each.worker: each for each in live.trajectories if not each.is_alive}
    for each in list(dead.values())[:3]:
        lost = sum(other.worker == each.worker for other in live.trajectories)
        silence = f"{each.worker}: no sign of life for {_seconds(each.silent_seconds)}"
        text = f"{silence}; {counted(lost, 'trajectory')} open"
        lines += [Text(line, style="red") for line in wrapped(text, width, "")]
    for line in lines:
        screen.print(line, soft_wrap=True)
    most = ROWS_IN_A_PIPE if height is None else max(FEWEST_ROWS, height - LINES_BESIDE_ROWS - len(lines))
    if live.trajectories:
        screen.print()
        shown = live.trajectories[:most]
        digits = distinct_digits([each.trace_id for each in shown]) if screen.is_terminal else None
        print_lines(screen, _table(shown, digits, has_dead=bool(dead), has_experiment=has_several))
        if live.open > most:
            screen.print(f"and {counted(live.open - most, 'trajectory')} more", style="dim")
    else:
        _say_why_none(live)


def _say_why_none(live: LiveRun) -> None:
    complain(f"otel-rollout top: {live.why_none}")


def _sentence(wait: StepWait, *, has_experiment: bool) -> str:
    """Return the line of a step: `step 41 waits for 3 of 512: all in sandbox.run, 184 s, p99 12 s`."""
    op, count = next(iter(wait.ops.items()))
    share = "all" if count == wait.running else f"{count:,}"
    where = BETWEEN_OPS if op == BETWEEN_OPS else f"in {op}"
    step, of = step_name(wait.step, validate=wait.validate), wait.running + wait.ended
    if has_experiment and wait.experiment_name is not None:
        step += f" of {shorten(wait.experiment_name, MAX_EXPERIMENT)}"
    text = f"step {step} waits for {wait.running:,} of {of:,}: "
    text += f"{share} {where}; the longest runs for {_seconds(wait.longest.seconds)}"
    longest = wait.longest
    if longest.op is not None and longest.op_seconds is not None:
        text += f", {_seconds(longest.op_seconds)} of it in {longest.op}"
        if longest.op_p99 is not None:
            text += f" (p99 {_seconds(longest.op_p99)})"
    return text


def _table(
    trajectories: Sequence[RunningTrajectory], id_digits: int | None, *, has_dead: bool, has_experiment: bool
) -> Table:
    from otel_rollout.look.terminal.table import Cell, Column, Table

    table = Table(
        [
            Column("age"),
            Column("experiment", is_text=True, rank=2, narrowest=8, keeps_end=True),
            Column("step", rank=2),
            Column("sample", narrowest=8, keeps_end=True),
            Column("rollout"),
            Column("in", is_text=True, narrowest=12, keeps_end=True),
            Column("for"),
            Column("p99", rank=3),
            Column("ops", rank=5),
            Column("process", is_text=True, rank=4, narrowest=12, keeps_end=True),
            Column("trace", is_text=True, rank=6),
            Column("alive", is_text=True, rank=1),
        ]
    )
    for each in trajectories:
        table.add_row(
            _seconds(each.seconds),
            _text(each.experiment_name),
            step_name(each.step, validate=each.validate),
            _text(each.sample_index),
            _text(each.rollout_n),
            printable(each.op or BETWEEN_OPS),
            Cell("" if each.op_seconds is None else _seconds(each.op_seconds), "red" if each.is_late else ""),
            "" if each.op_p99 is None else _seconds(each.op_p99),
            str(each.ops),
            printable(each.worker),
            printable(each.trace_id[:id_digits]),
            Cell("yes") if each.is_alive else Cell("no", "red"),
        )
    if not has_dead:
        table.leave_out("alive")
    if not has_experiment:
        table.leave_out("experiment")
    return table


def _text(value: object) -> str:
    return "-" if value is None else printable(str(value))


def _seconds(seconds: float) -> str:
    if 0 < seconds < 0.0995:
        return f"{seconds * 1e3:.2g} ms"
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if seconds < 600:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"
