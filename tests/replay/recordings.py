"""What is recorded, and where a test replays it to."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED, Outcome
from otel_rollout.testing import InMemorySpanExporter


class Agent:
    """What is traced: a turn of a model, and a tool that fails."""

    @rollout_trace_op(kind="LLM")
    def generate(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        """Answer."""
        return {"text": "4 ✓", "ids": [19, 20], "usage": {"input_tokens": 12, "output_tokens": 3}}

    @rollout_trace_op(kind="TOOL")
    def calculate(self, expression: str) -> str:
        """Fail."""
        raise ZeroDivisionError("division by zero")


def run_agent(step: int, sample: int, rollout: int, *, validate: bool = False, reward: float | None = 0.5) -> None:
    """Trace one trajectory of three spans."""
    agent = Agent()
    with rollout_trace_attr(sample_index=sample, step=step, rollout_n=rollout, name="agent_loop", validate=validate):
        agent.generate([{"role": "user", "content": "What is 2+2?"}])
        with contextlib.suppress(ZeroDivisionError):
            agent.calculate("1/0")
        if reward is not None:
            annotate(reward=reward)


class Memory(InMemorySpanExporter, OutcomeSpanExporter):
    """An exporter that keeps its spans, and says so: what it has got is remembered."""

    destination = "memory of this test"

    def send(self, spans: Sequence[ReadableSpan]) -> Outcome:
        """Keep the spans."""
        self.export(spans)
        return DELIVERED
