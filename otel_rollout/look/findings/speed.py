"""Steps and engines that are slower than in earlier steps of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Final

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.look.findings.check import Check, Measure, Threshold, ranked
from otel_rollout.look.findings.finding import Severity
from otel_rollout.look.findings.over_steps import comparable_steps

_USUAL: Final = 1.5
"""A step that is slower by this is none that later ones are compared with."""
_LEAST_STEPS: Final = 2
"""The usual steps that it takes to compare one with."""
_FALL: Final = 1.25
"""The fall of a step's tokens in its wall time: more trajectories share an engine, which is slower for each."""

Slowness = Callable[[JudgedStep, Sequence[JudgedStep]], tuple[float, str] | None]


def _in_run(slowness: Slowness, run: Sequence[JudgedStep]) -> Iterator[tuple[JudgedStep, Measure]]:
    usual: list[JudgedStep] = []
    for step in comparable_steps(run):
        found = slowness(step, usual) if len(usual) >= _LEAST_STEPS else None
        value, detail = found or (1.0, "")
        if value < _USUAL:
            usual.append(step)
        yield step, Measure(step.trajectories, step.trajectories, value, detail=detail)


def _of_engine(step: JudgedStep, usual: Sequence[JudgedStep]) -> tuple[float, str] | None:
    before, now = _usual(_rate, usual), _rate(step)
    if not before or not now:
        return None
    # With the tokens of as many trajectories in less time, a slower one is only one of more.
    throughput, usual_throughput = _throughput(step), _usual(_throughput, usual)
    if throughput and usual_throughput and usual_throughput < _FALL * throughput:
        return None
    return before / now, f"from {before:,.3g} to {now:,.3g} tokens a second"


def _of_step(step: JudgedStep, usual: Sequence[JudgedStep]) -> tuple[float, str] | None:
    before, now = _usual(_wall, usual), _wall(step)
    if not before or not now:
        return None
    work = [1.0]
    for amount in (_tokens, _turns, _trajectories):
        earlier = _usual(amount, usual)
        if earlier:
            work.append(amount(step) / earlier)
    return now / before / max(work), f"from {before:,.3g} to {now:,.3g} s"


def _usual(amount: Callable[[JudgedStep], float], steps: Sequence[JudgedStep]) -> float:
    return median(map(amount, steps))


def _rate(step: JudgedStep) -> float:
    tokens, seconds = step.signals.speed
    return tokens / seconds if seconds else 0.0


def _wall(step: JudgedStep) -> float:
    return step.signals.wall_seconds


def _throughput(step: JudgedStep) -> float:
    return step.signals.speed.tokens / _wall(step) if _wall(step) else 0.0


def _tokens(step: JudgedStep) -> float:
    return step.tokens.mean if step.tokens else 0.0


def _turns(step: JudgedStep) -> float:
    return step.turns.mean if step.turns else 0.0


def _trajectories(step: JudgedStep) -> float:
    return step.trajectories


CHECKS = (
    Check(
        name="slow_engine",
        severity=Severity.WARNING,
        threshold=Threshold(
            2.0,
            "output tokens in a second of generation in the usual steps before, by the step's, if the step has fewer "
            "tokens in its wall time too",
            "longer contexts and larger batches make each generation slower by less; above it half of the engine is "
            "gone",
            is_share=False,
        ),
        least=16,
        sentence=lambda found: f"generations of {found.number:,} trajectories went {found.detail}",
        advice="look at the engine's own figures: preemptions, a full cache, a replica that is gone, another process "
        "on its device",
        evidence=lambda step, _: ranked(
            step.trajectories, lambda each: each.llm_seconds / each.output_tokens if each.output_tokens else 0
        ),
        in_run=partial(_in_run, _of_engine),
        in_validation=False,
    ),
    Check(
        name="slow_steps",
        severity=Severity.WARNING,
        threshold=Threshold(
            2.0,
            "wall time of a step's rollouts, without the last twentieth, by the wall time of the usual steps before, "
            "and by the growth of tokens, turns or trajectories",
            "more work takes more time; above it a step takes twice as long for the same",
            is_share=False,
        ),
        least=16,
        sentence=lambda found: f"the rollouts of a step went {found.detail}, for no more tokens, turns or trajectories",
        advice="open one: its time is in generations, tools, the reward function, or waiting in none of them, as "
        "for an environment or a place in a queue",
        evidence=lambda step, _: ranked(step.trajectories, lambda each: each.seconds),
        in_run=partial(_in_run, _of_step),
        in_validation=False,
    ),
)
