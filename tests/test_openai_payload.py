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
