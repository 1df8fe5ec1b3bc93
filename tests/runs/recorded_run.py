"""A run as plain data, and its way into a trace folder through the public API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import otel_rollout
from otel_rollout_file import FileSpanExporter

START = 1_760_000_000_000_000_000
"""The run's first moment, in nanoseconds since 1970."""
SECOND = 1_000_000_000


@dataclass
class Call:
    """One tool call.

    Args:
        tool: The tool's name.
        arguments: Its arguments.
        result: Its result, if it has not failed.
        error: The exception that it ended with.
        seconds: Its duration.
    """

    tool: str
    arguments: dict[str, Any]
    result: Any = "ok"
    error: BaseException | None = None
    seconds: float = 0.3


@dataclass
class Turn:
    """One answer of the model, and the tool calls that follow it.

    Args:
        text: The answer's text.
        tokens: Its tokens.
        seconds: The duration of its generation.
        finish: The engine's finish reason.
        calls: The tool calls.
        error: The exception that the generation ended with.
    """

    text: str
    tokens: int = 200
    seconds: float = 4.0
    finish: str = "stop"
    calls: list[Call] = field(default_factory=list)
    error: BaseException | None = None


@dataclass
class Rollout:
    """One trajectory.

    Args:
        step: The training step.
        sample: The prompt's index.
        rollout: Its number in the group.
        prompt: The prompt's text.
        turns: The turns.
        reward: The reward; None if there is none.
        parts: The reward's parts.
        status: Its status; None for the one that its error means.
        error: What it failed with.
        begins: Seconds from the step's beginning to its start.
        attributes: Attributes of the root.
        wait: Seconds without any span before its end.
        score_error: The exception that the reward function ended with.
    """

    step: int
    sample: int
    rollout: int
    prompt: str
    turns: list[Turn]
    reward: float | None = 0.0
    parts: dict[str, float] = field(default_factory=dict)
    status: str | None = None
    error: BaseException | None = None
    begins: float = 0.0
    validate: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)
    wait: float = 0.0
    score_error: BaseException | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """Its step, sample and number."""
        return self.step, self.sample, self.rollout

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.wait + sum(turn.seconds + sum(call.seconds for call in turn.calls) for turn in self.turns) + 0.05


@dataclass
class Run:
    """All rollouts of a run, in the order of their steps.

    Args:
        rollouts: The rollouts.
        gap: Seconds of training between two steps.
        experiment: The experiment's name.
    """

    rollouts: list[Rollout]
    gap: float = 20.0
    experiment: str = "run"

    def by_step(self) -> dict[int, list[Rollout]]:
        """Return the training rollouts of each step."""
        steps: dict[int, list[Rollout]] = {}
        for rollout in self.rollouts:
            steps.setdefault(rollout.step, []).append(rollout)
        return dict(sorted(steps.items()))

    def groups(self, step: int) -> dict[int, list[Rollout]]:
        """Return the groups of a step by sample."""
        groups: dict[int, list[Rollout]] = {}
        for rollout in self.by_step()[step]:
            if not rollout.validate:
                groups.setdefault(rollout.sample, []).append(rollout)
        return groups


def write_run(run: Run, folder: Path) -> None:
    """Write a run into a trace folder; the process must not trace already."""
    otel_rollout.init("runs", run.experiment, backend=FileSpanExporter(folder=folder))
    try:
        begins = START
        for rollouts in run.by_step().values():
            for rollout in rollouts:
                _write(rollout, begins + round(rollout.begins * SECOND))
            longest = max(rollout.begins + rollout.seconds for rollout in rollouts)
            begins += round((longest + run.gap) * SECOND)
    finally:
        assert otel_rollout.shutdown(timeout=60)


def _write(rollout: Rollout, now: int) -> None:
    trajectory = otel_rollout.start_trajectory(
        rollout.sample, rollout.step, rollout.rollout, "agent", rollout.validate, start_time=now
    )
    messages: list[dict[str, Any]] = [{"role": "user", "content": rollout.prompt}]
    for turn in rollout.turns:
        now = _write_turn(trajectory, turn, messages, now)
    now += round((rollout.wait + 0.02) * SECOND)
    if rollout.reward is not None:
        trajectory.record(
            "score",
            "EVALUATOR",
            start_time=now,
            end_time=now + SECOND // 100,
            output=rollout.reward,
            error=rollout.score_error,
        )
    trajectory.annotate(**dict(_facts(rollout)))
    now += SECOND // 50
    trajectory.end(rollout.error, status=rollout.status, end_time=now)


def _write_turn(trajectory: otel_rollout.Trajectory, turn: Turn, messages: list[dict[str, Any]], now: int) -> int:
    end = now + round(turn.seconds * SECOND)
    answer: dict[str, Any] = {"role": "assistant", "content": turn.text}
    if turn.calls:
        answer["tool_calls"] = [
            {"id": f"call_{len(messages)}_{number}", "type": "function", "function": _function(call)}
            for number, call in enumerate(turn.calls)
        ]
    trajectory.record(
        "generate",
        "LLM",
        start_time=now,
        end_time=end,
        input={"model": "policy", "messages": [*messages]},
        output=None
        if turn.error
        else {
            "choices": [{"message": answer, "finish_reason": turn.finish}],
            "usage": {"prompt_tokens": 40 * len(messages), "completion_tokens": turn.tokens},
        },
        error=turn.error,
    )
    messages.append(answer)
    for number, call in enumerate(turn.calls):
        start, end = end, end + round(call.seconds * SECOND)
        trajectory.record(
            call.tool,
            "TOOL",
            start_time=start,
            end_time=end,
            input=call.arguments,
            output=call.result,
            error=call.error,
        )
        content = str(call.error) if call.error else str(call.result)
        messages.append({"role": "tool", "tool_call_id": f"call_{len(messages)}_{number}", "content": content})
    return end


def _function(call: Call) -> dict[str, Any]:
    return {"name": call.tool, "arguments": str(call.arguments).replace("'", '"')}


def _facts(rollout: Rollout) -> Iterator[tuple[str, Any]]:
    if rollout.reward is not None:
        yield "reward", rollout.reward
    if rollout.parts:
        yield "rewards", rollout.parts
    yield from rollout.attributes.items()
