"""Trajectories that are not whole, or there twice: dropped spans, a root that never ended, a resumed run."""

from __future__ import annotations

from collections.abc import Iterable

from otel_rollout.catalog.step_signals import JudgedStep, rolled_out_again
from otel_rollout.look.findings.check import Check, Measure, Threshold, ranked
from otel_rollout.look.findings.finding import Severity
from otel_rollout.text.plain_text import counted


def _dropped_in(step: JudgedStep) -> Iterable[Measure]:
    # The two overlap: roots count the lost spans of their own trajectory.
    dropped = max(step.dropped_spans, sum(step.lost.values()))
    whys = [f"not whole: {counted(step.signals.lossy, 'trajectory')}"] if step.signals.lossy else []
    whys += [", ".join(f"{reason} {count:,}" for reason, count in step.lost.items())] if step.lost else []
    yield Measure.share(dropped, step.spans + dropped, detail="; ".join(whys))


def _rootless_in(step: JudgedStep) -> Iterable[Measure]:
    # Without a step and prompts, they may be spans of another program, whose root is elsewhere.
    if step.step is not None or step.groups:
        yield Measure.share(step.rootless, step.trajectories)


def _again_in(step: JudgedStep) -> Iterable[Measure]:
    # Without a step, a number of a sample may be each step's.
    if step.step is not None:
        yield Measure.share(step.signals.rolled_out_again, step.trajectories)


CHECKS = (
    Check(
        name="lost_spans",
        severity=Severity.ERROR,
        threshold=Threshold(0.0, "share of a step's spans", "sized well, tracing drops none: any loss is reported"),
        least=1,
        sentence=lambda found: f"tracing dropped {found.number:,} of {found.total:,} spans{found.clause}",
        advice="`otel_rollout.stats()` names the reason; give the queue more room (OTEL_ROLLOUT_MAX_QUEUE_BYTES) or "
        "a spool",
        evidence=lambda step, _: ranked(step.trajectories, lambda each: each.dropped_spans),
        in_step=_dropped_in,
    ),
    Check(
        name="rootless",
        severity=Severity.ERROR,
        threshold=Threshold(
            0.0, "share of a step's trajectories", "each trajectory ends, unless its process died: any is reported"
        ),
        least=1,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} trajectories have no root: their process ended before they did, or "
            "it was lost"
        ),
        advice="look for a killed worker (out of memory, a timeout of the scheduler) at the time of their last span",
        evidence=lambda step, _: sorted(
            (each for each in step.trajectories if not each.has_root), key=lambda each: each.end_time
        ),
        in_step=_rootless_in,
        is_final=True,
    ),
    Check(
        name="rolled_out_again",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.0, "share of a step's trajectories", "in its step of a run, a rollout of a prompt is one: any is reported"
        ),
        least=1,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} trajectories have the sample and rollout of an earlier one: "
            "all figures of their step are of both"
        ),
        advice="if the run was resumed, give each start its own OTEL_ROLLOUT_RUN_ID; if not, two prompts share a "
        "sample_index, or two rollouts a rollout_n",
        evidence=lambda step, _: rolled_out_again(step.trajectories),
        in_step=_again_in,
    ),
)
