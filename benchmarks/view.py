"""`python -m benchmarks.view`: how long the figures of a large run take to read, as `otel-rollout view` asks for them.

The folders are written through the `file` exporter on first use, which takes minutes, and kept in $TMPDIR: one step of
8,192 trajectories of 19 spans with 80 KB of text each, and a run of 100 such steps with little text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.viewer.folders import KEPT, folder_of
from benchmarks.viewer.measure import Figure, measure_run, measure_step
from benchmarks.viewer.measure_server import measure_server
from benchmarks.viewer.trajectories import ROLLOUTS, Load

PROMPTS = 1024
STEPS = 100


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.view", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON in place of the table")
    parser.add_argument("--smoke", action="store_true", help="small folders: does it run at all")
    parser.add_argument("--steps", type=int, default=STEPS, help="the steps of the long run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default: %(default)s)")
    parser.add_argument("--no-server", action="store_true", help="leave out the figures over HTTP")
    arguments = parser.parse_args()
    if arguments.steps < 1 or arguments.rounds < 1:
        parser.error("--steps and --rounds should be 1 or more")
    prompts, steps, rounds = (8, 3, 1) if arguments.smoke else (PROMPTS, arguments.steps, arguments.rounds)
    processes = max(1, min(os.cpu_count() or 1, 8))
    with TemporaryDirectory() if arguments.smoke else nullcontext(KEPT) as root:
        # The benchmark removes its catalogs.
        os.environ["XDG_CACHE_HOME"] = str(Path(root) / "cache")
        step = folder_of(Load(1, prompts, has_long_text=True), processes, Path(root))
        run = folder_of(Load(steps, prompts, has_long_text=False), processes, Path(root))
        figures = [
            *measure_step(step, rounds),
            *([] if arguments.no_server else measure_server(step, rounds)),
            *measure_run(run, steps, rounds),
        ]
    if arguments.json:
        print(json.dumps([asdict(figure) for figure in figures], indent=2))
    else:
        print(f"{prompts * ROLLOUTS:,} trajectories a step\n")
        print("\n".join(_lines(figures)))
    return 0


def _lines(figures: list[Figure]) -> list[str]:
    rows = [("", "measured", "CPU", "goal"), *map(_row, figures)]
    widths = [max(len(row[at]) for row in rows) for at in range(4)]
    return [
        "  ".join(
            cell.ljust(width) if at == 0 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _row(figure: Figure) -> tuple[str, str, str, str]:
    return (
        figure.name,
        _amount(figure.measured, figure.unit),
        "" if figure.cpu is None else _amount(figure.cpu, "s"),
        "" if figure.goal is None else f"{figure.goal:g} {figure.unit}",
    )


def _amount(amount: float, unit: str) -> str:
    if unit == "s" and amount < 0.1:
        return f"{amount * 1000:.2g} ms" if amount < 0.01 else f"{amount * 1000:.0f} ms"
    return f"{amount:.2f} s" if unit == "s" else f"{amount:,.0f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
