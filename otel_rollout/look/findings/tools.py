"""Tool calls that fail, repeat, name no tool or can't be parsed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from otel_rollout.catalog.step_signals import REPEATED, StepSignals
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold, ranked
from otel_rollout.look.findings.finding import Severity


def _errors_in(step: StepSummary) -> Iterator[Measure]:
    for name, (calls, errors) in step.tools.items():
        yield Measure.share(errors, calls, name)


def _errors_evidence(step: StepContents, tool: str) -> list[TrajectorySummary]:
    return ranked(step.trajectories, lambda each: each.tools[tool].errors if tool in each.tools else 0)


def _of_trajectories(
    name: str,
    threshold: Threshold,
    count: Callable[[StepSignals], int],
    rank: Callable[[TrajectorySummary], float],
    words: str,
    advice: str,
) -> Check:
    def in_step(step: StepSummary) -> Iterable[Measure]:
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
            0.2,
            "share of a tool's calls in a step",
            "a policy that learns makes some bad calls; above it one call in five is wasted, or the tool itself is "
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
