"""The message histories of a trajectory's generations as a tree of hashes: each message once, a few dozen bytes."""

from __future__ import annotations

import copy
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from operator import eq
from typing import Any, Final, NamedTuple
from zlib import crc32

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.exact_conversations import Found
from otel_rollout.facts.prompts import PROMPT_START, is_chat
from otel_rollout.facts.span_facts import kind_of
from otel_rollout.facts.span_messages import SYSTEM_INSTRUCTIONS, input_messages, messages_of, output_messages
from otel_rollout.messages import Message, json_of, messages_in, parse_json

ROOT: Final = 0
"""The node before the first message."""
ASSISTANT, TOOL, USER, SYSTEM = 1, 2, 3, 4
MAX_MESSAGES: Final = 16_384
"""Further messages of a trajectory are not looked at."""
MAX_CALLS: Final = 32
_MIN_TASK: Final = 8
"""Shorter arguments of a call are no task."""
_HEAD: Final = 48
"""System prompts that begin with the same characters are versions of one."""
_START: Final = 32
_END: Final = 16
PIECE: Final = 16
_MAX_PIECES: Final = 128
_ROLES: Final = {"assistant": ASSISTANT, "tool": TOOL, "user": USER, "system": SYSTEM, "developer": SYSTEM}
_SUMMARY: Final = (
    "summar",
    "compact",
    "condens",
    "truncated",
    "so far",
    "out of context",
    "continued from",
    "previous con",
    "previous messages",
    "earlier con",
    "earlier messages",
    "older messages",
    "notes",
    "progress",
    "reflection",
    "memory",
)
"""Words of a message that replaces the messages before it."""
_SEARCHED: Final = 400
_LISTS_AFTER: Final = ('"tools":', '"functions":')
"""Arguments of a client's call with a list of objects."""
_MAX_KNOWN: Final = 32
_MAX_ID: Final = 256


class History(NamedTuple):
    """The messages of a generation.

    Args:
        system: The hash of its system prompt; 0 without one.
        head: The hash of the system prompt's beginning.
        shape: The hashes of a shorter beginning and of its end, and the system prompt's length.
        asked: The node of its prompt's last message.
        answers: The codes of its answers; several if it was asked for several.
        added: The codes of its prompt's messages if they are only those that earlier turns don't have; else None.
        texts: The hashes of the beginnings of a prompt of one message, 16 characters more each.
        length: The characters of that message.
        calls: The hashes of texts among the arguments of the calls that it made; 0 for each call.
        is_compacted: True if it is marked as the first of a compacted conversation.
        conversation: `gen_ai.conversation.id`; empty without one.
        request: verl's id of the conversation; empty without one.
    """

    system: int
    head: int
    shape: tuple[int, int, int]
    asked: int
    answers: tuple[int, ...]
    added: tuple[int, ...] | None
    texts: tuple[int, ...]
    length: int
    calls: tuple[int, ...]
    is_compacted: bool
    conversation: str
    request: str


class _Known(NamedTuple):
    """A prompt's JSON until its last message's end: its length and hash, and fields of its `History`."""

    length: int
    hash: int
    system: int
    head: int
    shape: tuple[int, int, int]
    node: int
    texts: tuple[int, ...]
    characters: int


_NOTHING_KNOWN: Final = _Known(0, 0, 0, 0, (0, 0, 0), ROOT, (), 0)


