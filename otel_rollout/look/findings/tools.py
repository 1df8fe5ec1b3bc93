"""Tool calls that fail, repeat, name no tool or can't be parsed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from otel_rollout.catalog.step_signals import REPEATED, JudgedStep, StepSignals
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold, percent, ranked
from otel_rollout.look.findings.finding import Severity

_LEAST_CALLS: Final = 10
"""The earlier calls of a tool that it takes to know its usual results."""
_SURE: Final = 3.0
"""The standard errors that a rise must have."""


def _errors_in(step: JudgedStep) -> Iterator[Measure]:
    for name, (calls, errors) in step.tools.items():
        yield Measure.share(errors, calls, name)


def _errors_evidence(step: StepContents, tool: str) -> list[TrajectorySummary]:
    return ranked(step.trajectories, lambda each: each.tools[tool].errors if tool in each.tools else 0)


def _results_in(run: Sequence[JudgedStep]) -> Iterator[tuple[JudgedStep, Measure]]:
    """Yield the rise of odd results of each tool, against the steps before in which they had not risen."""
    before: dict[str, tuple[int, int]] = {}
    for step in run:
        for name, (calls, errors) in step.tools.items():
            odd, whole = min(step.signals.odd_results.get(name, 0), calls - errors), calls - errors
            earlier_odd, earlier = before.get(name, (0, 0))
            value, share, error = 0.0, 0.0, 0.0
            if whole and earlier >= _LEAST_CALLS:
                share = (earlier_odd + 1) / (earlier + 2)
                error = math.sqrt(0.25 / whole + share * (1 - share) / earlier)
                value = odd / whole - share
                if value < _SURE * error:
                    value = 0.0
            if not value:
                before[name] = earlier_odd + odd, earlier + whole
            detail = f"{percent(share)} before"
            yield step, Measure(odd, whole, value, name, detail, error=error)


def _of_trajectories(
    name: str,
    threshold: Threshold,
    count: Callable[[StepSignals], int],
    rank: Callable[[TrajectorySummary], float],
    words: str,
    advice: str,
) -> Check:
    def in_step(step: JudgedStep) -> Iterable[Measure]:
        yield Measure.share(count(step.signals), step.trajectories)

    return Check(
        name=name,
        severity=Severity.WARNING,
        threshold=threshold,
        least=16,
        sentence=lambda found: f"{found.number:,} of {found.total:,} trajectories {words}",
        advice=advice,
        evidence=lambda step, _: ranked(step.trajectories, rank),
        in_step=in_step,
    )


CHECKS = (
    Check(
        name="tool_errors",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.25,
            "share of a tool's calls in a step",
            "a policy that learns makes some bad calls; above it one call in four is wasted, or the tool itself is "
            "broken",
        ),
        least=10,
        sentence=lambda found: f"{found.number:,} of {found.total:,} calls of {found.name} failed",
        advice="look at the arguments of the failed calls: if they are good, the tool is broken; if not, its "
        "description "
        "or its error message doesn't explain to the model what to write",
        evidence=_errors_evidence,
        in_step=_errors_in,
    ),
    Check(
        name="tool_results",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.15,
            "rise of the share of a tool's results that are empty or read like an error, without an exception, against "
            "the tool's own in the steps before",
            "some tools return nothing, and some run what a model wrote wrongly; above it the tool changed, not the "
            "policy",
        ),
        least=10,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} results of {found.name} are empty or read like an error{found.clause}"
        ),
        advice="read some results: did a service that the tool needs stop, or is its output cut? Raise an exception "
        "for such a result, so that its trajectories are counted as failed",
        evidence=lambda step, tool: ranked(step.trajectories, lambda each: each.odd_results.get(tool, 0)),
        in_run=_results_in,
    ),
    _of_trajectories(
        "repeated_calls",
        Threshold(
            0.15,
            "share of a step's trajectories",
            "some retry; above it the policy circles, and its turns are spent on nothing new",
        ),
        lambda signals: signals.repeated_calls,
        lambda each: each.repeated_calls if each.repeated_calls >= REPEATED else 0,
        f"make the same call with the same arguments {REPEATED} times or more: unless its result changes, as that of a "
        "test does, the policy circles",
        "state in the tool's result that it is a repetition, end such trajectories early, or give the tool a better "
        "error",
    ),
    _of_trajectories(
        "unknown_tools",
        Threshold(
            0.05,
            "share of a step's trajectories",
            "a model that knows its tools calls no others; above it the prompt or the parser names them wrongly",
        ),
        lambda signals: signals.unknown_tools,
        lambda each: each.unknown_tool_calls,
        "call a tool that there is not",
        "compare the tools' names in the prompt with those that the agent loop has",
    ),
    _of_trajectories(
        "unparsed_calls",
        Threshold(
            0.05,
            "share of a step's trajectories",
            "a model writes its own format nearly always; above it the parser and the chat template disagree",
        ),
        lambda signals: signals.unparsed_calls,
        lambda each: each.unparsed_tool_calls,
        "have a tool call that can't be parsed, which the agent loop ignores",
        "choose the parser of the model's own format (verl: `multi_turn.format`), and give an error back to the model",
    ),
)
