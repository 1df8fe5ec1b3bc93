"""Payloads as OpenAI's requests and answers."""

import orjson
import pytest

from otel_rollout.messages import Message, answer_json, request_json
from otel_rollout.text import cut_text

pytestmark = pytest.mark.every_python

ASKED = Message("user", [{"type": "text", "content": "What is 6 * 7?"}])
LONG = Message("user", [{"type": "text", "content": "x" * 5000}])


class TestPreviews:
    """The text that the payload has for the lists of backends without messages."""

    @pytest.mark.parametrize(
        ("rest", "more"),
        [
            ('"What is 6 * 7?"', {}),
            ('{"prompt_text":"What is 6 * 7?"}', {}),
            ('{"prompt_text":"a \\"quoted\\" text","n":1}', {"n": 1}),
            ('"annotated"', {"value": "annotated"}),
            ('{"n":1,"prompt_text":"own"}', {"n": 1, "prompt_text": "own"}),
        ],
    )
    def test_it_stands_once(self, rest, more):
        """It leaves the payload where the messages have it; what the program says besides stays."""
        assert orjson.loads(request_json([ASKED], rest)) == {
            "messages": [{"role": "user", "content": "What is 6 * 7?"}],
            **more,
        }

    def test_of_a_long_text(self):
        """A preview that was cut is none the less one."""
        found = orjson.loads(request_json([LONG], orjson.dumps(cut_text("x" * 5000, 1000)).decode()))

        assert list(found) == ["messages"]

    def test_of_an_answer(self):
        """An answer's text leaves the payload too."""
        found = orjson.loads(answer_json([ASKED], '{"response_text":"What is 6 * 7?","id":"c"}'))

        assert list(found) == ["choices", "id"]


class TestFieldsWithoutPlace:
    """Fields that OpenAI's form has no place for."""

    @pytest.mark.parametrize(
        "part",
        [
            {"type": "reasoning", "content": "6 times 7", "signature": "s1"},
            {"type": "text", "content": "It is 42.", "cache_control": {"type": "s1"}},
            {"type": "tool_call", "id": "1", "name": "multiply", "arguments": {}, "index": "s1"},
            {"type": "tool_call_response", "id": "1", "response": "42", "is_error": "s1"},
            {"type": "blob", "modality": "image", "mime_type": "image/png", "content": "s1"},
            {"type": "uri", "modality": "image", "uri": "https://example.org/a.png", "detail": "s1"},
        ],
    )
    def test_stand_in_parts(self, part):
        """They stand with the message, and what has its place stands there alone."""
        message = Message("assistant", [part], {"refusal": "s2"})
        [record] = orjson.loads(request_json([message], None))["messages"]

        assert record["refusal"] == "s2"
        assert "s1" in str(record["parts"])
        assert "42" not in str(record["parts"])
