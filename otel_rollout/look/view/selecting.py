"""The part of a run that a request asks for: step, validation, experiment, run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.look.view.answers import AskedWrongError

__all__ = ["Asked", "asked_step", "is_validation", "step_in"]


@dataclass(frozen=True)
class Asked:
    """A step of one experiment's training or validation, and its summary."""

    step: int | None
    validate: bool
    experiment: str | None
    run_id: str | None
    summary: StepSummary


def step_in(text: str) -> int | None:
    """Return the step in an address.

    Raises:
        AskedWrongError: It is neither a number nor `none`.
    """
    try:
        return None if text == "none" else int(text)
    except ValueError:
        raise AskedWrongError(400, f"{text!r} is no step: a number, or `none`") from None


def is_validation(query: Mapping[str, str]) -> bool:
    """Return True if parameters ask for validation."""
    return query.get("validate", "") not in ("", "0", "false")


def asked_step(path: str, query: Mapping[str, str], steps: Sequence[StepSummary]) -> Asked:
    """Return the step that a request asks for, of the newest experiment if it names none.

    Args:
        path: The step in the address: a number, or `none`.
        query: `validate`, `experiment`, `run`.
        steps: All steps of the run.

    Raises:
        AskedWrongError: It is no step, or the run has no such step.
    """
    step, validate = step_in(path), is_validation(query)
    experiment, run_id = query.get("experiment"), query.get("run")
    found = [
        each
        for each in steps
        if each.step == step
        and each.validate == validate
        and (experiment is None or str(each.experiment_name or "") == experiment)
        and (run_id is None or each.run_id == run_id)
    ]
    if not found:
        what = f"{'validation of ' if validate else ''}step {path}"
        whose = "" if experiment is None else f" of the experiment {experiment!r}"
        raise AskedWrongError(404, f"there is no {what}{whose} in this run; it may come later")
    summary = max(found, key=lambda each: each.start_time)
    return Asked(step, validate, summary.experiment_name, summary.run_id, summary)
