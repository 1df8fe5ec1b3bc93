"""Join the pieces of a streamed answer to one message: texts, chunks, deltas of tool calls, events.

Where a piece has a part of the answer inside is in the table of names. What a piece has besides is kept, once.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from otel_rollout.messages import names
from otel_rollout.messages.answer_reader import AnswerReader, Taken
from otel_rollout.messages.forms import exact_json, finish_reason_of, is_message, is_part, parts_message
from otel_rollout.messages.message import Message, Part
from otel_rollout.text.plain_json import value_to_json

CHUNKS: Final = "chunks"
"""The name of what the pieces have besides the answer."""
_TEXT_OF: Final = {names.TEXT: "content", names.REASONING: "content", names.CALL: "arguments"}
_EVENTS: Final = ("message_start", "content_block_start", "content_block_delta", "response.created", "text-start")
_KEYS_OF_EVENTS: Final = ("messageStart", "contentBlockStart", "contentBlockDelta", "token")
_OPEN: Final = 64
"""So many parts may grow at a time: a stream may have thousands."""
_LEAST: Final = 3
"""So many pieces of which each begins with the one before are the answer so far."""


def is_chunks(items: list[Any]) -> bool:
    """Return True if a list has the pieces of a stream, by the marks that some have."""
    first = items[0]
    if type(first) is not dict:
        return False
    choices = first.get("choices")
    choice = choices[0] if type(choices) is list and choices else None
    return (
        (type(choice) is dict and "delta" in choice)
        or str(first.get("object", "")).endswith(".chunk")
        or first.get("type") in (*_EVENTS, "AIMessageChunk", *names.STREAM_TYPES)
        or any(key in first for key in _KEYS_OF_EVENTS)
    )


def join_stream(items: list[Any], arguments: Any) -> Taken | None:
    """Return the answer that a stream's pieces are; None if they are none."""
    said = [item for item in items if is_message(item) and item.get("type") != "AIMessageChunk"]
    if said and len(said) == len(items) and not _grow([str(item.get("content")) for item in said]):
        # An agent that yields its messages.
        return None
    stream = _Stream(arguments)
    for item in items:
        stream.add(item)
    return stream.joined()


