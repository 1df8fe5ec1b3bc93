"""The messages of a trajectory's generations, for readers: what conversations share and replace."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from operator import eq
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from otel_rollout import semconv
from otel_rollout.facts.compact_spans import Turn
from otel_rollout.facts.exact_conversations import Found
from otel_rollout.facts.prompt_texts import PROMPT_START, is_chat
from otel_rollout.facts.span_facts import kind_of
from otel_rollout.facts.span_messages import SYSTEM_INSTRUCTIONS, input_messages, messages_of, output_messages
from otel_rollout.messages import Message, json_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

ASSISTANT, TOOL, USER, SYSTEM = 1, 2, 3, 4
_ROLES: Final = {"assistant": ASSISTANT, "tool": TOOL, "user": USER, "system": SYSTEM, "developer": SYSTEM}
_MAX_KNOWN: Final = 8


class History(NamedTuple):
    """The messages of a generation.

    Args:
        system: Its system prompt; empty without one.
        codes: The codes of its prompt's messages after the system prompt.
        answers: The codes of its answers; several if it was asked for several.
        is_added: True if its prompt is recorded without the messages of earlier turns.
        text: The text of a prompt of one message; empty of others.
        is_calling: True if it called a tool.
    """

    system: str
    codes: list[int]
    answers: tuple[int, ...]
    is_added: bool
    text: str
    is_calling: bool


NO_HISTORY: Final = History("", [], (), False, "", False)


class Histories:
    """The messages of one trajectory's generations; they are compared by their codes.

    Args:
        spans: The spans of the trajectory.
    """

    def __init__(self, spans: Iterable[ReadableSpan]) -> None:
        self.prompts: dict[int, list[Message]] = {}
        """The messages of each prompt, by span id."""
        self.answers: dict[int, list[Message]] = {}
        """The messages of each answer."""
        self._added: set[int] = set()
        """The spans whose prompt is recorded without the messages of earlier turns."""
        self._codes: dict[int, int] = {}
        self._known: list[tuple[str, list[Message]]] = []
        """The last prompts without the closing bracket: most begin with an earlier one, which isn't read again."""
        for span in spans:
            if span.context is not None and kind_of(span.attributes or {}) == "LLM":
                self._add(span, span.context.span_id)

    def _add(self, span: ReadableSpan, span_id: int) -> None:
        attributes: Mapping[str, Any] = span.attributes or {}
        self.prompts[span_id] = self._read(span, attributes)
        can_answer = is_chat(attributes, semconv.OUTPUT_MESSAGES, semconv.OUTPUT_VALUE)
        self.answers[span_id] = output_messages(span) if can_answer else []
        if has_only_new_messages(attributes, self.prompts[span_id]):
            self._added.add(span_id)

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

    @cached_property
    def of_span(self) -> Mapping[int, History]:
        """The histories by span id."""
        return {span_id: self._history(span_id, asked) for span_id, asked in self.prompts.items()}

    def _history(self, span_id: int, asked: Sequence[Message]) -> History:
        answers = self._answers(span_id)
        system, rest = _parted(asked)
        return History(
            system,
            self._codes_of(rest),
            tuple(self._codes_of(answers)),
            span_id in self._added,
            rest[0].text if len(rest) == 1 else "",
            any(message.calls for message in answers),
        )

    def _answers(self, span_id: int) -> list[Message]:
        return [each for each in self.answers.get(span_id, ()) if each.role not in ("tool", "user", "system")]

    def _codes_of(self, messages: Iterable[Message]) -> list[int]:
        # Most prompts have the messages of an earlier one.
        known = self._codes
        return [known.get(id(each)) or known.setdefault(id(each), code_of(each)) for each in messages]

    def after(self, turns: Sequence[Turn]) -> list[Message]:
        """Return the history that turns of one conversation lead to, with the last answer."""
        ids = [turn.row.span_id for turn in turns]
        whole = [at for at, span_id in enumerate(ids) if span_id not in self._added]
        return [
            message
            for span_id in (ids[whole[-1] :] if whole else ids)
            for message in (*self.prompts.get(span_id, ()), *self._answers(span_id)[:1])
        ]

    def measure(self, found: Iterable[Found]) -> None:
        """Count the messages of conversations, those that they share with their parents, and those that they replace.

        Of a fork, the parent's last turn whose answer it shares is found, too.
        """
        for each in found:
            each.messages = len(self.after(each.turns))
            if each.parent is None:
                continue
            above = each.above
            if each.kind == "fork" and each.origin in above:
                above = above[: above.index(each.origin) + 1]
            one, old = _parted(self.after(above))
            two, new = _parted(self.prompts.get(each.turns[0].row.span_id, []))
            codes, begun = self._codes_of(old), self._codes_of(new)
            shared = common(codes, begun)
            if each.kind == "compacted":
                kept = sum((Counter(codes[shared:]) & Counter(begun[shared:])).values())
                each.replaced = len(codes) - shared - kept
            each.shared = shared + (one == two != "")
            if each.kind == "fork":
                last = bisect_right(range(len(above)), each.shared, key=lambda at: len(self.after(above[: at + 1])))
                each.parent_turn = above[last - 1] if last else None


def _parted(messages: Sequence[Message]) -> tuple[str, Sequence[Message]]:
    """Return the system prompt of messages, and the rest."""
    systems = list(takewhile(lambda message: _ROLES.get(message.role) == SYSTEM, messages))
    return "\n".join([message.text for message in systems]), messages[len(systems) :]


def common(one: Sequence[int], two: Sequence[int]) -> int:
    """Return the number of messages that both begin with."""
    return sum(1 for _ in takewhile(bool, map(eq, one, two)))


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


def _hash(text: str) -> int:
    return crc32(text.encode("utf-8", "replace"))
