"""Checks of what is not recognised: whose turns they are."""

from __future__ import annotations

from collections.abc import Iterable

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.look.findings.check import Check, Measure, Threshold, ranked
from otel_rollout.look.findings.finding import Severity


def _sides_in(step: JudgedStep) -> Iterable[Measure]:
    yield Measure.share(step.two_sides, step.trajectories)


CHECKS = (
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
