"""The chat messages that exporters read from a span."""

import orjson
import pytest

from otel_rollout import semconv
from otel_rollout.messages import (
    ChatMessages,
    Message,
    as_openai,
    as_openai_tools,
    chat_messages,
    preview,
    split_output,
)

TEXT = {"type": "text", "content": "What is 6 * 7?"}
CALL = {"type": "tool_call", "id": "call_1", "name": "calculator", "arguments": {"expression": "6*7"}}
RESULT = {"type": "tool_call_response", "id": "call_1", "response": "42"}


def span(**attributes):
    """Return the attributes of a span with these attributes, by the names of semconv."""
    return {getattr(semconv, key): value for key, value in attributes.items()}


def json_text(value):
    """Return the JSON text of a value."""
    return orjson.dumps(value).decode()


class TestChatMessages:
    """`chat_messages`."""

    def test_both_sides_and_the_tools(self):
        """Each side is a list of records; the finish reason belongs to the answer."""
        tool = {"type": "function", "name": "calculator"}
        found = chat_messages(
            span(
                INPUT_MESSAGES=json_text([{"role": "user", "parts": [TEXT]}]),
                OUTPUT_MESSAGES=json_text([{"role": "assistant", "parts": [CALL], "finish_reason": "tool_call"}]),
                TOOL_DEFINITIONS=json_text([tool]),
            )
        )

        assert found == ChatMessages(
            [Message("user", [TEXT])], [Message("assistant", [CALL], {"finish_reason": "tool_call"})], [tool]
        )

    @pytest.mark.parametrize("value", [None, "", "not JSON", "{}", "[1, null, {}]", '[{"role": 1}]', 7])
    def test_a_span_without_messages(self, value):
        """Without a message that can be read there is None, whatever the attribute holds."""
        attributes = {} if value is None else {"INPUT_MESSAGES": value}

        assert chat_messages(span(**attributes)) is None

    def test_a_message_that_lacks_parts(self):
        """Parts that are no objects are left out; an empty finish reason is none."""
        value = json_text([{"role": "assistant", "parts": [1, "x", TEXT], "finish_reason": ""}, {"role": "user"}])

        found = chat_messages(span(OUTPUT_MESSAGES=value))
        assert found is not None
        assert found.output == [Message("assistant", [TEXT], {"finish_reason": ""}), Message("user", [])]
        assert [message.finish_reason for message in found.output] == ["", ""]

    def test_messages_of_an_older_form(self):
        """Messages with a content in place of parts are read as every other form is."""
        found = chat_messages(span(OUTPUT_MESSAGES=json_text([{"role": "assistant", "content": "42"}])))
        assert found is not None
        assert found.output == [Message("assistant", [{"type": "text", "content": "42"}])]


class TestText:
    """`Message.gist`."""

    @pytest.mark.parametrize(
        ("parts", "text"),
        [
            ([TEXT, CALL], "What is 6 * 7?"),
            ([CALL], 'calculator(expression="6*7")'),
            ([RESULT], "42"),
            (
                [{"type": "uri", "modality": "image", "uri": "https://example.com/a.png"}],
                "[image: https://example.com/a.png]",
            ),
            ([{"type": "blob", "modality": "image", "content": "aGk="}], "[image: inline]"),
            ([], ""),
        ],
    )
    def test_text_comes_before_other_parts(self, parts, text):
        """The text stands for a message; without one, its tool calls, a tool's result, or a note of the media."""
        assert Message("user", parts).gist == text

    @pytest.mark.parametrize(
        ("more", "text"),
        [
            ({"content": [{"type": "refusal", "refusal": "No."}]}, "No."),
            ({"tool_calls": [{"name": "f"}]}, "f()"),
        ],
    )
    def test_the_text_in_the_payload(self, more, text):
        """The text that stands in `output.value` is the same, so that exporters know it and don't write both."""
        (message,) = split_output({"role": "assistant", "content": None, **more}).messages

        assert preview(message) == message.gist == text


class TestOpenAI:
    """`as_openai` and `as_openai_tools`."""

    def test_a_conversation_with_a_tool(self):
        """Tool calls have their arguments as JSON text, and a tool's result is a message of its own."""
        messages = [
            Message("user", [TEXT]),
            Message("assistant", [{"type": "reasoning", "content": "hm"}, CALL]),
            Message("tool", [RESULT], {"name": "calculator"}),
            Message("assistant", [{"type": "text", "content": "42"}], {"finish_reason": "stop"}),
        ]

        function = {"name": "calculator", "arguments": '{"expression":"6*7"}'}
        assert as_openai(messages) == [
            {"role": "user", "content": "What is 6 * 7?"},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "call_1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "42", "name": "calculator"},
            {"role": "assistant", "content": "42"},
        ]

    def test_media_are_parts(self):
        """An image's address stays an image; other media are named in a text, and stand in `parts`."""
        image = {"type": "uri", "modality": "image", "uri": "https://example.com/a.png"}
        audio = {"type": "file", "modality": "audio", "file_id": "file-1"}

        assert as_openai([Message("user", [TEXT, image, audio])]) == [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is 6 * 7?"},
                    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
                    {"type": "text", "text": "[audio: file-1]"},
                ],
                "parts": [audio],
            }
        ]

    def test_a_message_without_parts_has_an_empty_text(self):
        """An answer of nothing is an empty text."""
        assert as_openai([Message("assistant", [])]) == [{"role": "assistant", "content": ""}]

    def test_tools_are_wrapped_once(self):
        """A function's fields stand under `function`; other tools stay as they are."""
        tool = {"type": "function", "name": "f", "parameters": {"type": "object"}}
        wrapped = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

        assert as_openai_tools([tool, wrapped, {"type": "web_search"}]) == [wrapped, wrapped, {"type": "web_search"}]
