"""Groups that train nothing, since all rollouts of a prompt have one reward, and groups that lack rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from otel_rollout.catalog.step_signals import JudgedStep
from otel_rollout.facts.amounts import is_same_reward
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.check import Check, Measure, StepContents, Threshold
from otel_rollout.look.findings.finding import Severity

_WORDS: Final = {"worst": "the run's worst", "best": "the run's best", "other": "another one"}
_USUAL: Final = 0.6
"""The part of a step's groups that must have one size, so that it is the size of groups."""


def _equal_in(step: JudgedStep) -> Iterable[Measure]:
    lowest, highest, equal = step.reward_lowest, step.reward_highest, step.zero_variance
    if lowest is not None and lowest == highest:
        detail = f"{lowest:.3g} is the only reward"
    else:
        kinds = ", ".join(f"{equal[kind]:,} have {words}" for kind, words in _WORDS.items() if equal.get(kind))
        detail = f"of them {kinds}" if kinds else ""
    yield Measure.share(sum(equal.values()), step.comparable_groups, detail=detail)


def _equal_evidence(step: StepContents, _subject: str) -> Iterator[TrajectorySummary]:
    for group in step.groups:
        rewards = [each.reward for each in group if each.reward is not None]
        if len(rewards) > 1 and is_same_reward(min(rewards), max(rewards)):
            yield group[0]


def _incomplete_in(run: Sequence[JudgedStep]) -> Iterator[tuple[JudgedStep, Measure]]:
    usual = 0
    found = []
    for step in run:
        sizes = {int(size): number for size, number in step.signals.group_sizes.items()}
        groups = sum(sizes.values())
        if step.step is None or not groups:
            continue
        most = max(sizes, key=lambda size: sizes[size])
        if sizes[most] >= _USUAL * groups:
            usual = max(usual, most)
        missing = sum(max(0, usual - size) * number for size, number in sizes.items())
        fewer = sum(number for size, number in sizes.items() if size < usual)
        value = missing / (usual * groups) if usual else 0.0
        detail = f"{missing:,} of {usual * groups:,} rollouts are not there"
        found.append((step, Measure(fewer, groups, value, detail=detail)))
    # A run that was stopped leaves a last step that isn't whole.
    if [measure.number for _, measure in found[:-1] if measure.number] or not found:
        yield from found
    else:
        yield from found[:-1]


def _incomplete_evidence(step: StepContents, _subject: str) -> list[TrajectorySummary]:
    known = [each for each in step.trajectories if each.sample_index is not None]
    sizes = Counter(each.sample_index for each in known)
    return sorted(known, key=lambda each: sizes[each.sample_index])


CHECKS = (
    Check(
        name="incomplete_groups",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.1,
            "share of the rollouts of a step's prompts that are not there, by the usual number of rollouts of a prompt "
            "until then",
            "single ones are lost with their process; above it rollouts vanish, and groups are compared with fewer",
        ),
        least=8,
        sentence=lambda found: (
            f"{found.number:,} of {found.total:,} groups have fewer rollouts than groups had before{found.clause}"
        ),
        advice="look for workers that died or never started, for requests that were dropped, and for a changed number "
        "of rollouts; if traces are sampled (`max_samples_per_step_per_worker`), nothing is wrong",
        evidence=_incomplete_evidence,
        in_run=_incomplete_in,
        is_final=True,
        in_validation=False,
    ),
    Check(
        name="groups_without_signal",
        severity=Severity.WARNING,
        threshold=Threshold(
            0.6,
            "share of a step's groups",
            "some prompts are always too hard or too easy, and more of them towards the end of a training; above it "
            "most groups are paid for in vain",
        ),
        least=8,
        sentence=lambda found: (
            f"in {found.number:,} of {found.total:,} groups all rollouts have the same reward: they train nothing "
            f"where rollouts are compared with their group, as in GRPO{found.clause}"
        ),
        advice="look at one: if all are wrong, is the label right, does the verifier accept a right answer, is the "
        "prompt solvable in the turns given? If all are right, filter solved prompts out (verl: `filter_groups`), or "
        "take harder ones; if all have the same middle reward, does the reward see the answer?",
        evidence=_equal_evidence,
        in_step=_equal_in,
        in_validation=False,
    ),
)
