"""Messages of any client library in the form of OpenTelemetry's GenAI conventions."""

import dataclasses
from typing import Any

import numpy as np
import pydantic
import pytest

from otel_rollout.messages import (
    Message,
    answer_message,
    convert_messages,
    finish_reason_of,
    prompt_messages,
    read_of,
    split_input,
    split_output,
    tool_definitions,
)
from otel_rollout.record import take_snapshot

ARGUMENTS = {"expression": "6*7"}
CALL = {"type": "tool_call", "id": "call_1", "name": "calculator", "arguments": ARGUMENTS}
OPENAI_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "calculator", "arguments": '{"expression":"6*7"}'},
}
LLAMA_PROMPT = (
    "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
)


def said(role: str, text: str, **more: Any) -> Message:
    """Return a message of one text."""
    return Message(role, [{"type": "text", "content": text}], more)


def result(response: Any, identity: Any = "call_1", **more: Any) -> Message:
    """Return a tool's result."""
    return Message("tool", [{"type": "tool_call_response", "id": identity, "response": response, **more}])


class Chat(pydantic.BaseModel):
    """A message of a pydantic model."""

    role: str
    content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


@dataclasses.dataclass
class Plain:
    """A message of a class of one's own."""

    role: str
    content: str


class TestConvert:
    """`convert_messages`."""

    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            ({"role": "user", "content": "hi"}, [said("user", "hi")]),
            ({"role": "assistant", "content": None, "refusal": None}, [Message("assistant", [])]),
            ({"role": "user", "content": "hi", "name": "ann"}, [said("user", "hi", name="ann")]),
            (
                {"role": "assistant", "content": "", "tool_calls": [OPENAI_CALL]},
                [Message("assistant", [CALL])],
            ),
            ({"role": "tool", "tool_call_id": "call_1", "content": "42"}, [result("42")]),
            ({"role": "function", "name": "f", "content": "42"}, [result("42", None)._replace(more={"name": "f"})]),
            (
                {"role": "assistant", "function_call": {"name": "calculator", "arguments": "{not JSON"}},
                [
                    Message(
                        "assistant",
                        [{"type": "tool_call", "id": None, "name": "calculator", "arguments": "{not JSON"}],
                    )
                ],
            ),
            (
                {"role": "assistant", "reasoning_content": "hm", "content": "42"},
                [Message("assistant", [{"type": "reasoning", "content": "hm"}, {"type": "text", "content": "42"}])],
            ),
        ],
        ids=["text", "nothing", "name", "tool call", "tool result", "function", "broken call", "reasoning"],
    )
    def test_openai(self, given, expected):
        """Messages of chat completions; what the convention doesn't name stays, what is empty doesn't."""
        assert convert_messages(given) == expected

    def test_anthropic(self):
        """Content blocks are parts; each tool's result is a message of its own, before the user's text."""
        given = [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "tool_use", "id": "call_1", "name": "calculator", "input": ARGUMENTS},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "42"}]},
                    {"type": "tool_result", "tool_use_id": "call_2", "content": "no", "is_error": True},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ]

        assert convert_messages(given) == [
            Message("assistant", [{"type": "reasoning", "content": "hm", "signature": "x"}, CALL]),
            result("42"),
            result("no", "call_2", is_error=True),
            said("user", "Go on."),
        ]

    def test_responses(self):
        """Items of OpenAI's Responses without a role are the assistant's calls and thoughts, and tools' results."""
        given = [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "call_1", "name": "calculator", "arguments": '{"expression":"6*7"}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "42"},
        ]

        assert convert_messages(given) == [
            said("user", "hi"),
            Message("assistant", [{"type": "reasoning", "content": "hm", "id": "r"}]),
            Message("assistant", [CALL]),
            result("42"),
        ]

    def test_langchain_and_gemini(self):
        """The types of LangChain and the roles of Gemini have the convention's names."""
        given = [
            {"type": "human", "content": "hi"},
            {"type": "ai", "content": "", "tool_calls": [{"name": "calculator", "args": ARGUMENTS, "id": "call_1"}]},
            {"type": "tool", "content": "42", "tool_call_id": "call_1"},
            {"role": "model", "parts": [{"text": "42"}]},
        ]

        assert convert_messages(given) == [
            said("user", "hi"),
            Message("assistant", [CALL]),
            result("42"),
            said("assistant", "42"),
        ]

    @pytest.mark.parametrize(
        ("part", "expected"),
        [
            (
                {"type": "image_url", "image_url": {"url": "https://e.com/a.png"}},
                {"type": "uri", "modality": "image", "uri": "https://e.com/a.png"},
            ),
            (
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                {
                    "type": "image",
                    "modality": "image",
                    "mime_type": "image/png",
                    "content": "data:image/png;base64,aGk=",
                },
            ),
            (
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "[9 bytes cut]"}},
                {"type": "image", "modality": "image", "mime_type": "image/png", "content": "[9 bytes cut]"},
            ),
            (
                {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
                {"type": "audio", "modality": "audio", "mime_type": "wav", "content": "aGk="},
            ),
            (
                {"type": "file", "file": {"file_id": "f-1"}},
                {"type": "file", "modality": "file", "file_id": "f-1"},
            ),
            (
                {"type": "image", "image": {"type": "PIL.Image", "mode": "RGB", "size": [2, 2]}},
                {"type": "image", "modality": "image", "content": {"type": "PIL.Image", "mode": "RGB", "size": [2, 2]}},
            ),
        ],
        ids=["address", "inline", "cut before", "audio", "file", "PIL"],
    )
    def test_media(self, part, expected):
        """Media are an address, an id, or their content; long ones were cut before."""
        assert convert_messages({"role": "user", "content": [part]}) == [Message("user", [expected])]

    @pytest.mark.parametrize("data", [{"a": 1}, [1, 2], [{"text": "a hit", "score": 2}]])
    def test_data_of_tools(self, data):
        """A tool's result that is data is kept whole, as a message or as a part under any of its names."""
        parts = [{"type": "tool_call_response", "id": "call_1", key: data} for key in ("response", "result")]

        assert convert_messages({"role": "tool", "tool_call_id": "call_1", "content": data}) == [result(data)]
        assert convert_messages({"role": "user", "parts": parts}) == [result(data), result(data)]

    @pytest.mark.parametrize("model", [Chat(role="user", content="hi"), Plain("user", "hi")])
    def test_objects(self, model):
        """A pydantic model or a dataclass is the message of its fields."""
        assert convert_messages(take_snapshot(model).load()) == [said("user", "hi")]

    @pytest.mark.parametrize(
        ("given", "reason"),
        [("tool_calls", "tool_call"), ("max_tokens", "length"), ("END_TURN", "stop"), ("aborted", "aborted"), (7, "")],
    )
    def test_finish_reasons(self, given, reason):
        """Known reasons have the convention's words; others stay."""
        assert finish_reason_of({"stop_reason": given}) == reason

    def test_tools(self):
        """Definitions of OpenAI and Anthropic have one form; what is no definition is none."""
        schema = {"type": "object"}
        given = [
            {"type": "function", "function": {"name": "f", "parameters": schema, "strict": None}},
            {"name": "g", "input_schema": schema},
            {"type": "web_search"},
        ]

        assert tool_definitions(given) == [
            {"type": "function", "name": "f", "parameters": schema},
            {"type": "function", "name": "g", "parameters": schema},
            {"type": "web_search", "name": "web_search"},
        ]
        assert tool_definitions(["calculator"]) is tool_definitions([]) is tool_definitions(None) is None