class Histories:
    """The histories of one trajectory, without system prompts: a node is a message after the messages above it."""

    def __init__(self) -> None:
        self.of_span: dict[int, History] = {}
        self.parents = array("I", [ROOT])
        self.codes = array("Q", [0])
        """A message's hash and its role."""
        self.summaries: set[int] = set()
        """The nodes that may be a summary of messages before."""
        self.compactions: set[int] = set()
        """The nodes with a part of type `compaction`."""
        self._children: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[int, int], _Known] = {}
        """The JSON of the last prompts, by length and hash: most begin with an earlier one, which isn't read again."""
        self.is_full = False
        """True once a message was left out."""

    def copy(self) -> Histories:
        """Return a copy, to which turns can be added without changing this one."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, copy.copy(value))
        return other

    def add(self, span: ReadableSpan) -> None:
        """Add a generation."""
        if span.context is None:
            return
        attributes: Mapping[str, Any] = span.attributes or {}
        prompt = _encoded_prompt(attributes)
        known, asked = self._read(span, attributes, memoryview(prompt))
        answers = _answers(span) if is_chat(attributes, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE) else []
        is_added = known.node == ROOT and has_only_new_messages(attributes, asked)
        (system, head, shape, node), at = known[2:6], 0
        if node == ROOT:
            while at < len(asked) and _ROLES.get(asked[at].role) == SYSTEM:
                at += 1
            text = "\n".join([message.text for message in asked[:at]])
            system, head = _hash(text), _hash(text[:_HEAD])
            shape = _hash(text[:_START]), _hash(text[-_END:]), len(text)
        said = asked[at:]
        codes = list(map(code_of, said))
        if not is_added:
            for message, code in zip(said, codes, strict=True):
                node = self.child(node, code, message)
        texts, length = ((), 0) if said else (known.texts, known.characters)
        if len(said) == 1 and known.node == ROOT and not is_added:
            texts, length = _beginnings(said[0].text)
        if not is_added:
            self._remember(prompt, _Known(0, 0, system, head, shape, node, texts, length))
        conversation, request = attributes.get(semconv.CONVERSATION_ID), attributes.get(semconv.REQUEST_ID)
        self.of_span[span.context.span_id] = History(
            system,
            head,
            shape,
            node,
            tuple(map(code_of, answers)),
            tuple(codes) if is_added else None,
            texts,
            length,
            tuple(_tasks(answers)),
            attributes.get(semconv.COMPACTED) is True,
            conversation[:_MAX_ID] if type(conversation) is str else "",
            request[:_MAX_ID] if type(request) is str else "",
        )

    def _read(
        self, span: ReadableSpan, attributes: Mapping[str, Any], prompt: memoryview
    ) -> tuple[_Known, list[Message]]:
        """Return the longest prompt before that a generation's prompt begins with, and the messages after it."""
        found = _NOTHING_KNOWN
        at = hashed = 0
        for length, expected in sorted(self._known):
            if length > len(prompt):
                break
            hashed, at = crc32(prompt[at:length], hashed), length
            if expected == hashed and bytes(prompt[length : length + 1]) in b",":
                found = self._known[length, expected]
        if found.node != ROOT:
            # The last to be forgotten.
            self._known[found.length, found.hash] = self._known.pop((found.length, found.hash))
            rest = f"[{bytes(prompt[found.length + 1 :]).decode('utf-8', 'replace')}]"
            more = messages_of(rest) if semconv.INPUT_MESSAGES in attributes else messages_in(parse_json(rest))
            if more or rest == "[]":
                return found, more
        if not is_chat(attributes, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE):
            return _NOTHING_KNOWN, []
        return _NOTHING_KNOWN, input_messages(span)

    def _remember(self, prompt: bytes, known: _Known) -> None:
        if prompt and known.node != ROOT:
            key = len(prompt), crc32(prompt)
            self._known.pop(key, None)
            self._known[key] = known._replace(length=key[0], hash=key[1])
            if len(self._known) > _MAX_KNOWN:
                del self._known[next(iter(self._known))]

    def child(self, node: int, code: int, message: Message | None = None) -> int:
        """Return the node of a message after a node; the node itself if there are too many."""
        key = (node, code)
        if (found := self._children.get(key)) is not None:
            return found
        if len(self.parents) > MAX_MESSAGES:
            self.is_full = True
            return node
        found = self._children[key] = len(self.parents)
        self.parents.append(node)
        self.codes.append(code)
        if message is not None and code & 7 != TOOL:
            text = message.text[:_SEARCHED].lower()
            if any(word in text for word in _SUMMARY):
                self.summaries.add(found)
            if any(part.get("type") == "compaction" for part in message.parts):
                self.compactions.add(found)
        return found

    def codes_of(self, turns: Iterable[History | None], *, with_answer: bool = True) -> list[int]:
        """Return the codes of the history that turns of one conversation lead to."""
        codes: list[int] = []
        answers: tuple[int, ...] = ()
        for turn in turns:
            if turn is None:
                continue
            if turn.added is None:
                codes = [self.codes[node] for node in self.path(turn.asked)]
            else:
                codes = [*codes, *answers, *turn.added]
            answers = turn.answers[:1]
        return [*codes, *answers] if with_answer else codes

    def path(self, node: int) -> list[int]:
        """Return the nodes from the first message to a node."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        nodes.reverse()
        return nodes


def histories_of(spans: Iterable[ReadableSpan]) -> Histories:
    """Return the messages of the generations among spans."""
    histories = Histories()
    for span in spans:
        if kind_of(span.attributes or {}) == "LLM":
            histories.add(span)
    return histories


def measure(found: Sequence[Found], spans: Sequence[int], histories: Histories) -> None:
    """Count the messages of conversations, those that they share with their parents, and those that they replace.

    Args:
        found: The conversations.
        spans: The span of each turn.
        histories: Their messages.
    """
    known = {at: histories.of_span.get(span_id) for at, span_id in enumerate(spans)}
    systems = [0 if (first := known[each.turns[0]]) is None else first.system for each in found]
    for each, system in zip(found, systems, strict=True):
        codes = histories.codes_of(known[turn] for turn in each.turns)
        each.messages = len(codes) + (system != 0)
        if each.parent is None:
            continue
        turns = found[each.parent].turns
        old = histories.codes_of(known[turn] for turn in turns if each.parent_turn is None or turn <= each.parent_turn)
        new = histories.codes_of([known[each.turns[0]]], with_answer=False)
        each.shared = sum(1 for _ in takewhile(bool, map(eq, old, new)))
        if each.kind == "compacted":
            kept = sum((Counter(old[each.shared :]) & Counter(new[each.shared :])).values())
            each.replaced = len(old) - each.shared - kept
        each.shared += systems[each.parent] == system != 0


def code_of(message: Message) -> int:
    """Return a message's hash with its role in the last three bits.

    A tool's name is no part of it, nor is reasoning, which templates leave out of later prompts.
    """
    said = _hash(message.text.strip())
    if message.parts and len(message.parts) + (message.parts[0].get("type") != "text") > 1:
        for call in message.calls:
            arguments = call.arguments if type(call.arguments) is str else json_of(call.arguments)
            said = crc32(f"{call.name} {arguments}".encode("utf-8", "replace"), said)
    return said << 3 | _ROLES.get(message.role, 0)


def has_only_new_messages(attributes: Mapping[str, Any], prompt: Sequence[Message]) -> bool:
    """Return True if a generation's prompt is recorded without the messages of earlier turns, as verl's turns are."""
    if attributes.get(semconv.PREFIX_BROKEN) is True:
        return False
    value = attributes.get(semconv.INPUT_VALUE)
    # No conversation begins with a tool's result.
    return (isinstance(value, str) and PROMPT_START in value) or (bool(prompt) and prompt[0].role == "tool")


def _encoded_prompt(attributes: Mapping[str, Any]) -> bytes:
    """Return the JSON of a whole prompt until its last message's end; nothing if it isn't a list of objects."""
    text, payload = attributes.get(semconv.INPUT_MESSAGES), attributes.get(semconv.INPUT_VALUE)
    if SYSTEM_INSTRUCTIONS in attributes or (type(payload) is str and PROMPT_START in payload):
        return b""
    if type(text) is not str:
        text = payload if type(payload) is str else ""
    end = text.rfind("}]") + 1
    for name in _LISTS_AFTER:
        before = text.rfind("}]", 0, max(0, text.rfind(name))) + 1
        # Unless a message has this name.
        if before and isinstance(parse_json("{" + text[before + 1 :].lstrip(", ")), Mapping):
            end = before
    return text[:end].encode("utf-8", "replace")


def _answers(span: ReadableSpan) -> list[Message]:
    return [message for message in output_messages(span) if message.role not in ("tool", "user", "system")]


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "replace"))


def _beginnings(text: str) -> tuple[tuple[int, ...], int]:
    hashes, known = [], 0
    for start in range(0, min(len(text), PIECE * _MAX_PIECES) - PIECE + 1, PIECE):
        known = crc32(text[start : start + PIECE].encode("utf-8", "replace"), known)
        hashes.append(known)
    return tuple(hashes), len(text)


def _tasks(answers: Sequence[Message]) -> Iterator[int]:
    """Yield the hashes of the texts in the arguments of calls."""
    count = 0
    for answer in answers:
        for call in answer.calls:
            arguments = call.arguments
            yield 0
            if isinstance(arguments, str):
                arguments = parse_json(arguments)
            for value in arguments.values() if isinstance(arguments, Mapping) else ():
                if type(value) is str and len(value) >= _MIN_TASK and count < MAX_CALLS:
                    count += 1
                    yield _hash(value.strip())
