"""Inputs and outputs in the shapes that MLflow's pages draw, on whole payloads."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from otel_rollout_mlflow.translate import otlp_spans

ASKED = [{"role": "user", "parts": [{"type": "text", "content": "6 times 7?"}]}]
CALL = {"type": "tool_call", "id": "call_1", "name": "calculator", "arguments": {"expression": "6 * 7"}}
ANSWER = {"role": "assistant", "parts": [{"type": "text", "content": "It is 42."}], "finish_reason": "stop"}
TOOL = {"type": "function", "name": "calculator", "parameters": {"type": "object"}}


def translated(span: Any, attributes: dict[str, Any], *, scope: str = "otel_rollout") -> dict[str, Any]:
    """Return MLflow's inputs, outputs, tools and tokens of a span with these attributes alone."""
    span._attributes = attributes
    span._instrumentation_scope = InstrumentationScope(scope)
    (found,) = otlp_spans([span])
    names = ("mlflow.spanInputs", "mlflow.spanOutputs", "mlflow.chat.tools", "mlflow.chat.tokenUsage")
    return {name.rpartition(".")[2]: json.loads(found.attributes[name]) for name in names if name in found.attributes}


def chat(asked: Any, answer: Any, **more: Any) -> dict[str, Any]:
    """Return the attributes of messages."""
    return {"gen_ai.input.messages": json.dumps(asked), "gen_ai.output.messages": json.dumps([answer]), **more}