class _Stream:
    def __init__(self, arguments: Any) -> None:
        self._reader = AnswerReader(arguments, is_whole=False)
        self._whole = AnswerReader(arguments)
        self._answers: dict[Any, list[_Joined]] = {}
        self._reason = ""
        self._final: list[Message] = []
        self._rest: dict[bytes, Any] = {}

    def add(self, item: Any) -> None:
        """Add a piece."""
        if type(item) is str and item[:2] != "…[":
            self._add_part(0, {"type": names.TEXT, "content": item}, None)
            return
        if type(item) is not dict:
            self._keep(item)
            return
        response = item.get("response")
        if type(response) is dict and response.get("output") and (whole := self._whole.take(response)):
            self._final = whole.messages
            self._keep({**item, "response": whole.rest})
            return
        choices = item.get("choices")
        if type(choices) is list and choices and all(type(choice) is dict for choice in choices):
            left = [self._take(choice, choice.get("index", 0)) for choice in choices]
            self._keep({**item, "choices": left if any(left) else None})
            return
        self._keep(self._take(item, 0))

    def joined(self) -> Taken | None:
        """Return the answer, and what else the pieces have."""
        messages = self._final
        known = {str(value) for each in messages for part in each.parts for value in part.values()}
        joined = []
        for pieces in self._answers.values():
            parts = [piece.whole() for piece in pieces]
            for part in parts if messages else ():
                # The whole answer came at the end, too.
                self._keep({key: field for key, field in part.items() if str(field) not in known and key != "type"})
            parts = [part for part in parts if part != {"type": part["type"], "content": ""}]
            joined.append(Message("assistant", parts, {"finish_reason": self._reason}))
        messages = messages or joined
        rest = [*self._rest.values()]
        return Taken(messages, {CHUNKS: rest} if rest else None) if messages else None

    def _take(self, item: dict[str, Any], slot: Any) -> Any:
        """Take the piece of the answer out of an event; return what is left of it."""
        self._reason = finish_reason_of(item, item.get("messageStop"), item.get("delta")) or self._reason
        index = next((item[key] for key in names.INDEXES if type(item.get(key)) in (int, str)), None)
        kind = names.STREAM_TYPES.get(str(item.get("type")))
        name = next((key for key in names.PIECES if type(item.get(key)) is str), None)
        if kind is not None and name is not None:
            self._add_part(slot, {"type": kind, _TEXT_OF[kind]: item[name]}, index)
            return {key: field for key, field in item.items() if key != name}
        for key, inner in ((key, item[key]) for key in names.STREAMED if type(item.get(key)) is dict and item[key]):
            if is_part(inner) and not inner.get("special") and not is_message(inner):
                # A token's number is its place in the text.
                index = None if key == "token" else index
                self._add_parts(slot, parts_message([inner], "assistant", is_whole=False), index)
                return {name: field for name, field in item.items() if name != key}
            if any(name in inner for name in names.STREAMED):
                return {**item, key: self._take({**inner, **({} if index is None else {"index": index})}, slot)}
        if is_part(item) and type(item.get("type")) is str:
            self._add_parts(slot, parts_message([item], "assistant", is_whole=False), index)
            return None
        taken = self._reader.take(item) or Taken([], item)
        self._add_parts(slot, taken.messages, None)
        return taken.rest

    def _add_parts(self, slot: Any, messages: list[Message], index: Any) -> None:
        for message in messages:
            self._reason = message.finish_reason or self._reason
            for part in message.parts:
                self._add_part(slot, part, index)
            self._keep({key: field for key, field in message.more.items() if key != "finish_reason"})

    def _add_part(self, slot: Any, part: Part, index: Any) -> None:
        parts = self._answers.setdefault(slot, [])
        index = part.get("index", index)
        found = next((each for each in reversed(parts[-_OPEN:]) if each.takes(part, index)), None)
        if found is None:
            parts.append(_Joined(part, index))
        elif left := found.add(part):
            self._keep(left)

    def _keep(self, item: Any) -> None:
        if type(item) is dict:
            item = {key: field for key, field in item.items() if field is not None}
        if item:
            self._rest.setdefault(value_to_json(item), item)


class _Joined:
    """A part that grows; `index` is its number or id among others of its type, None if it has none."""

    def __init__(self, part: Part, index: Any) -> None:
        self.part = part
        self.index = index
        self._key = _TEXT_OF.get(part["type"])
        self._texts = [part[self._key]] if self._key is not None and type(part.get(self._key)) is str else []

    def takes(self, part: Part, index: Any) -> bool:
        """Return True if a piece continues this part."""
        if part["type"] != self.part["type"] or self._key is None:
            return False
        if index is not None and self.index is not None:
            return bool(index == self.index)
        return (
            part["type"] != names.CALL or not part.get("name") or (bool(part["id"]) and part["id"] == self.part["id"])
        )

    def add(self, part: Part) -> dict[str, Any]:
        """Add a piece; return what there is no room for."""
        left: dict[str, Any] = {}
        for key, field in part.items():
            if key == self._key and (type(field) is str or field is None or field == {}):
                self._texts += [field] if field else []
            elif field is not None and field != "" and self.part.get(key) != field:
                (self.part if self.part.get(key) in (None, "", {}) else left)[key] = field
        return left

    def whole(self) -> Part:
        """Return the part with all its text."""
        if self._key is not None and self._texts:
            before = "".join(self._texts[:-1])
            is_whole = _grow(self._texts) or (self._texts[-1] == before and len(before) > _LEAST)
            text = self._texts[-1] if is_whole else before + self._texts[-1]
            self.part[self._key] = exact_json(text) if self._key == "arguments" else text
        return self.part


def _grow(texts: list[str]) -> bool:
    """Return True if each text begins with the one before, so that the last is all."""
    if len(texts) < _LEAST and (len(texts) < 2 or len(texts[0]) <= _LEAST):
        return False
    return len(texts[-1]) > len(texts[0]) and all(text and later.startswith(text) for text, later in pairwise(texts))
