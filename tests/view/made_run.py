"""A run whose figures are known: prompts that are always right or always wrong, and failures of each kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from tests.trace_folder.recordings import make_span, trace_id_of, write_folder

__all__ = ["GROUPS", "ROLLOUTS", "STEPS", "made_trajectory", "write_made_run"]

STEPS, GROUPS, ROLLOUTS = 3, 6, 4


def write_made_run(folder: Path) -> None:
    """Write two experiments: `first` with three steps and a validation, then `second` with two steps.

    Of `first`, prompt 0 is always right and prompt 1 always wrong; of the others as many rollouts are right as the
    step's number says. Rollout 3 of prompt 2 is truncated, that of prompt 3 fails; the tool fails for prompt 4.
    """
    write_folder(
        folder,
        *(
            _of_first(step, sample, rollout)
            for step in range(1, STEPS + 1)
            for sample in range(GROUPS)
            for rollout in range(ROLLOUTS)
        ),
        *(made_trajectory(2, sample, 0, validate=True, experiment="first") for sample in range(2)),
        *(
            made_trajectory(step, 100, rollout, reward=0.5, experiment="second", start=1000)
            for step in (1, 2)
            for rollout in range(ROLLOUTS)
        ),
    )


def made_trajectory(
    step: int,
    sample: int,
    rollout: int,
    *,
    reward: float | None = 1.0,
    status: str = "completed",
    validate: bool = False,
    experiment: str = "first",
    tool_error: str | None = None,
    finish_reason: str | None = None,
    start: float = 0.0,
) -> list[ReadableSpan]:
    """Return a trajectory of a question, a call of `calculate`, and an answer."""
    trace_id = trace_id_of(step, sample, rollout, validate=validate)
    tags = dict(zip(semconv.TAGS, (step, sample, rollout, validate, experiment), strict=True))
    begin = start + 10 * step
    end = begin + 1 + rollout
    generation = {
        semconv.SPAN_KIND: "LLM",
        **tags,
        semconv.INPUT_MESSAGES: _message("user", f"Question {sample}: how much is it?"),
        semconv.OUTPUT_MESSAGES: _message("assistant", f"It is {sample * 10 + rollout}."),
        semconv.USAGE_OUTPUT_TOKENS: 10 * (1 + rollout),
    }
    tool = {
        semconv.SPAN_KIND: "TOOL",
        **tags,
        semconv.TOOL_NAME: "calculate",
        semconv.INPUT_VALUE: orjson.dumps({"expression": f"{sample} * 10 + {rollout}"}).decode(),
    }
    root: dict[str, Any] = {semconv.SPAN_KIND: "AGENT", **tags, semconv.STATUS: status}
    if reward is not None:
        root[semconv.REWARD] = reward
    if finish_reason is not None:
        root[semconv.FINISH_REASON] = finish_reason
    failed = "the engine has gone" if status == "error" else None
    return [
        make_span("generate", 2, trace_id, attributes=generation, seconds=(begin, end - 0.5)),
        make_span("calculate", 3, trace_id, attributes=tool, error=tool_error, seconds=(end - 0.5, end)),
        make_span("rollout", 1, trace_id, parent=None, attributes=root, error=failed, seconds=(begin, end)),
    ]


def _of_first(step: int, sample: int, rollout: int) -> list[ReadableSpan]:
    right = {0: True, 1: False}.get(sample, rollout < step)
    if (sample, rollout) == (3, 3):
        return made_trajectory(step, sample, rollout, reward=None, status="error")
    status = "truncated" if (sample, rollout) == (2, 3) else "completed"
    error = "division by zero" if sample == 4 else None
    return made_trajectory(
        step, sample, rollout, reward=float(right and status != "truncated"), status=status, tool_error=error
    )


def _message(role: str, text: str) -> str:
    return orjson.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}]).decode()
