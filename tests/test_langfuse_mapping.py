"""Our attributes by Langfuse's published mapping: what its pages show of a trajectory that comes by OTLP.

The facts are those of https://langfuse.com/integrations/native/opentelemetry (Property Mapping), and for the order of
precedence those of https://github.com/langfuse/langfuse, packages/shared/src/server/otel/OtelIngestionProcessor.ts.
"""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op, semconv
from otel_rollout.testing import InMemorySpanExporter

LANGFUSE: Final = {
    "sessionId": ("langfuse.session.id", "session.id", "gen_ai.conversation.id"),
    "type": ("langfuse.observation.type", "openinference.span.kind", "gen_ai.operation.name"),
    "model": ("langfuse.observation.model.name", "gen_ai.response.model", "gen_ai.request.model"),
    "input": (
        "langfuse.observation.input",
        "mlflow.spanInputs",
        "traceloop.entity.input",
        "input.value",
        "llm.input_messages",
        "gen_ai.input.messages",
        "gen_ai.tool.call.arguments",
    ),
    "output": (
        "langfuse.observation.output",
        "mlflow.spanOutputs",
        "traceloop.entity.output",
        "output.value",
        "llm.output_messages",
        "gen_ai.output.messages",
        "gen_ai.tool.call.result",
    ),
    "usage.input": ("langfuse.observation.usage_details", "gen_ai.usage.input_tokens"),
    "usage.output": ("langfuse.observation.usage_details", "gen_ai.usage.output_tokens"),
    "name": ("gen_ai.tool.name",),
    "userId": ("langfuse.user.id", "user.id"),
}
"""Langfuse's properties, and the attributes that it takes them from; the first that is there counts."""


@rollout_trace_op(kind="LLM")
def generate(messages: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """Answer like OpenAI's chat completions."""
    message = {"role": "assistant", "content": "It is 42."}
    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    return {"model": "policy-7", "choices": [{"finish_reason": "stop", "message": message}], "usage": usage}


@rollout_trace_op(name="calculator", kind="TOOL")
def calculate(expression: str) -> str:
    """Calculate."""
    return "42"


@pytest.fixture
def properties(rollout_spans: InMemorySpanExporter) -> list[dict[str, Any]]:
    """Return Langfuse's properties of an LLM op, a tool and their root."""
    with rollout_trace_attr(12, 7, 1):
        generate([{"role": "user", "content": "What is 6 * 7?"}], "policy")
        calculate("6*7")
    assert otel_rollout.flush(60)
    return [
        {
            name: next(span.attributes[key] for key in keys if key in span.attributes)
            for name, keys in LANGFUSE.items()
            if any(key in span.attributes for key in keys)
        }
        for span in rollout_spans.spans
    ]


class TestProperties:
    """What Langfuse makes of each span."""

    def test_the_trajectory(self, properties):
        """Its session is the group, its input the prompt, its output the last answer; it has no usage of its own."""
        assert properties[2] == {
            "sessionId": "s12 · step 7 · test-project/test-experiment",
            "type": "AGENT",
            "input": "What is 6 * 7?",
            "output": "It is 42.",
        }

    def test_a_turn(self, properties):
        """A turn is a generation with model and usage; its text comes first, as the lists show it."""
        turn = properties[0]
        given, answered = orjson.loads(turn.pop("input")), orjson.loads(turn.pop("output"))

        assert turn == {"type": "LLM", "model": "policy-7", "usage.input": 7, "usage.output": 3}
        assert given == {"prompt_text": "What is 6 * 7?", "model": "policy"}
        assert next(iter(answered.items())) == ("response_text", "It is 42.")

    def test_a_tool(self, properties):
        """A tool has its name, its arguments, and its result without quotes."""
        assert properties[1] == {
            "type": "TOOL",
            "name": "calculator",
            "input": '{"expression":"6*7"}',
            "output": "42",
        }

    def test_keys_that_langfuse_would_take_for_others(self):
        """No attribute of ours is one that Langfuse takes before the payload, or for a user."""
        ours = {row.key for row in semconv.ATTRIBUTES}

        for name, wanted in (("input", "input.value"), ("output", "output.value"), ("userId", None)):
            keys = LANGFUSE[name]
            assert ours.isdisjoint(keys[: keys.index(wanted) if wanted else None])
