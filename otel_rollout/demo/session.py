"""One run of the demo, from `init` to the exit code."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

import otel_rollout
from otel_rollout import ExporterStats, Stats, semconv
from otel_rollout.demo.chat import train_tokenizer
from otel_rollout.demo.destination import ON_SCREEN, choose_backends, describe, where_next, with_folder
from otel_rollout.demo.problems import problem_at
from otel_rollout.demo.report import (
    clearest_group,
    clearest_trajectory,
    print_delivery,
    print_group,
    print_sentence,
    print_trajectory,
    print_waiting,
    print_where_next,
    rollout_row,
)
from otel_rollout.demo.rollout import Pass, Trajectory, mean_reward, passes, run_pass
from otel_rollout.guard.clock import monotonic
from otel_rollout.look.terminal.screen import open_screen
from otel_rollout.pipeline import MAX_SECONDS_AT_END, Pipeline, await_ready
from otel_rollout.record import runtime
from otel_rollout.testing import InMemorySpanExporter
from otel_rollout.text.plain_text import counted

PROJECT = "otel-rollout-demo"
SECONDS_AT_END: Final = 60.0
PATIENCE: Final = 3.0
"""The seconds after which the wait for a backend is explained."""
WIDE: Final = 100
"""The columns from which on bars are long."""
NARROW: Final = 80
"""The columns below which there are no bars."""


def run_session(
    *,
    backend: str | None,
    default_backends: Sequence[str],
    steps: int,
    samples: int,
    rollouts: int,
    concurrency: int,
    seed: int,
    timeout: float | None,
    view: bool,
) -> int:
    """Run the rollout, deliver its spans, report, and return the exit code; `--help` explains the options.

    Raises:
        ConfigurationError: A backend can't work as it is asked for.
    """
    console = open_screen()
    collector = StepCollector()
    backends = choose_backends(backend, default_backends)
    if view:
        backends = with_folder(backends)
    # Two may start in one second.
    experiment = time.strftime("demo-%Y%m%d-%H%M%S") + f"-{time.time_ns() // 1_000_000 % 1000:03d}"
    sent_to = [name for name in backends if name != ON_SCREEN]
    otel_rollout.init(PROJECT, experiment, backend=[*sent_to, collector] if backends else "none", token2text=True)
    try:
        exporters = runtime.pipeline.exporters if runtime.pipeline else {}
        plan = f"{counted(steps, 'step')} of {counted(samples, 'problem')} x {counted(rollouts, 'rollout')}"
        console.print(Text.assemble(("otel-rollout demo", "bold"), f"  {plan}, then a validation pass"), soft_wrap=True)
        where = "; ".join(describe(name, exporters.get(name)) for name in backends)
        print_sentence(console, f"to {where}" if where else "tracing is off", style="dim")
        trajectories = asyncio.run(_roll_out(console, passes(steps, samples, rollouts), concurrency, seed))
        _deliver(console, timeout)
        group = clearest_group(trajectories)
        shown = clearest_trajectory(group)
        print_trajectory(console, shown, collector.trajectory(shown.sample_index, shown.rollout_n))
        rows = [rollout_row(each, collector.trajectory(each.sample_index, each.rollout_n)) for each in group]
        print_group(console, rows, problem_at(shown.sample_index).question)
        counts = _counts()
        is_complete = print_delivery(console, counts)
        if counts:
            lines = where_next(
                backends,
                exporters,
                project_name=PROJECT,
                experiment_name=experiment,
                default=default_backends[0],
                unreached=[name for name in backends if name in counts and not counts[name].delivered],
            )
            print_where_next(console, lines)
        return 0 if is_complete else 1
    except KeyboardInterrupt:
        return _interrupted(timeout)
    finally:
        _shut_down()


async def _roll_out(console: Console, all_passes: list[Pass], concurrency: int, seed: int) -> list[Trajectory]:
    rollout = _run_passes(console, all_passes, concurrency, seed)
    if sys.version_info >= (3, 11):
        return await rollout
    # asyncio.run of later versions does the same: raised in the middle of a task, KeyboardInterrupt would be logged.
    task = asyncio.ensure_future(rollout)
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _run_passes(console: Console, all_passes: list[Pass], concurrency: int, seed: int) -> list[Trajectory]:
    tokenizer = train_tokenizer()
    trajectories: list[Trajectory] = []
    with progress_on(console) as progress:
        for of in all_passes:
            progress.pass_begins(of)
            trajectories += await run_pass(
                of,
                tokenizer=tokenizer,
                seed=seed,
                concurrency=concurrency,
                on_done=progress.trajectory_ends,
            )
            progress.pass_ends()
    return trajectories


def _deliver(console: Console, timeout: float | None) -> None:
    with console.status("delivering the last spans") if console.is_terminal else contextlib.nullcontext():
        seconds = SECONDS_AT_END if timeout is None else timeout
        patience = min(seconds, PATIENCE)
        if not otel_rollout.flush(timeout=patience) and seconds > patience:
            print_waiting(console, _counts(), seconds - patience)
            if timeout is None and isinstance(runtime.pipeline, Pipeline):
                await_ready(runtime.pipeline.queues, MAX_SECONDS_AT_END - seconds)
            otel_rollout.flush(timeout=seconds - patience)
        _shut_down()


def _shut_down() -> None:
    """Shut down without the log line of the counts, which the report has."""
    logger = logging.getLogger("otel_rollout")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        otel_rollout.shutdown(timeout=1.0)
    finally:
        logger.setLevel(level)


def _counts() -> Mapping[str, ExporterStats]:
    """Return the counts of the backends; of the demo's own exporter if it is the only one."""
    counts = dict(otel_rollout.stats().exporters)
    own = counts.pop(StepCollector.__name__, None)
    return counts if counts or own is None else {describe(ON_SCREEN, None): own}


