"""Limits of a payload's JSON text: length, inline media, wide integers."""

from __future__ import annotations

import base64

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rollout.finish import cut_json, cut_media, narrow_integers

pytestmark = pytest.mark.every_python

CONVERSATION = {
    "id": "short",
    "messages": [{"role": "user", "content": "héllo \x00\n" * 1000, "turn": turn} for turn in range(10)],
    "prompt_ids": list(range(5000)),
    "options": {"n": 1, "stop": ["</s>"]},
}


def cut(value: object, limit: int) -> object:
    """Return `value` as Python objects after a cut to a limit."""
    return orjson.loads(cut_json(orjson.dumps(value), limit))


class TestCutJson:
    """Cutting inside the JSON."""

    def test_what_fits_is_left_alone(self):
        """Within the limit, byte for byte the same text comes back."""
        text = b'{"a": 1}'

        assert cut_json(text, len(text)) is text

    def test_short_values_survive(self):
        """The longest values are cut first, evenly, each with a note; short ones stay whole."""
        assert cut({"id": "short", "text": "x" * 10_000, "other": "y" * 10_000, "n": [1, 2]}, 200) == {
            "id": "short",
            "text": "x" * 36 + "…[9,951 characters cut]…" + "x" * 13,
            "other": "y" * 36 + "…[9,951 characters cut]…" + "y" * 13,
            "n": [1, 2],
        }

    def test_conversation(self):
        """Each turn of a conversation keeps its role and both ends of its content."""
        seen = cut(CONVERSATION, 6000)

        assert seen["id"] == "short"
        assert seen["options"] == CONVERSATION["options"]
        assert [message["turn"] for message in seen["messages"]] == list(range(10))
        assert all(message["role"] == "user" for message in seen["messages"])
        assert all("characters cut]" in message["content"] for message in seen["messages"])
        assert seen["prompt_ids"][:5] == [0, 1, 2, 3, 4]

    def test_long_list(self):
        """A long list loses its end, with a note of how many items."""
        seen = cut(list(range(1000)), 500)

        assert seen[:-1] == list(range(len(seen) - 1))
        assert seen[-1] == f"…[{1000 - len(seen) + 1:,} items cut]"

    def test_many_keys(self):
        """An object with many keys loses its last ones, with a note of how many."""
        seen = cut({f"key{number}": number for number in range(1000)}, 500)

        assert seen["key0"] == 0
        assert seen["…"] == f"[{1000 - len(seen) + 1:,} keys cut]"

    def test_the_room_is_used(self):
        """A cut payload takes most of what it may take."""
        for limit in (1000, 10_000, 50_000):
            assert len(cut_json(orjson.dumps({"text": "x" * 10**6}), limit)) > 0.95 * limit

    def test_not_json(self):
        """A text that isn't JSON becomes a JSON text with its beginning."""
        seen = orjson.loads(cut_json(b"no json " * 100, 100))

        assert seen.startswith("no json no json")
        assert "characters cut]" in seen

    def test_nested_deeper_than_can_be_written(self):
        """JSON that orjson reads but can't write becomes a text with its beginning."""
        assert len(cut_json(b"[" * 900 + b"1" + b"]" * 900, 100)) <= 100

    @pytest.mark.parametrize(
        "value",
        [list(range(3_000_000)), "é" * 10**7, [{"a": list(range(50)), "b": "x" * 20} for _ in range(20_000)]],
        ids=["numbers", "text", "objects"],
    )
    def test_giant_payloads(self, value):
        """Many megabytes are cut to the limit."""
        text = orjson.dumps(value)
        result = cut_json(text, 2**20)

        assert len(result) <= 2**20

    @settings(max_examples=300)
    @given(
        value=st.recursive(
            st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=60,
        ),
        limit=st.integers(5, 600),
    )
    def test_any_json(self, value, limit):
        """Any JSON text comes out valid and within any limit."""
        result = cut_json(orjson.dumps(value), limit)

        orjson.loads(result)
        assert len(result) <= limit or limit >= len(orjson.dumps(value))


