"""Answers that grow over steps while the reward doesn't."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold, ranked
from otel_rollout.look.findings.finding import Severity
from otel_rollout.look.findings.over_steps import Change, change_of, error_of_tokens
from otel_rollout.look.findings.reward_level import reward_change, scale_of

_RISE = 0.06
"""The part of the range of rewards that counts as a rise of the reward."""

_SURE = 2.0
"""The standard errors that a rise must have."""
_JUMP = 0.6
"""The part of the growth that is in one step if the prompts changed."""


def _are_other_prompts(tokens: Change) -> bool:
    """Return True if answers grow in one step, and all prompts are other ones from there on: they are harder."""
    jumps = [after - before for before, after in pairwise(tokens.values)]
    at = max(range(len(jumps)), key=lambda place: jumps[place])
    if jumps[at] < _JUMP * (tokens.last - tokens.first):
        return False
    before, after = (
        {key for step in part for key in step.signals.prompts}
        for part in (tokens.steps[: at + 1], tokens.steps[at + 1 :])
    )
    return bool(before) and not before & after


def _over_steps(steps: Sequence[JudgedStep]) -> Iterator[Measure]:
    tokens = change_of(steps, lambda step: step.tokens.mean if step.tokens else None, error_of_tokens)
    rewards = change_of(steps, lambda step: step.reward_mean)
    if tokens is None or rewards is None or tokens.first <= 0:
        return
    scale = scale_of(steps)
    rise, error, _ = reward_change(rewards.steps[: len(rewards.last_steps)], rewards.last_steps)
    if scale is not None and rise > max(_RISE * scale.size, _SURE * error):
        return
    if _are_other_prompts(tokens):
        return
    detail = (
        f"from {tokens.first:,.0f} to {tokens.last:,.0f} tokens, the mean reward from {rewards.first:.3g} to "
        f"{rewards.last:.3g}"
    )
    count, value, error = tokens.trajectories, tokens.last / tokens.first, tokens.ratio_error
    yield Measure(count, count, value, detail=detail, compared=tokens.steps, onset=tokens.onset, error=error)


def _evidence(step: StepContents, _subject: str) -> list[TrajectorySummary]:
    return ranked(step.trajectories, lambda each: each.output_tokens or 0)


CHECKS = (
    Check(
        name="length_without_reward",
        severity=Severity.WARNING,
        threshold=Threshold(
            1.5,
            "mean output tokens of the last third of the steps, by the first third's, if the mean reward doesn't rise",
            "longer answers that pay are wanted; half as long again for nothing is cost, and the usual way into "
            "truncation",
            is_share=False,
        ),
        least=16,
        sentence=lambda found: f"trajectories went {found.detail}: they grow, and the reward doesn't",
        advice="look at the longest: what do they repeat? Shape the reward by length, or check the loss's average "
        "over tokens, "
        "which favours long wrong answers",
        evidence=_evidence,
        over_steps=_over_steps,
    ),
)
