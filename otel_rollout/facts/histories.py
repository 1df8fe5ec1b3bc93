"""The messages of a trajectory's generations as hashes, for readers: what conversations share and replace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, takewhile
from operator import eq
from typing import Any, Final, NamedTuple
from zlib import crc32

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.exact_conversations import Found
from otel_rollout.facts.prompt_texts import PROMPT_START, is_chat
from otel_rollout.facts.span_facts import kind_of
from otel_rollout.facts.span_messages import SYSTEM_INSTRUCTIONS, input_messages, messages_of, output_messages
from otel_rollout.messages import Message, json_of

ASSISTANT, TOOL, USER, SYSTEM = 1, 2, 3, 4
_HEAD: Final = 48
"""System prompts that begin with the same characters are versions of one."""
_START: Final = 32
_END: Final = 16
_ROLES: Final = {"assistant": ASSISTANT, "tool": TOOL, "user": USER, "system": SYSTEM, "developer": SYSTEM}
_MAX_KNOWN: Final = 8


class History(NamedTuple):
    """The messages of a generation.

    Args:
        system: The hash of its system prompt; 0 without one.
        head: The hash of the system prompt's beginning.
        shape: The hashes of a shorter beginning and of its end, and the system prompt's length.
        codes: The codes of its prompt's messages after the system prompt.
        answers: The codes of its answers; several if it was asked for several.
        is_added: True if its prompt is recorded without the messages of earlier turns.
        text: The text of a prompt of one message; empty of others.
        is_calling: True if it called a tool.
    """

    system: int
    head: int
    shape: tuple[int, int, int]
    codes: list[int]
    answers: tuple[int, ...]
    is_added: bool
    text: str
    is_calling: bool


NO_HISTORY: Final = History(0, 0, (0, 0, 0), [], (), False, "", False)


class Histories:
    """The messages of one trajectory's generations; they are compared by their codes on first use of these."""

    def __init__(self) -> None:
        self.prompts: dict[int, list[Message]] = {}
        """The messages of each prompt, by span id."""
        self._spans: dict[int, ReadableSpan] = {}
        self._known: list[tuple[str, list[Message]]] = []
        """The last prompts without the closing bracket: most begin with an earlier one, which isn't read again."""

    def add(self, span: ReadableSpan) -> None:
        """Add a generation."""
        prompt = self._read(span, span.attributes or {})
        if span.context is not None:
            self.prompts[span.context.span_id] = prompt
            self._spans[span.context.span_id] = span

    @cached_property
    def of_span(self) -> Mapping[int, History]:
        """The histories by span id."""
        # Most prompts begin with the messages of an earlier one.
        codes: dict[int, int] = {}
        for asked in self.prompts.values():
            for message in asked:
                if id(message) not in codes:
                    codes[id(message)] = code_of(message)
        return {span_id: self._history(span, self.prompts[span_id], codes) for span_id, span in self._spans.items()}

    @cached_property
    def compactions(self) -> set[int]:
        """The codes of messages with a part of type `compaction`."""
        messages = {id(message): message for asked in self.prompts.values() for message in asked}
        marked = (each for each in messages.values() if any(part.get("type") == "compaction" for part in each.parts))
        return set(map(code_of, marked))

    def messages_after(self, turns: Sequence[int]) -> int:
        """Return the length of the history that turns of one conversation lead to, with the last answer.

        Args:
            turns: Their spans.
        """
        number, last = 0, None
        for span in (self._spans[span_id] for span_id in turns if span_id in self._spans):
            asked = self.prompts[span.context.span_id if span.context else 0]
            is_added = last is not None and has_only_new_messages(span.attributes or {}, asked)
            number = number + bool(self._answers(last)) if is_added and last is not None else 0
            number += len(asked) - _system_messages(asked)
            last = span
        first = self.prompts.get(turns[0], [])
        has_system = bool("\n".join([message.text for message in first[: _system_messages(first)]]))
        return number + (last is not None and bool(self._answers(last))) + has_system

    def _history(self, span: ReadableSpan, asked: Sequence[Message], codes: Mapping[int, int]) -> History:
        attributes: Mapping[str, Any] = span.attributes or {}
        answers = self._answers(span)
        at = _system_messages(asked)
        text = "\n".join([message.text for message in asked[:at]])
        return History(
            _hash(text),
            _hash(text[:_HEAD]),
            (_hash(text[:_START]), _hash(text[-_END:]), len(text)),
            [codes[id(message)] for message in asked[at:]],
            tuple(map(code_of, answers)),
            has_only_new_messages(attributes, asked),
            asked[at].text if len(asked) == at + 1 else "",
            any(message.calls for message in answers),
        )

    def _answers(self, span: ReadableSpan) -> list[Message]:
        can_answer = is_chat(span.attributes or {}, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE)
        return [each for each in (output_messages(span) if can_answer else []) if _is_said(each)]

    def _read(self, span: ReadableSpan, attributes: Mapping[str, Any]) -> list[Message]:
        """Return the messages of a prompt; of one that begins with an earlier one, read the rest."""
        if not is_chat(attributes, semconv.INPUT_MESSAGES, semconv.INPUT_VALUE, semconv.OUTPUT_VALUE):
            return []
        text = attributes.get(semconv.INPUT_MESSAGES)
        if type(text) is not str or SYSTEM_INSTRUCTIONS in attributes or not text.endswith("]"):
            return input_messages(span)
        for known in reversed(self._known):
            begin, earlier = known
            if text.startswith(begin) and text.startswith(",", len(begin)):
                asked = [*earlier, *messages_of(f"[{text[len(begin) + 1 :]}")]
                self._known.remove(known)
                self._known.append(known)
                break
        else:
            asked = input_messages(span)
        self._known = [*self._known[1 - _MAX_KNOWN :], (text[:-1], asked)]
        return asked


def _system_messages(asked: Sequence[Message]) -> int:
    return len(list(takewhile(lambda message: _ROLES.get(message.role) == SYSTEM, asked)))


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
    known = [histories.of_span.get(span_id, NO_HISTORY) for span_id in spans]
    for each in found:
        first = known[each.turns[0]]
        each.messages = len(_codes_after(known[turn] for turn in each.turns)) + (first.system != 0)
        if each.parent is None:
            continue
        turns = found[each.parent].turns
        old = _codes_after(known[turn] for turn in turns if each.parent_turn is None or turn <= each.parent_turn)
        each.shared = common(old, first.codes)
        if each.kind == "compacted":
            kept = sum((Counter(old[each.shared :]) & Counter(first.codes[each.shared :])).values())
            each.replaced = len(old) - each.shared - kept
        each.shared += known[turns[0]].system == first.system != 0


def _codes_after(turns: Iterable[History]) -> list[int]:
    """Return the codes of the history that turns of one conversation lead to, with the last answer."""
    codes: list[int] = []
    for turn in turns:
        codes = [*codes, *turn.codes] if turn.is_added else list(turn.codes)
        codes += turn.answers[:1]
    return codes


def common(one: Sequence[int], two: Sequence[int]) -> int:
    """Return the number of messages that both begin with."""
    return sum(1 for _ in takewhile(bool, map(eq, one, two)))


def keys_of(codes: Sequence[int]) -> list[int]:
    """Return a hash of the first messages, for each number of them."""
    return list(accumulate(codes, lambda key, code: hash((key, code)), initial=0))


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


def _is_said(message: Message) -> bool:
    return message.role not in ("tool", "user", "system")


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "replace"))
