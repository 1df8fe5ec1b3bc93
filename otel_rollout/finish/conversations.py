"""The conversations of running trajectories, for their roots: the messages of the LLM ops, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from otel_rollout.finish.payload_limits import cut_json
from otel_rollout.messages import ChatSide, Message, text_message
from otel_rollout.text.plain_json import dumps, loads, value_to_json

MAX_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of all conversations; beyond it the conversation idle for longest is dropped and counted."""
MAX_PROMPT_CHARACTERS: Final = 64 * 1024
BASE_BYTES: Final = 1000
"""The memory of a conversation without its texts."""
_NOTE_BYTES: Final = 160


class Conversation:
    """The turns of one trajectory that are inside as few agents, tools and evaluators as any: its main conversation.

    Several with other beginnings follow one after the other.

    Args:
        limit: The most bytes of its messages.
        depth: The number of agents, tools and evaluators that its turns are inside.
    """

    def __init__(self, limit: int, depth: int = 0) -> None:
        self._limit = limit
        self.depth = depth
        self._segments: dict[bytes, list[bytes]] = {}
        """The messages of each conversation before the last answer, by its first message; the current one is last."""
        self.answer: list[Message] = []
        self.prompt: str | None = None
        """The text of the prompt."""
        self.tools: dict[str, dict[str, Any]] = {}
        self.cut = 0
        """Bytes of messages that were cut."""
        self.tools_cut = 0
        """Bytes of tools that were left out."""
        self._message_bytes = self._tool_bytes = self._answer_bytes = 0
        self._raw: str | None = None
        self._is_text = False
        self._first_length = 0

    @property
    def size(self) -> int:
        """An estimate of its memory in bytes."""
        return BASE_BYTES + self.said_bytes + len(self._raw or "") + len(self.prompt or "")

    @property
    def said_bytes(self) -> int:
        """The bytes of its messages and tools."""
        return self._message_bytes + self._answer_bytes + self._tool_bytes

    def add(self, asked: ChatSide | None, answered: ChatSide | None) -> None:
        """Add a turn.

        Args:
            asked: The messages that the model got, if they were captured.
            answered: Its answer, if it has one.
        """
        if asked is not None and asked.messages:
            self._add_asked(asked)
        elif self.answer:
            self._keep_answer()
        if answered is not None:
            self.answer = answered.messages
            self._answer_bytes = _size(answered.encoded)
        self._raw = None
        if asked is not None and answered is not None and asked.raw is not None and answered.raw is not None:
            self._raw = asked.raw + answered.raw
        self._bound()

    def messages_after(self, given: list[bytes]) -> list[bytes] | None:
        """Return the messages with annotated ones at the beginning; None if no conversation begins with these.

        Args:
            given: The annotated input, each message as JSON. It takes the place of decoded text, or of no turn.
        """
        first = next(iter(self._segments.values()), None)
        if first is None or (self._is_text and len(self._segments) == 1):
            return [*given, *([] if first is None else first[self._first_length :])]
        is_known = any(segment[: len(given)] == given for segment in self._segments.values())
        return self.messages() if is_known else None

    def messages(self) -> list[bytes]:
        """Return the messages before the last answer, each as JSON."""
        return [message for segment in self._segments.values() for message in segment]

    def _add_asked(self, asked: ChatSide) -> None:
        messages, continues = asked.messages, asked.continues
        if asked.tools:
            self._add_tools(asked.tools)
        if self._raw and asked.raw is not None and asked.raw.startswith(self._raw) and len(messages) == 1:
            # The whole prompt as text, in no known template's form: only its end is new.
            messages, continues = [text_message("user", asked.raw[len(self._raw) :])], True
        encoded = asked.encoded if messages is asked.messages else [message.to_json() for message in messages]
        if self.prompt is None:
            self._is_text = asked.raw is not None
            self._first_length = len(encoded)
            users = [message for message in messages if message.role == "user"] or messages
            self.prompt = users[-1].gist[:MAX_PROMPT_CHARACTERS]
        key = encoded[0]
        if continues and self._segments:
            self._keep_answer()
            key = next(reversed(self._segments))
        elif key in self._segments:
            # The program hands over the whole history, with its own last answer.
            if next(reversed(self._segments)) != key:
                self._keep_answer()
            self._message_bytes -= _size(self._segments.pop(key))
            if not self._segments:
                self.cut = 0
        elif self.answer:
            self._keep_answer()
        self._segments.setdefault(key, []).extend(encoded)
        self._message_bytes += _size(encoded)

    def _add_tools(self, tools: list[dict[str, Any]]) -> None:
        left_out = 0
        for tool in tools:
            known = self.tools.get(tool["name"])
            if known != tool:
                size = len(value_to_json(tool)) - (0 if known is None else len(value_to_json(known)))
                if self._tool_bytes + size > self._limit:
                    left_out += size
                else:
                    self.tools[tool["name"]] = tool
                    self._tool_bytes += size
        # Each turn has the same tools as a rule.
        self.tools_cut = max(self.tools_cut, left_out)

    def _keep_answer(self) -> None:
        """Move the last answer into the conversation that it belongs to."""
        answer = [one.without_reason().to_json() for one in self.answer]
        if not self._segments:
            self._segments[b""] = []
        self._segments[next(reversed(self._segments))].extend(answer)
        self._message_bytes += _size(answer)
        self.answer, self._answer_bytes = [], 0

    def _bound(self) -> None:
        """Drop messages from the middle beyond the limit."""
        if self._message_bytes > 2 * self._limit:
            messages, cut = cut_messages(self.messages(), self._limit)
            self.cut += cut
            self._segments = {next(reversed(self._segments)): messages}
            self._message_bytes = _size(messages)


