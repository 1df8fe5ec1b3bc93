"""One run of the demo, from `init` to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.text import Text

import otel_rollout
from otel_rollout import ExporterStats, Stats
from otel_rollout.demo.collector import StepCollector
from otel_rollout.demo.destination import choose_backends, describe, where_next
from otel_rollout.demo.groups import most_telling_group, most_telling_trajectory
from otel_rollout.demo.problems import problem_at
from otel_rollout.demo.progress import progress_on
from otel_rollout.demo.report import print_delivery, print_group, print_trajectory, print_where_next
from otel_rollout.demo.rollout import Trajectory, passes, run_pass
from otel_rollout.demo.tokenizer import train_tokenizer
from otel_rollout.errors import ConfigurationError
from otel_rollout.wording import counted

__all__ = ["Settings", "run_session"]

PROJECT = "otel-rollout-demo"
PLAIN_WIDTH = 120
STAYS_HERE = ("console", "none")
"""Backends in whose place the report at the end stands: nobody wants to read 144 trees."""


@dataclass(frozen=True)
class Settings:
    """What the command line says; its help explains each."""

    backend: str | None = None
    steps: int = 2
    samples: int = 16
    rollouts: int = 4
    concurrency: int = 64
    seed: int = 0
    timeout: float = 60.0


def run_session(settings: Settings) -> int:
    """Run the rollout, deliver its spans, report, and return the exit code.

    Args:
        settings: What the command line says.
    """
    # Or mlflow would log the making of its tables into the middle of the progress bar.
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
    console = _console(sys.stdout)
    collector = StepCollector()
    backends = choose_backends(settings.backend)
    experiment = time.strftime("demo-%Y%m%d-%H%M%S")
    try:
        otel_rollout.init(
            PROJECT,
            experiment,
            backend=[*(name for name in backends if name not in STAYS_HERE), collector],
            token2text=True,
        )
    except ConfigurationError as error:
        _complain(str(error))
        return 2
    try:
        return _run(settings, console, backends, experiment, collector)
    except KeyboardInterrupt:
        return _interrupted(settings.timeout)
    finally:
        otel_rollout.shutdown(timeout=1.0)


def _run(
    settings: Settings, console: Console, backends: Sequence[str], experiment: str, collector: StepCollector
) -> int:
    plan = (
        f"{counted(settings.steps, 'step')} of {counted(settings.samples, 'problem')} x "
        f"{counted(settings.rollouts, 'rollout')}, then a validation pass; to {', '.join(map(describe, backends))}"
    )
    console.print(Text.assemble(("otel-rollout demo", "bold"), "  ", plan), soft_wrap=True)
    trajectories = asyncio.run(_roll_out(settings, console))
    in_time = _deliver(console, settings.timeout)
    group = most_telling_group(trajectories)
    shown = most_telling_trajectory(group)
    print_trajectory(console, shown, collector.trajectory(shown.sample_index, shown.rollout_n))
    print_group(console, group, problem_at(shown.sample_index).question)
    counts = _counts()
    complete = print_delivery(console, counts, in_time=in_time)
    unreached = [name for name in backends if name in counts and not counts[name].delivered]
    if counts:
        print_where_next(console, where_next(backends, unreached=unreached, project=PROJECT, experiment=experiment))
    return 0 if complete else 1


async def _roll_out(settings: Settings, console: Console) -> list[Trajectory]:
    if sys.version_info < (3, 11):
        # Later versions of asyncio.run do the same: raised in the middle of a task, KeyboardInterrupt would be logged.
        rollout = asyncio.ensure_future(_roll_out_passes(settings, console))
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, rollout.cancel)
        try:
            return await rollout
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
    return await _roll_out_passes(settings, console)


async def _roll_out_passes(settings: Settings, console: Console) -> list[Trajectory]:
    tokenizer = train_tokenizer()
    trajectories: list[Trajectory] = []
    with progress_on(console) as progress:
        for of in passes(settings.steps, settings.samples, settings.rollouts):
            progress.pass_begins(of)
            trajectories += await run_pass(
                of,
                tokenizer=tokenizer,
                seed=settings.seed,
                concurrency=settings.concurrency,
                on_done=progress.trajectory_ends,
            )
            progress.pass_ends()
    return trajectories


def _deliver(console: Console, timeout: float) -> bool:
    waiting = console.status("delivering the last spans") if console.is_terminal else contextlib.nullcontext()
    with waiting:
        return otel_rollout.flush(timeout=timeout)


def _counts() -> dict[str, ExporterStats]:
    """Return the counts of the backends; those of the demo's own exporter only where it is the only one."""
    counts = dict(otel_rollout.stats().exporters)
    own = counts.pop(StepCollector.__name__, None)
    return counts if counts or own is None else {describe("console"): own}


def _interrupted(timeout: float) -> int:
    """Deliver what was traced until then; a second Ctrl-C gives that up too."""
    with contextlib.suppress(KeyboardInterrupt):
        in_time = otel_rollout.flush(timeout=min(timeout, 5.0))
        outcome = Stats(exporters=_counts())
        _complain(f"interrupted; {outcome}{'' if in_time else '; NOT everything was delivered'}")
    return 130


def _console(stdout: TextIO) -> Console:
    """Return a console on stdout: the terminal's width on a terminal, plain text elsewhere."""
    console = Console(file=stdout, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(file=stdout, highlight=False, width=PLAIN_WIDTH)
    return console


def _complain(message: str) -> None:
    sys.stderr.write(f"otel-rollout demo: {message}\n")
