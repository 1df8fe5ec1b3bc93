"""A check: what it measures in a step or over steps, its threshold, its words, and its evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from otel_rollout.catalog.failure_class import Survived, failure_class, survived_failures
from otel_rollout.catalog.step_signals import JudgedStep, worst_reward
from otel_rollout.facts.table import TrajectorySummary
from otel_rollout.look.findings.finding import Severity
from otel_rollout.text.plain_text import shorten

MAX_NAME: Final = 80
SURE: Final = 1.645
"""The standard errors from a value down to the bound that it is above with 95 percent."""


class Measure(NamedTuple):
    """A check's measurement.

    Args:
        number: The trajectories, groups, calls or spans that it is found in.
        total: The number of all that were checked.
        value: The value that is compared with the threshold.
        subject: The tool, class of failure or reward part; empty if the check has none.
        detail: More facts for the sentence; of the step with the highest value, if there are several.
        rival: The reward part that falls while the subject rises; empty if the check has none.
        compared: The steps that it compares; none for a check of each step.
        onset: The first step that has it, of a check over steps.
        prompts: The keys of the prompts that its evidence is of; empty for any.
        sample: The size of the sample that the value is a share of; 0 if it is counted or timed, and so has no error.
        error: The standard error of a value that is no share.
    """

    number: int
    total: int
    value: float
    subject: str = ""
    detail: str = ""
    rival: str = ""
    compared: tuple[JudgedStep, ...] = ()
    onset: int | None = None
    prompts: frozenset[str] = frozenset()
    sample: int = 0
    error: float = 0.0

    @property
    def name(self) -> str:
        """The subject, shortened for a sentence."""
        return shorten(self.subject, MAX_NAME)

    @property
    def clause(self) -> str:
        """The detail as the end of a sentence; empty if there is none."""
        return f": {self.detail}" if self.detail else ""

    @classmethod
    def share(cls, number: int, total: int, subject: str = "", detail: str = "") -> Measure:
        """Return the measurement of a share, which is its value."""
        return cls(number, total, number / total if total else 0.0, subject, detail, sample=total)

    @classmethod
    def pooled(cls, measures: Sequence[Measure]) -> Measure:
        """Return one measurement of the samples of several steps."""
        sample = sum(each.sample for each in measures)
        value = sum(each.value * each.sample for each in measures) / max(1, sample)
        number, total = sum(each.number for each in measures), sum(each.total for each in measures)
        return cls(number, total, value, sample=sample)

    def is_sure(self, limit: float) -> bool:
        """Return True if the value is above a threshold with 95 percent: Wilson's score interval, for a share."""
        return self.value - limit > SURE * self._error_at(limit)

    def needed(self, limit: float) -> int:
        """Return the total from which on a value above a threshold would be sure."""
        return math.ceil(self.total * (SURE * self._error_at(limit) / (self.value - limit)) ** 2)

    def _error_at(self, limit: float) -> float:
        return math.sqrt(max(0.0, limit * (1 - limit)) / self.sample) if self.sample else self.error


class Threshold(NamedTuple):
    """A threshold; a value above it is a finding.

    Args:
        default: Its default.
        of: The value that it is compared with, in words.
        reason: The reason for the default.
        is_share: True if it is a share, which is written in percent.
    """

    default: float
    of: str
    reason: str
    is_share: bool = True

    def text(self, value: float) -> str:
        """Return a value as text."""
        return percent(value) if self.is_share else f"{value:.3g}"


class StepContents:
    """The trajectories of a step, which evidence is taken from.

    Args:
        summary: The step's summary.
        trajectories: Its trajectories.
    """

    def __init__(self, summary: JudgedStep, trajectories: Sequence[TrajectorySummary]) -> None:
        self.summary = summary
        self.trajectories = trajectories

    @cached_property
    def groups(self) -> Sequence[Sequence[TrajectorySummary]]:
        """The trajectories of each prompt."""
        found: dict[str, list[TrajectorySummary]] = {}
        for each in self.trajectories:
            if each.sample_index is not None:
                found.setdefault(str(each.sample_index), []).append(each)
        return list(found.values())

    @cached_property
    def worst_reward(self) -> float | None:
        """The lowest reward; None if all are the same, or none is known."""
        return worst_reward(self.trajectories)

    @cached_property
    def survived(self) -> Survived:
        """The failures of tools that are not to blame for a bad reward."""
        return survived_failures(self.trajectories, self.worst_reward)

    def failure_of(self, summary: TrajectorySummary) -> str | None:
        """Return the class of a trajectory's failure; None if it didn't fail."""
        return failure_class(summary, self.worst_reward, self.survived, has_turns=self._has_turns)

    @cached_property
    def _has_turns(self) -> bool:
        return any(each.turns for each in self.trajectories)


@dataclass(frozen=True)
class Check:
    """A check; it is a function of step summaries, and reads trajectories only for evidence.

    Args:
        name: Its name, which is its threshold's too.
        severity: The weight of its findings.
        threshold: Its threshold.
        least: The least total: a share of fewer is no evidence.
        sentence: Returns the meaning of a measurement.
        advice: The remedy to try.
        evidence: Returns trajectories of a step that prove it, the clearest first.
        in_step: Measures a step.
        over_steps: Measures the training steps of a run; for a check that compares steps.
        in_run: Measures steps of a run, in order, by what the run's other steps have; it yields each with its measure.
        is_final: True if a step that is being written can't be judged.
        in_validation: True if it looks at validation passes too.
        is_confirmed: Returns False if the trajectories of the step with the highest value show that it is none.
    """

    name: str
    severity: Severity
    threshold: Threshold
    least: int
    sentence: Callable[[Measure], str]
    advice: str
    evidence: Callable[[StepContents, str], Iterable[TrajectorySummary]]
    in_step: Callable[[JudgedStep], Iterable[Measure]] | None = None
    over_steps: Callable[[Sequence[JudgedStep]], Iterable[Measure]] | None = None
    in_run: Callable[[Sequence[JudgedStep]], Iterable[tuple[JudgedStep, Measure]]] | None = None
    is_final: bool = False
    in_validation: bool = True
    is_confirmed: Callable[[StepContents, Measure], bool] = lambda _contents, _measure: True


def ranked(
    trajectories: Iterable[TrajectorySummary], rank: Callable[[TrajectorySummary], float]
) -> list[TrajectorySummary]:
    """Return the trajectories with a rank above 0, the highest first."""
    with_rank = [(rank(each), each) for each in trajectories]
    return [each for value, each in sorted(with_rank, key=lambda pair: -pair[0]) if value > 0]


def percent(share: float) -> str:
    """Return a share in percent, with two digits."""
    return f"{share:.0%}" if share >= 0.0995 else f"{100 * share:.2g}%"