class TestOps:
    """Spans below the root."""

    def test_words_come_before_ids(self, trajectory) -> None:
        """A turn's messages come first; its ids are complete, as one text that the page folds."""
        ids = list(range(100))
        given = chat(ASKED, ANSWER) | {
            "input.value": json.dumps({"prompt_ids": ids, "few": [1, 2]}),
            "output.value": json.dumps({"token_ids": ids}),
        }

        found = translated(trajectory().model, given)

        assert list(found["spanInputs"]) == ["messages", "prompt_ids", "few"]
        assert found["spanInputs"]["messages"] == [{"role": "user", "content": "6 times 7?"}]
        assert (json.loads(found["spanInputs"]["prompt_ids"]), found["spanInputs"]["few"]) == (ids, [1, 2])
        message = {"role": "assistant", "content": "It is 42."}
        assert found["spanOutputs"] == {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "finish_reason": "stop",
            "token_ids": json.dumps(ids, separators=(",", ":")),
        }

    def test_tool_call(self, trajectory) -> None:
        """A tool call and the tools are in OpenAI's form, and the messages stand nowhere twice."""
        answer = {"role": "assistant", "parts": [CALL], "finish_reason": "tool_call"}
        given = chat(ASKED, answer, **{"gen_ai.tool.definitions": json.dumps([TOOL])})
        span = trajectory().model

        found = translated(span, given)

        (choice,) = found["spanOutputs"]["choices"]
        function = {"name": "calculator", "arguments": '{"expression":"6 * 7"}'}
        assert choice["message"]["tool_calls"] == [{"id": "call_1", "type": "function", "function": function}]
        assert found["spanOutputs"]["finish_reason"] == "tool_calls"
        assert found["tools"] == [
            {"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}
        ]
        assert not {key for key in otlp_spans([span])[0].attributes if key.startswith("gen_ai.")}

    def test_reasoning(self, trajectory) -> None:
        """Reasoning is in the one field of a message that MLflow's pages draw it from, asked and answered."""
        thought = {"type": "reasoning", "content": "6 times 7 is 42."}
        answer = {"role": "assistant", "parts": [thought, *ANSWER["parts"]], "finish_reason": "stop"}

        found = translated(trajectory().model, chat([*ASKED, answer], answer))

        message = {"role": "assistant", "content": "It is 42.", "reasoning": "6 times 7 is 42."}
        assert found["spanInputs"]["messages"][1] == {**message, "finish_reason": "stop"}
        assert [choice["message"] for choice in found["spanOutputs"]["choices"]] == [message]

    def test_bare_message(self, trajectory) -> None:
        """An LLM op's bare message becomes an object with messages, and a tool's result stays as it is."""
        message = '{"content":"It is 42.","role":"assistant"}'
        one = trajectory()

        model = translated(one.model, {"openinference.span.kind": "LLM", "output.value": message})
        tool = translated(one.tool, {"openinference.span.kind": "TOOL", "output.value": message})

        assert model["spanOutputs"] == {"messages": [json.loads(message)]}
        assert tool["spanOutputs"] == json.loads(message)

    def test_span_of_another_library(self, trajectory) -> None:
        """Another library's payload without messages is left as it is, token ids included."""
        payload = json.dumps([{"role": "user", "content": "hi", "ids": list(range(100))}])

        found = translated(trajectory().model, {"input.value": payload}, scope="theirs")

        assert found == {"spanInputs": json.loads(payload)}

    def test_output_tokens_alone(self, trajectory) -> None:
        """Output tokens alone have a total: without one MLflow shows no tokens."""
        found = translated(trajectory().model, {"gen_ai.usage.output_tokens": 300})

        assert found == {"tokenUsage": {"input_tokens": 0, "output_tokens": 300, "total_tokens": 300}}


class TestRoots:
    """The root, whose inputs and outputs are what the list of traces shows."""

    def test_final_conversation_and_reward(self, trajectory) -> None:
        """The inputs are the conversation before the last answer, the outputs the reward and the answer's text."""
        texts = {"input.value": "6 times 7?", "input.mime_type": "text/plain"}
        texts |= {"output.value": "It is 42.", "output.mime_type": "text/plain"}

        found = translated(trajectory().root, chat(ASKED, ANSWER) | texts | {"rollout.reward": 0.5})

        assert found["spanInputs"] == {"messages": [{"role": "user", "content": "6 times 7?"}]}
        assert found["spanOutputs"] == {"reward": 0.5, "output": "It is 42."}

    def test_answer_of_the_program(self, trajectory) -> None:
        """A text that the program annotates is the output, though the conversation ends with another one."""
        texts = {"output.value": '"42"', "output.mime_type": "application/json"}

        found = translated(trajectory().root, chat(ASKED, ANSWER) | texts | {"rollout.reward": 0.5})

        assert found["spanOutputs"] == {"reward": 0.5, "output": "42"}

    def test_reward_beside_fields(self, trajectory) -> None:
        """A reward stands in front of the fields of an output; one that has a reward already is kept whole."""
        root = trajectory().root

        fields = translated(root, {"output.value": '{"answer":"4"}', "rollout.reward": 1})
        clash = translated(root, {"output.value": '{"reward":"none"}', "rollout.reward": 1})
        nothing = translated(root, {"rollout.reward": 1})

        assert fields["spanOutputs"] == {"reward": 1.0, "answer": "4"}
        assert clash["spanOutputs"] == {"reward": 1.0, "output": {"reward": "none"}}
        assert nothing["spanOutputs"] == {"reward": 1.0}

    def test_the_rollout_is_beside_the_reward(self, trajectory) -> None:
        """The output that MLflow's list shows has the number of the rollout, unless the output has such a field."""
        root = trajectory().root
        place = {"rollout.reward": 1, "rollout.rollout_n": 3}

        fields = translated(root, {"output.value": '{"answer":"4"}', **place})
        clash = translated(root, {"output.value": '{"rollout":"none"}', **place})
        unusual = translated(root, {"output.value": '{"answer":"4"}', "rollout.reward": 1, "rollout.rollout_n": "a"})

        assert fields["spanOutputs"] == {"reward": 1.0, "rollout": 3, "answer": "4"}
        assert clash["spanOutputs"] == {"reward": 1.0, "rollout": 3, "output": {"rollout": "none"}}
        assert unusual["spanOutputs"] == {"reward": 1.0, "answer": "4"}

    def test_text(self, trajectory) -> None:
        """A text becomes a message, which the list shows without quotes."""
        found = translated(trajectory().root, {"input.value": "hi", "input.mime_type": "text/plain"})

        assert found["spanInputs"] == {"messages": [{"role": "user", "content": "hi"}]}