class TestCutMedia:
    """Images and sounds within texts."""

    def test_data_uri(self):
        """A data URI is replaced by its type and size."""
        text = orjson.dumps({"url": "data:image/png;base64," + "A" * 4000 + "==", "detail": "low"})

        assert orjson.loads(cut_media(text)) == {"url": "data:image/png;base64,[4024 bytes cut]", "detail": "low"}

    def test_within_json_within_a_text(self):
        """Inside arguments that are JSON in a text, the text stays what it was."""
        inner = orjson.dumps({"url": "data:image/png;base64," + "A" * 4000, "b": 1}).decode()

        seen = orjson.loads(cut_media(orjson.dumps({"arguments": inner})))

        assert orjson.loads(seen["arguments"]) == {"url": "data:image/png;base64,[4022 bytes cut]", "b": 1}

    def test_bare_base64(self):
        """Media without a data URI, as Anthropic, OpenAI and MCP send it, goes too."""
        text = orjson.dumps({"type": "base64", "media_type": "image/png", "data": "iVBOR" * 1000})

        seen = orjson.loads(cut_media(text))

        assert seen["media_type"] == "image/png"
        assert seen["data"].endswith("bytes of base64 cut]")

    @pytest.mark.parametrize(
        "head", [b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF", b"%PDF-1.7", b"\0\0\0\x20ftypisom"]
    )
    def test_bare_base64_that_begins_as_a_file_of_media(self, head):
        """Under any key, in a list, and in JSON within a text, such as Ollama's `images` and tools' screenshots."""
        media = base64.b64encode(head + bytes(range(256)) * 8).decode()
        inner = orjson.dumps({"screenshot": media}).decode()
        seen = orjson.loads(cut_media(orjson.dumps({"images": [media], "arguments": inner, "model": "m"})))
        note = f"[{len(media) + 1} bytes of base64 cut]"
        assert seen == {"images": [note], "arguments": orjson.dumps({"screenshot": note}).decode(), "model": "m"}

    @pytest.mark.parametrize(
        "value",
        [
            {"url": "data:image/png;base64," + "A" * 800},
            {"data": "a plain sentence. " * 200},
            {"token_ids": [1] * 5000},
        ],
    )
    def test_all_else_stays(self, value):
        """Short data URIs, prose under `data` and token ids are no media."""
        assert cut_media(orjson.dumps(value)) == orjson.dumps(value)


class TestNarrowIntegers:
    """Integers that backends can't hold."""

    def test_outside_64_signed_bits(self):
        """They become texts, wherever they stand."""
        value = {"a": [2**63, 2**64 - 1], "b": {"c": 2**63 - 1, "d": -(2**63)}}

        assert orjson.loads(narrow_integers(orjson.dumps(value))) == {
            "a": [str(2**63), str(2**64 - 1)],
            "b": {"c": 2**63 - 1, "d": -(2**63)},
        }

    @pytest.mark.parametrize("value", [{"pi": "3" * 50}, [-0.0012345678901234567] * 9], ids=["text", "log-probs"])
    def test_other_digits(self, value):
        """Long digits in a text, and behind a point, stay what they are."""
        text = orjson.dumps(value)

        assert narrow_integers(text) == text

    def test_log_probs_are_not_read_again(self, monkeypatch):
        """A JSON text of numbers with many digits behind their points isn't parsed."""
        monkeypatch.setattr("otel_rollout.finish.payload_limits.loads", None)
        text = orjson.dumps([-0.0012345678901234567 - number / 7 for number in range(1000)])

        assert narrow_integers(text) is text

    def test_nested_deeper_than_can_be_written(self):
        """JSON that can't be rebuilt becomes one text."""
        text = b"[" * 600 + str(2**63).encode() + b"]" * 600

        assert isinstance(orjson.loads(narrow_integers(text)), str)