class TestSplit:
    """`split_input` and `split_output`."""

    @pytest.mark.parametrize("name", ["messages", "conversation", "history", "prompt", "anything"])
    def test_messages_under_any_name(self, name):
        """A list of messages is found whatever its argument is called; other arguments are the rest."""
        side = split_input({"model": "m", name: [{"role": "user", "content": "hi"}]})

        assert (side.messages, side.rest) == ([said("user", "hi")], {"model": "m"})

    def test_messages_one_level_below(self):
        """Messages and tools in `**kwargs` are found too."""
        tools = [{"type": "function", "function": {"name": "f"}}]
        side = split_input({"kwargs": {"messages": [{"role": "user", "content": "hi"}], "tools": tools, "n": 1}})

        assert (side.messages, side.rest) == ([said("user", "hi")], {"kwargs": {"n": 1}})
        assert side.tools == [{"type": "function", "name": "f"}]

    def test_of_two_lists_the_usual_name_counts(self):
        """Of several lists of messages the one under the most usual name is the conversation."""
        history = [{"role": "user", "content": "before"}]
        side = split_input({"history": history, "messages": [{"role": "user", "content": "hi"}]})

        assert (side.messages, side.rest) == ([said("user", "hi")], {"history": history})

    def test_a_prompt_and_a_system_prompt(self):
        """A prompt that is a text is the user's; a system prompt beside it comes first."""
        side = split_input({"system": "Be brief.", "prompt": "hi", "n": 1})

        assert (side.messages, side.rest) == ([said("system", "Be brief."), said("user", "hi")], {"n": 1})

    @pytest.mark.parametrize(
        "value",
        [None, 7, [], {}, {"a": 1}, {"messages": []}, {"messages": [1]}, {"messages": [{"role": 1}]}, {"prompt": ""}],
    )
    def test_no_messages(self, value):
        """Where there is no message there is no side."""
        assert split_input(value) is None

    def test_choices(self):
        """Each choice of a completion is an answer with its finish reason; the rest of the response stays."""
        side = split_output(
            {
                "id": "c",
                "choices": [
                    {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "42"}},
                    {"index": 1, "finish_reason": "length", "text": "4"},
                ],
            }
        )

        assert side.messages == [
            said("assistant", "42", finish_reason="stop"),
            said("assistant", "4", finish_reason="length"),
        ]
        assert side.rest == {
            "id": "c",
            "choices": [{"index": 0, "finish_reason": "stop"}, {"index": 1, "finish_reason": "length"}],
        }

    def test_a_bare_message(self):
        """A message as the result is the answer; usage and ids beside it are the rest."""
        side = split_output({"role": "assistant", "content": "42", "usage": {"n": 1}, "tool_calls": None})

        assert (side.messages, side.rest) == ([said("assistant", "42", finish_reason="")], {"usage": {"n": 1}})

    def test_a_response_of_openai(self):
        """The items of a Response are the answer; what it lacks of the answer is why it is incomplete."""
        side = split_output(
            {
                "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]}],
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
            }
        )

        assert side.messages == [said("assistant", "4", finish_reason="length")]

    def test_the_whole_conversation_as_a_result(self):
        """A result that begins with the messages that were given has only the new ones."""
        given = [{"role": "user", "content": "hi"}]
        side = split_output({"messages": [*given, {"role": "assistant", "content": "42"}]}, {"messages": given})

        assert side.messages == [said("assistant", "42", finish_reason="")]

    def test_arrays_beside_messages(self):
        """Arrays of numpy, which have no truth value, do no harm."""
        array = np.arange(20)
        given = {"messages": [{"role": "user", "content": "hi", "ids": array}], "ids": array}
        answer = {"role": "assistant", "content": "42", "ids": array}

        assert split_input(given).messages[0].more["ids"] is array
        assert split_output(answer, given).rest["ids"] is array
        assert split_output({"messages": [*given["messages"], answer]}, given).messages[-1].role == "assistant"


