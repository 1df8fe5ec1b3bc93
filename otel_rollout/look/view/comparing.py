"""Comparisons as the pages show them: of two runs, and of a prompt over the steps of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from otel_rollout.catalog import GroupSummary, StepSummary
from otel_rollout.catalog.reward_scale import Scale
from otel_rollout.look.compare import Comparison, Figure, Part, Side, compare_runs, sides_of
from otel_rollout.look.compare.words import (
    change_text,
    flips_text,
    interval_text,
    left_out_text,
    over_text,
    too_few_texts,
    value_text,
    verdict_text,
)
from otel_rollout.look.findings.reward_level import FAILS
from otel_rollout.look.view.answers import AskedWrongError
from otel_rollout.look.view.run_state import RunState

MAX_FLIPS: Final = 500
"""The most prompts of each kind in an answer."""
_SOLVED: Final = 0.5


def compared(state: RunState, steps: Sequence[StepSummary], query: Mapping[str, str]) -> dict[str, Any]:
    """Return the comparison of the run that a request names with the run that it is against.

    Args:
        state: The run.
        steps: All of its steps.
        query: `experiment` and `run`; `against` and `against_run`, the experiment and run of the other one.

    Raises:
        AskedWrongError: There is no such run.
    """
    folders = state.run_folders()
    sides = sides_of(state.run, "", steps)
    before = _side(sides, query.get("against", ""), query.get("against_run"))
    after = _side(sides, query.get("experiment", ""), query.get("run"))
    only = str(state.folders[0]) if len(state.folders) == 1 else ""
    before, after = (Side(each.run, each.steps, folders.get(each.run_id or "", only)) for each in (before, after))
    return _shown(compare_runs(before, after))


def _side(sides: Sequence[Side], experiment: str, run_id: str | None) -> Side:
    for side in sides:
        if (side.experiment or "", side.run_id or None) == (experiment, run_id or None):
            return side
    raise AskedWrongError(404, f"there is no run {run_id or ''} of the experiment {experiment!r}; it may come later")


def _shown(comparison: Comparison) -> dict[str, Any]:
    return {
        "verdict": verdict_text(comparison),
        "is_worse": bool(comparison.worse),
        "left_out": left_out_text(comparison),
        "parts": list(map(_part, comparison.parts)),
        "gone": comparison.gone,
        "new": comparison.new,
    }


def _part(part: Part) -> dict[str, Any]:
    return {
        "validate": part.validate,
        "over": over_text(part),
        "figures": list(map(_figure, part.figures)),
        "flips": None if part.flip_p is None else flips_text(part),
        "lost": part.lost[:MAX_FLIPS],
        "gained": part.gained[:MAX_FLIPS],
        "too_few": too_few_texts(part),
    }


def _figure(figure: Figure) -> dict[str, Any]:
    return {
        "name": figure.name,
        "title": figure.title,
        "before": value_text(figure.before, figure.unit),
        "after": value_text(figure.after, figure.unit),
        "change": change_text(figure.change, figure.unit),
        "interval": interval_text(figure),
        "low": figure.low,
        "high": figure.high,
        "at": figure.change,
        "of": f"{figure.units:,} {figure.over}",
        "verdict": {"other": "changed"}.get(figure.verdict, figure.verdict),
    }


def biography(groups: Sequence[GroupSummary], scale: Scale | None) -> dict[str, Any]:
    """Return a prompt over steps: its groups, the step that first solved it, and the step that it is forgotten from.

    Args:
        groups: Its groups in the order of steps, one at least.
        scale: The worst and the best reward of the run; None if they are unknown, or all are one.
    """
    shares = [each.solved for each in groups]
    solved = [each for each, share in zip(groups, shares, strict=True) if share is not None and share > _SOLVED]
    last = max((at for at, share in enumerate(shares) if share), default=None)
    after = [each for at, each in enumerate(groups) if last is not None and at > last and shares[at] is not None]
    tried = sum(reward is not None for each in after for reward in each.rewards)
    return {
        "sample_index": groups[0].sample_index,
        "prompt": next((each.prompt for each in groups if each.prompt), ""),
        "steps": [{"group": each, "solved": share} for each, share in zip(groups, shares, strict=True)],
        "lowest": scale and scale.lowest,
        "highest": scale and scale.highest,
        "solved_above": scale.middle if scale else 0.0,
        "first_solved": solved[0].step if solved else None,
        "forgotten": after[0].step if solved and tried >= FAILS else None,
    }