class Conversations:
    """The conversations of all running trajectories, by trace id; its caller has a lock.

    Args:
        limit: The most bytes of each.
        max_bytes: The most bytes of all.
    """

    def __init__(self, limit: int, max_bytes: int = MAX_BYTES) -> None:
        self._limit = limit
        self._max_bytes = max_bytes
        self.after_fork()

    def after_fork(self) -> None:
        """Forget the parent's conversations."""
        self._running: OrderedDict[int, Conversation] = OrderedDict()
        self._dropped: OrderedDict[int, int] = OrderedDict()
        self._bytes = 0

    def add(self, trace_id: int, asked: ChatSide | None, answered: ChatSide | None, depth: int = 0) -> None:
        """Add a turn of a trajectory, unless others are further out; then those further in are forgotten.

        Args:
            trace_id: The trajectory's trace id.
            asked: The messages that the model got, if they were captured.
            answered: Its answer, if it has one.
            depth: The number of agents, tools and evaluators that it is inside.
        """
        conversation = self._pop(trace_id, depth)
        if depth < conversation.depth:
            conversation = Conversation(self._limit, depth)
        if depth == conversation.depth:
            conversation.add(asked, answered)
        self._running[trace_id] = conversation
        self._bytes += conversation.size
        while self._bytes > self._max_bytes and len(self._running) > 1:
            other, dropped = self._running.popitem(last=False)
            self._bytes -= dropped.size
            self._dropped[other] = dropped.said_bytes + dropped.cut
            if len(self._dropped) > MAX_DROPPED:
                self._dropped.popitem(last=False)

    def take(self, trace_id: int) -> Conversation:
        """Return and forget the conversation of a trajectory that has ended; empty if it had none or was dropped."""
        conversation = self._pop(trace_id)
        conversation.cut += self._dropped.pop(trace_id, 0)
        return conversation

    def _pop(self, trace_id: int, depth: int = 0) -> Conversation:
        conversation = self._running.pop(trace_id, None)
        if conversation is None:
            return Conversation(self._limit, depth)
        self._bytes -= conversation.size
        return conversation


MAX_DROPPED: Final = 10_000
"""At most this many dropped conversations are remembered until their roots end."""


def encode_messages(messages: list[bytes], limit: int) -> tuple[bytes, int]:
    """Return messages as one JSON text of at most `limit` bytes, and the number of bytes that were cut.

    Args:
        messages: Each as JSON.
        limit: The bytes of all together.
    """
    kept, cut = cut_messages(messages, limit)
    return b"[%b]" % b",".join(kept), cut


def cut_messages(messages: list[bytes], limit: int) -> tuple[list[bytes], int]:
    """Return messages of at most `limit` bytes, each whole or cut in its texts, and the number of bytes cut.

    Messages in the middle go first: the prompt and the last turns show what happened.

    Args:
        messages: Each as JSON.
        limit: The bytes of all together.
    """
    size = sum(map(len, messages)) + len(messages) + 1
    if size <= limit:
        return messages, 0
    share = max(limit // 4, _NOTE_BYTES)
    shorter = [message if len(message) <= share else _cut_message(message, share) for message in messages]
    room = limit - _NOTE_BYTES - 2
    head: list[bytes] = []
    tail: list[bytes] = []
    first, last = 0, len(shorter) - 1
    while first <= last:
        # The first two, which are the system's and the user's as a rule, then from the end.
        from_start = first < 2 and len(tail) > first
        message = shorter[first] if from_start else shorter[last]
        if len(message) + 1 > room:
            break
        room -= len(message) + 1
        if from_start:
            head.append(message)
            first += 1
        else:
            tail.append(message)
            last -= 1
    left = last - first + 1
    if left:
        head.append(text_message("user", f"…[{left:,} messages cut]").to_json())
    kept = [*head, *reversed(tail)]
    return kept, size - sum(map(len, kept)) - len(kept) - 1


def _size(messages: list[bytes]) -> int:
    return sum(map(len, messages))


def _cut_message(message: bytes, limit: int) -> bytes:
    """Return a message cut to at most `limit` bytes, still a message."""
    given = loads(message)
    shorter = loads(cut_json(message, limit))
    if (
        type(shorter) is dict
        and shorter.get("role") == given["role"]
        and type(shorter.get("parts")) is list
        and all(
            type(part) is dict and part.keys() == was.keys() and part["type"] == was["type"]
            for part, was in zip(shorter["parts"], given["parts"], strict=False)
        )
    ):
        return dumps(shorter)
    role = given["role"] if len(given["role"]) < 32 else "user"
    reason = "" if "finish_reason" in given else None
    return text_message(role, f"…[{len(message):,} bytes cut]", reason).to_json()