class TestRecognised:
    """`read_of`."""

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (({"role": "assistant", "content": "42"}, {"n": 1}), True),
            (({"answered": 1}, 7), False),
            ([{"score": 1}] * 9, False),
            ({"token_ids": [1, 2]}, True),
            ([1, 2], True),
            (None, True),
        ],
    )
    def test_what_was_recognised(self, value, expected):
        """A message, token ids and nothing are answers; other values are none."""
        found = read_of(value, split_output(value), has_usage=False)

        assert found.answer_read is expected
        assert not found.usage_read


class TestTemplateText:
    """Messages in decoded text."""

    @pytest.mark.parametrize(
        "text",
        [
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n",
            LLAMA_PROMPT,
            "<|system|>Be brief.<|end|><|user|>hi<|end|><|assistant|>",
        ],
        ids=["ChatML", "with a thinking mark", "Llama 3", "role marks"],
    )
    def test_known_templates(self, text):
        """A prompt that is completely in a known template's form is its messages."""
        assert prompt_messages(text) == [said("system", "Be brief."), said("user", "hi")]

    @pytest.mark.parametrize(
        "text",
        [
            "plain text",
            "before <|im_start|>user\nhi<|im_end|>",
            "<|im_start|>nobody\nhi<|im_end|>",
            "<|im_start|>user\nhi",
            "<|im_start|>user\n<|im_start|>user\nhi<|im_end|>",
            "<|im_start|>",
            "<|im_start|>assistant\n",
            "[INST] hi [/INST]",
        ],
    )
    def test_any_other_text(self, text):
        """Any other text is one part of the user's, as it is."""
        assert prompt_messages(text) == [said("user", text)]

    def test_the_new_part_of_a_turn(self):
        """Of a later turn the text begins after an answer; Qwen's template has tools' results as the user's."""
        text = (
            "<|im_end|>\n<|im_start|>user\n<tool_response>\n42\n</tool_response>\n<tool_response>\n43\n</tool_response>"
            "<|im_end|>\n<|im_start|>assistant\n"
        )

        assert prompt_messages(text) == [result("42", None), result("43", None)]

    def test_an_answer_with_a_call(self):
        """A thought and tool calls in marks are parts if they are whole."""
        text = (
            "<think>\nhm\n</think>\n\nLet me see.\n<tool_call>\n"
            '{"name": "calculator", "arguments": {"expression": "6*7"}}\n</tool_call><|im_end|>'
        )

        assert answer_message(text, "stop") == Message(
            "assistant",
            [
                {"type": "reasoning", "content": "hm"},
                {"type": "text", "content": "Let me see."},
                {**CALL, "id": None},
            ],
            {"finish_reason": "stop"},
        )

    @pytest.mark.parametrize("call", ["{not JSON}", '{"name": "f"}', '{"name": "f", "arguments": {}} and more'])
    def test_a_broken_call_is_text(self, call):
        """Where a call isn't whole, the answer is the model's text."""
        text = f"So: <tool_call>{call}</tool_call>"

        assert answer_message(text, "") == said("assistant", text, finish_reason="")
