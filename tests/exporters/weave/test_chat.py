"""Conversations, tokens and reward parts as Weave's pages read them."""

from __future__ import annotations

import json
from typing import Any

import orjson

from otel_rollout_weave.rewards import reward_feedback_of
from otel_rollout_weave.translate import call_of_span
from otel_rollout_weave.usage import Below

from .chat_view import is_drawn_as_chat

ASKED = [
    {"role": "system", "parts": [{"type": "text", "content": "You are a calculator."}]},
    {"role": "user", "parts": [{"type": "text", "content": "6 times 7?"}]},
]
CALL = {"type": "tool_call", "id": "call_1", "name": "calculator", "arguments": {"expression": "6 * 7"}}
CALLED = [*ASKED, {"role": "assistant", "parts": [CALL]}]
ANSWERED = [
    *CALLED,
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "42"}]},
]
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "It is 42."}], "finish_reason": "stop"}


def chat(asked: Any, answer: Any) -> dict[str, str]:
    """Return the attributes of messages."""
    return {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps([answer])}


def record_of(span: Any, **options: Any) -> dict[str, Any]:
    """Return the record of a span's call as the server reads it."""
    return json.loads(orjson.dumps(call_of_span(span, project_id="team/project", op_name=span.name, **options)))


class TestConversations:
    """Messages on a span."""

    def test_turn_with_a_tool_call(self, spans) -> None:
        """An LLM op is drawn as a conversation, with its tool call, what else it was given, and its finish reason."""
        answer = {"role": "assistant", "parts": [CALL], "finish_reason": "tool_calls"}
        op = spans.op(spans.root(), "generate", kind="LLM", attributes=chat(ASKED, answer))

        call = record_of(op)

        assert is_drawn_as_chat(call)
        assert call["inputs"] == {
            "messages": [
                {"role": "system", "content": "You are a calculator."},
                {"role": "user", "content": "6 times 7?"},
            ],
            "x": 1,
        }
        function = {"name": "calculator", "arguments": '{"expression":"6 * 7"}'}
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
        }
        assert call["output"] == {
            "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
            "finish_reason": "tool_calls",
            "y": 2,
        }
        assert set(call["attributes"].get("gen_ai", {})) <= {"operation"}

    def test_trajectory(self, spans) -> None:
        """The root is drawn as the final conversation, and its reward stands beside the answer."""
        texts = {"input.value": "6 times 7?", "input.mime_type": "text/plain"}
        texts |= {"output.value": "It is 42.", "output.mime_type": "text/plain"}

        call = record_of(spans.root(reward=0.5, attributes={**chat(ANSWERED, ANSWER), **texts}))

        assert is_drawn_as_chat(call)
        assert [message["role"] for message in call["inputs"]["messages"]] == ["system", "user", "assistant", "tool"]
        assert list(call["inputs"]) == ["messages"]
        assert call["output"]["choices"][0]["message"] == {"role": "assistant", "content": "It is 42."}
        assert call["output"]["reward"] == 0.5
        assert "value" not in call["output"]

    def test_span_of_another_instrumentation(self, spans) -> None:
        """A model's call that follows the GenAI conventions keeps its messages, tokens and kind."""
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "qwen",
            "gen_ai.usage.input_tokens": 12,
            "gen_ai.usage.output_tokens": 3,
            **chat(ANSWERED, ANSWER),
        }

        call = record_of(spans.span("chat qwen", attributes, scope="opentelemetry.instrumentation.openai"))

        assert is_drawn_as_chat(call)
        assert call["attributes"]["weave"] == {"kind": "llm"}
        assert call["summary"]["usage"]["qwen"]["total_tokens"] == 15

    def test_tool_of_another_instrumentation(self, spans) -> None:
        """A tool's call that follows the GenAI conventions keeps its arguments, its result and its kind."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.call.arguments": '{"expression":"6 * 7"}',
            "gen_ai.tool.call.result": "42",
        }

        call = record_of(spans.span("execute_tool calculator", attributes, scope="theirs"))

        assert (call["inputs"], call["output"]) == ({"expression": "6 * 7"}, "42")
        assert call["attributes"] == {
            "kind": "TOOL",
            "weave": {"kind": "tool"},
            "run_id": "run-1",
            "gen_ai": {"operation": {"name": "execute_tool"}},
        }

    def test_span_of_openinference(self, spans) -> None:
        """A model's call of an OpenInference instrumentation keeps its input and output, its tokens and its kind."""
        attributes = {
            "openinference.span.kind": "LLM",
            "input.value": '{"messages":[{"role":"user","content":"6 times 7?"}],"model":"qwen"}',
            "input.mime_type": "application/json",
            "output.value": '{"choices":[{"index":0,"message":{"role":"assistant","content":"42"}}]}',
            "output.mime_type": "application/json",
            "llm.model_name": "qwen",
            "llm.token_count.prompt": 12,
            "llm.token_count.completion": 3,
        }

        call = record_of(spans.span("ChatCompletion", attributes, scope="openinference.instrumentation.openai"))

        assert is_drawn_as_chat(call)
        assert call["attributes"]["weave"] == {"kind": "llm"}
        assert call["summary"]["usage"] == {
            "qwen": {"requests": 1, "prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
        }


class TestUsage:
    """The tokens of a trajectory."""

    def test_root_has_the_sum(self, spans) -> None:
        """The root has the tokens of its model calls by model; a client's span inside an op counts once."""
        root = spans.root()
        small = {"gen_ai.request.model": "small", "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}
        large = {**small, "gen_ai.request.model": "large"}
        below = Below()
        first = spans.op(root, "generate", kind="LLM", attributes=small)
        for span in (spans.op(first, "chat", attributes=small), first, spans.op(root, "generate", attributes=small)):
            below.add(span)
        below.add(spans.op(root, "judge", attributes=large))
        below.add(spans.op(root, "tool"))

        summary = record_of(root, below=below)["summary"]

        assert summary["usage"] == {
            "small": {"requests": 2, "prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30},
            "large": {"requests": 1, "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }
        assert summary["status_counts"] == {"success": 6, "error": 0}


class TestRewardParts:
    """A reward and its parts as feedback."""

    def test_ids(self, spans) -> None:
        """The reward and each part have an id of their own, the same each time, which says whose it is."""
        parts = json.dumps({"format": 1, "style": {"value": "terse", "explanation": "short"}})
        root = spans.root(reward=0.5, attributes={"rollout.reward_parts": parts})

        rewards, again = reward_feedback_of([root]), reward_feedback_of([root])

        assert [(one.name, one.value, one.explanation) for one in rewards] == [
            ("reward", 0.5, ""),
            ("format", 1.0, ""),
            ("style", "terse", "short"),
        ]
        assert [one.id for one in rewards] == [one.id for one in again]
        assert [[one.is_of_this_trace(other.id) for other in rewards] for one in rewards] == [
            [True, False, False],
            [False, True, False],
            [False, False, True],
        ]
