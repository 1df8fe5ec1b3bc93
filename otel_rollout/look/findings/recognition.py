"""Checks of what is not recognised: answers, numbers of tokens, whose turns they are."""

from __future__ import annotations

from collections.abc import Iterable

from otel_rollout.catalog.step_signals import JudgedStep, is_without_tokens
from otel_rollout.look.findings.check import Check, Measure, Threshold, ranked
from otel_rollout.look.findings.finding import Severity


def _sides_in(step: JudgedStep) -> Iterable[Measure]:
    yield Measure.share(step.two_sides, step.looked_at)


def _answers_in(step: JudgedStep) -> Iterable[Measure]:
    yield Measure.share(step.unread_answers, step.trajectories)


def _usage_in(step: JudgedStep) -> Iterable[Measure]:
    yield Measure.share(step.signals.without_tokens, step.trajectories)


CHECKS = (
    Check(
        name="unread_answers",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.0,
            "share of a step's trajectories",
            "titles, pages, equal answers and exploited forms lack such an answer: any is reported",
        ),
        least=1,
        sentence=lambda found: (
            f"in {found.number:,} of {found.total:,} trajectories no answer was recognised in a generation's result"
        ),
        advice="return a message or a text, or pass `capture_output=` with a function that returns one; the program's "
        "log names the op and its type",
        evidence=lambda step, _: ranked(step.trajectories, lambda each: each.unread_answers),
        in_step=_answers_in,
    ),
    Check(
        name="unread_usage",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.1,
            "share of a step's trajectories",
            "without numbers of tokens slow_engine and length_without_reward are blind",
        ),
        least=1,
        sentence=lambda found: (
            f"no generation of {found.number:,} of {found.total:,} trajectories has a number of generated tokens"
        ),
        advice="return `usage` with the answer, or its token ids; `--threshold unread_usage=1` silences this",
        evidence=lambda step, _: (each for each in step.trajectories if is_without_tokens(each)),
        in_step=_usage_in,
    ),
    Check(
        name="two_sides",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.0,
            "share of a step's trajectories",
            "turns, tokens, prompt and answer of such a trajectory may be a simulated user's: any is reported",
        ),
        least=1,
        sentence=lambda found: (
            f"in {found.number:,} of {found.total:,} trajectories two sides speak to each other, and nothing shows "
            "which one is the policy: the side that speaks first is taken for it"
        ),
        advice='mark the simulated user: `rollout_trace_op(kind="LLM", role="user")`, or `subagent("customer", '
        'role="user")` around its turns; if both are policies, give them `role="policy"`',
        evidence=lambda step, _: ranked(step.trajectories, lambda each: each.two_sides),
        in_step=_sides_in,
    ),
)
