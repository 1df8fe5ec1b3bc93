"""Runs of the demo with seeded faults, in a time in which nobody waits, and the diagnosis of each."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import NamedTuple
from unittest import mock

import otel_rollout
from otel_rollout.catalog import JudgedStep
from otel_rollout.demo import Pass, passes, run_pass, train_tokenizer
from otel_rollout.facts import TrajectorySummary, summarise_trajectory
from otel_rollout.look.findings import Diagnosis, diagnose
from otel_rollout.testing import InMemorySpanExporter
from tests.demo import idle_time
from tests.demo.faults import Fault, Faults, FaultyTrajectory, run_faulty_pass
from tests.findings.made_up_steps import summarise

STEPS, SAMPLES, ROLLOUTS = 4, 16, 8


class SeededRun(NamedTuple):
    """A run of the demo: the training trajectories with their faults, and what was found."""

    trajectories: list[FaultyTrajectory]
    summaries: dict[tuple[int | None, bool], list[TrajectorySummary]]
    steps: list[JudgedStep]
    diagnosis: Diagnosis


def run_demo(
    faults: Iterable[Fault], seed: int, *, steps: int = STEPS, samples: int = SAMPLES, rollouts: int = ROLLOUTS
) -> SeededRun:
    """Run the demo with faults, and diagnose it."""
    exporter = InMemorySpanExporter()
    otel_rollout.init("project", "experiment", backend=exporter, token2text=True)
    try:
        with _time_of_the_loop():
            all_passes = passes(steps, samples, rollouts)
            trajectories = idle_time.run(_run(all_passes, Faults(frozenset(faults), seed), seed))
        assert otel_rollout.flush(timeout=300)
    finally:
        otel_rollout.shutdown(timeout=10)
    spans = defaultdict(list)
    for span in exporter.spans:
        assert span.context is not None
        spans[span.context.trace_id].append(span)
    summaries = defaultdict(list)
    for found in spans.values():
        summary = summarise_trajectory(found)
        summaries[summary.step, summary.validate].append(summary)
    summed = list(map(summarise, summaries.values()))
    diagnosis = diagnose(summed, lambda step: summaries[step.step, step.validate])
    return SeededRun(trajectories, dict(summaries), summed, diagnosis)


async def _run(all_passes: list[Pass], faults: Faults, seed: int) -> list[FaultyTrajectory]:
    done: list[FaultyTrajectory] = []
    for of in all_passes:
        if faults.faults and not of.validate:
            done += await run_faulty_pass(of, tokenizer=_tokenizer(), seed=seed, faults=faults)
        else:
            await run_pass(of, tokenizer=_tokenizer(), seed=seed, concurrency=64, on_done=lambda _: None)
    return done


_tokenizer = cache(train_tokenizer)


@contextmanager
def _time_of_the_loop() -> Iterator[None]:
    """Spans start and end in the time of the event loop; each reading is a nanosecond later."""
    readings = count(1_700_000_000_000_000_000)

    def now() -> int:
        return next(readings) + int(asyncio.get_running_loop().time() * 1e9)

    with (
        mock.patch("otel_rollout.guard.clock.monotonic_ns", now),
        mock.patch("otel_rollout.guard.clock.clock_offset", int),
    ):
        yield
