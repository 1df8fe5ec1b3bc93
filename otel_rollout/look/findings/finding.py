"""The result of a check: how many, above which threshold, what it means, the trajectories that prove it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote, urlencode

from otel_rollout.facts.table import TrajectorySummary


class Severity(str, Enum):
    """The weight of a finding."""

    ERROR = "error"
    """Training learns something wrong, or the trace is not whole."""
    WARNING = "warning"
    """Training wastes time or samples, or may be about to go wrong."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A trajectory that proves a finding.

    Args:
        trace_id: 32 hexadecimal digits.
        step: Its step.
        validate: True if it is part of a validation pass.
        sample_index: Its prompt.
        rollout_n: Its number in the group.
        command: The command that shows it.
        address: Its address in the viewer, from `#` on.
    """

    trace_id: str
    step: int | None
    validate: bool
    sample_index: int | str | None
    rollout_n: int | str | None
    command: str
    address: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A check that is above its threshold.

    Args:
        check: The check's name, which is its threshold's too.
        title: The check and its subject in words.
        subject: The tool, class of failure or reward part; empty if the check has none.
        severity: `error` or `warning`.
        experiment_name: The experiment.
        run_id: The run, if several runs of the experiment have the same steps.
        validate: True if it is found in validation.
        steps: The steps above the threshold, in order; of a check over steps, the first and the last compared.
        onset: The first step that has it, also below the threshold if it is near the steps above.
        compares_steps: True for a check over steps.
        number: The trajectories, groups, calls or spans that it is found in, in all of these steps.
        total: Those that were looked at.
        share: The number by the total.
        value: The value that is compared with the threshold, the highest of the steps.
        threshold: The threshold.
        before: The same value in the step or folder that this is compared with; None without one.
        measured: Value, threshold and the value before, in words.
        meaning: A sentence on its meaning.
        advice: A sentence with the remedy to try.
        evidence: Trajectories that prove it, the clearest first.
    """

    check: str
    title: str
    subject: str
    severity: Severity
    experiment_name: str | None
    run_id: str | None
    validate: bool
    steps: tuple[int | None, ...]
    onset: int | None
    compares_steps: bool
    number: int
    total: int
    share: float
    value: float
    threshold: float
    before: float | None
    measured: str
    meaning: str
    advice: str
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True, slots=True)
class TooFew:
    """A check whose value is above its threshold, in steps too small to be sure of it.

    Args:
        check: Its name.
        title: The check and its subject in words.
        validate: True if it is found in validation.
        value: The value of the largest of these steps.
        measured: The value in words.
        total: The trajectories, groups or calls of that step.
        least: The total that it takes to be sure of this value.
    """

    check: str
    title: str
    validate: bool
    value: float
    measured: str
    total: int
    least: int


def evidence_of(summary: TrajectorySummary, *, folder: str | None, run_id: str | None) -> Evidence:
    """Return a trajectory as evidence.

    Args:
        summary: The trajectory.
        folder: Its trace folder; None for the default one.
        run_id: The run, if several runs of the experiment have the same steps.
    """
    words = ["otel-rollout", "show", *([] if folder is None else [folder]), "--trace", summary.trace_id]
    return Evidence(
        trace_id=summary.trace_id,
        step=summary.step,
        validate=summary.validate,
        sample_index=summary.sample_index,
        rollout_n=summary.rollout_n,
        command=" ".join(map(shlex.quote, words)),
        address=_address(summary, run_id),
    )


def _address(summary: TrajectorySummary, run_id: str | None) -> str:
    if summary.sample_index is None or summary.rollout_n is None:
        return f"#/trajectory/{summary.trace_id}"
    step = "none" if summary.step is None else summary.step
    place = f"#/step/{step}/sample/{_part(summary.sample_index)}/rollout/{_part(summary.rollout_n)}"
    selection = {
        "validate": "1" if summary.validate else None,
        "experiment": summary.experiment_name,
        "run": run_id,
    }
    query = urlencode({name: value for name, value in selection.items() if value is not None}, quote_via=quote)
    return f"{place}?{query}" if query else place


def _part(value: int | str) -> str:
    return quote(str(value), safe="")
