"""Nothing of a payload is lost where its messages are taken out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rollout.messages import ChatSide, answer_json, json_of, request_json, split_input, split_output

KEYS = (
    *("role", "type", "content", "parts", "text", "id", "name", "arguments", "args", "input", "output", "result"),
    *("response", "function", "custom", "call_id", "tool_call_id", "tool_calls", "function_call", "toolCallId"),
    *("toolName", "toolUse", "toolResult", "functionCall", "functionResponse", "reasoning", "reasoning_content"),
    *("thinking", "summary", "signature", "refusal", "audio", "image", "image_url", "source", "data", "format"),
    *("mime_type", "file", "file_id", "inlineData", "modality", "uri", "value", "from", "author", "channel"),
    *("recipient", "message", "messages", "choices", "delta", "candidates", "outputs", "completion"),
    *("generated_text", "response_text", "finish_reason", "stop_reason", "usage", "prompt_tokens", "index"),
    *("status", "kwargs", "lc", "extra", "item_id", "item_type", "rest", "tools", "system", "prompt"),
)
WORDS = {
    "role": ("user", "assistant", "system", "tool", "model", "human", "other"),
    "type": (
        *("text", "tool_use", "tool_result", "tool_call", "function", "function_call", "function_call_output"),
        *("reasoning", "thinking", "image_url", "image", "document", "web_search_call", "mcp_call", "tool-search"),
        *("server_tool_use", "web_search_tool_result", "message", "human", "ai", "tool-result", "unheard_of"),
    ),
}
SHAPES = st.recursive(
    st.sampled_from(["text", "number", "json"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6),
    max_leaves=25,
)
MESSAGES = st.dictionaries(st.sampled_from(KEYS), SHAPES, max_size=6)


class Marks:
    """Fills shapes with values of which none is equal to another.

    Args:
        words: Chooses the words of types and roles.
    """

    def __init__(self, words: Any) -> None:
        self._words = words
        self._count = 1000

    def fill(self, shape: Any, key: str = "") -> Any:
        """Return a value of a shape."""
        if key in WORDS and not isinstance(shape, dict):
            return self._words.choice(WORDS[key])
        if isinstance(shape, dict):
            return {name: self.fill(inner, name) for name, inner in shape.items()}
        if isinstance(shape, list):
            return [self.fill(inner) for inner in shape]
        self._count += 1
        if shape == "json":
            return json.dumps({f"key{self._count}": f"mark{self._count}"})
        return self._count if shape == "number" else f"mark{self._count}"


def marks_in(value: Any) -> Iterator[str]:
    """Yield the values in a payload that Marks made, also those inside JSON texts."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from marks_in(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from marks_in(inner)
    elif isinstance(value, str) and value[:1] == "{":
        yield from marks_in(json.loads(value))
    elif isinstance(value, int) or (isinstance(value, str) and value[:4] == "mark"):
        yield str(value)


def lost(given: Any, side: ChatSide | None, *, is_answer: bool = True) -> list[str]:
    """Return the values that are nowhere, in our form or in OpenAI's; without messages the payload itself stays."""
    if side is None:
        return []
    rest = f"{json_of(side.rest)}{json_of(side.tools)}"
    ours = "".join(message.to_json().decode() for message in side.messages)
    openais = answer_json(side.messages, None) if is_answer else request_json(side.messages, None)
    return [mark for mark in marks_in(given) if mark not in ours + rest or mark not in openais + rest]


@given(shapes=st.lists(MESSAGES, min_size=1, max_size=3), beside=SHAPES, words=st.randoms())
@settings(max_examples=100, deadline=None)
def test_arguments(shapes, beside, words):
    """Each value of an LLM op's arguments is in a message, in a tool, or in the rest."""
    marks = Marks(words)
    messages = [{"role": "user", "content": "hi"}, *map(marks.fill, shapes)]
    arguments = {"messages": messages, "beside": marks.fill(beside), "system": marks.fill("text")}

    assert lost(arguments, split_input(arguments), is_answer=False) == []


@given(shape=SHAPES | MESSAGES | st.tuples(MESSAGES, MESSAGES, SHAPES), words=st.randoms())
@settings(max_examples=100, deadline=None)
def test_result(shape, words):
    """Each value of an LLM op's result is in its answer or in the rest."""
    marks = Marks(words)
    value = tuple(map(marks.fill, shape)) if isinstance(shape, tuple) else marks.fill(shape)

    assert lost(value, split_output(value)) == []


@given(shapes=st.lists(MESSAGES, min_size=1, max_size=4), words=st.randoms())
@settings(max_examples=100, deadline=None)
def test_stream(shapes, words):
    """Each value of a stream's pieces is in the joined answer or in the rest."""
    items = [*map(Marks(words).fill, shapes)]

    assert lost(items, split_output(items, is_stream=True)) == []