def _interrupted(timeout: float | None) -> int:
    """Deliver what was traced so far; a second Ctrl-C gives that up too."""
    with contextlib.suppress(KeyboardInterrupt):
        in_time = otel_rollout.flush(timeout=5.0 if timeout is None else min(timeout, 5.0))
        missing = "" if in_time else "; NOT everything was delivered"
        sys.stderr.write(f"otel-rollout demo: interrupted; {Stats(exporters=_counts())}{missing}\n")
    return 130


class StepCollector(InMemorySpanExporter):
    """Keeps the spans of the training trajectories of one step.

    Args:
        step: The step.
        max_spans: The most spans that are kept; later ones are dropped.
    """

    def __init__(self, step: int = 1, max_spans: int = 20_000) -> None:
        super().__init__()
        self._step = step
        self._max_spans = max_spans

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Keep those spans of the batch that belong to the step."""
        wanted = [span for span in spans if _values(span, semconv.STEP, semconv.VALIDATE) == [self._step, False]]
        return super().export(wanted[: self._max_spans - len(self.spans)])

    def trajectory(self, sample_index: int, rollout_n: int) -> list[ReadableSpan]:
        """Return the spans of one trajectory in the order of start."""
        ids = [sample_index, rollout_n]
        spans = [span for span in self.spans if _values(span, semconv.SAMPLE_INDEX, semconv.ROLLOUT_N) == ids]
        return sorted(spans, key=lambda span: span.start_time or 0)


def _values(span: ReadableSpan, *keys: str) -> list[object]:
    return [(span.attributes or {}).get(key) for key in keys]


class PassProgress:
    """Shows each pass while it runs, with the mean reward so far.

    Args:
        console: Gets a line at the end of each pass, if there are no bars.
        bars: Gets a bar for each pass.
    """

    def __init__(self, console: Console, bars: Progress | None) -> None:
        self._console = console
        self._bars = bars

    def pass_begins(self, of: Pass) -> None:
        """Begin a pass."""
        self._pass, self._begun = of, monotonic()
        self._done: list[Trajectory] = []
        if self._bars is not None:
            self._task = self._bars.add_task(of.name, total=of.trajectories, outcomes="")

    def trajectory_ends(self, trajectory: Trajectory) -> None:
        """Count a trajectory of the current pass."""
        self._done.append(trajectory)
        if self._bars is not None:
            self._bars.update(self._task, advance=1, outcomes=describe_outcomes(self._done))

    def pass_ends(self) -> None:
        """End the current pass."""
        if self._bars is None:
            seconds = monotonic() - self._begun
            self._console.print(
                f"{self._pass.name:<10}  {counted(len(self._done), 'trajectory')} in {seconds:.1f} s, "
                f"{describe_outcomes(self._done)}",
                soft_wrap=True,
            )


@contextlib.contextmanager
def progress_on(console: Console) -> Iterator[PassProgress]:
    """Show progress on a console for the time of the rollout."""
    if not console.is_terminal:
        yield PassProgress(console, None)
        return
    bar = [BarColumn(bar_width=28 if console.width >= WIDE else 8)] if console.width >= NARROW else []
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True, min_width=10)),
        *bar,
        MofNCompleteColumn(table_column=Column(no_wrap=True, min_width=5)),
        _SecondsColumn(table_column=Column(no_wrap=True, min_width=6)),
        TextColumn("{task.fields[outcomes]}", style="dim", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with Progress(*columns, console=console) as bars:
        yield PassProgress(console, bars)


class _SecondsColumn(ProgressColumn):
    def render(self, task: Task) -> Text:
        """Return the time of a pass in seconds; rich's own column rounds to whole ones."""
        seconds = task.finished_time if task.finished else task.elapsed
        return Text(f"{seconds or 0.0:4.1f} s")


def describe_outcomes(done: Sequence[Trajectory]) -> str:
    """Return the mean reward, and the number of trajectories with each other status than `completed`."""
    counts = Counter(trajectory.status for trajectory in done)
    others = [f"{counts[status]} {status}" for status in ("truncated", "cancelled", "error") if counts[status]]
    mean = mean_reward(done)
    return ", ".join(["no reward" if mean is None else f"reward {mean:.3f}", *others])
