"""The prompts of a trajectory's generations, in some hundred bytes each: texts, marks and records."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from otel_rollout import semconv
from otel_rollout.facts.prompt_texts import NO_TEXT, OpenPrompts, PromptText, text_of_prompt
from otel_rollout.facts.span_record import SpanRecord
from otel_rollout.facts.span_values import last_text, times_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

MAX_AGENTS: Final = 16_384
_MAX_ID: Final = 256
_PROMPT_BYTES: Final = 1000
_IDS: Final = '_ids":'
_TOKEN_IDS: Final = tuple(f'"{name}_ids":' for name in ("token", "response", "output", "prompt", "input", "completion"))


class Mark(NamedTuple):
    """The marks on a generation, or on an agent around some.

    Args:
        role: `policy` or `user`; empty without the mark.
        is_trained: True if it is training data, has token ids, or versions of weights: the policy has.
    """

    role: str
    is_trained: bool


NO_MARK: Final = Mark("", False)


class Prompt(NamedTuple):
    """A generation's prompt and marks.

    Args:
        text: Its text.
        is_compacted: True if it is marked as the first of a compacted conversation.
        conversation: `gen_ai.conversation.id`; empty without one.
        request: verl's id of the conversation; empty without one.
        mark: The marks on the generation.
        record: The facts that its payload shows.
        finish_reason: The reason for which it stopped; empty without one.
        start: Its start, in nanoseconds since 1970.
    """

    text: PromptText
    is_compacted: bool
    conversation: str
    request: str
    mark: Mark
    record: SpanRecord
    finish_reason: str
    start: int


UNKNOWN: Final = Prompt(PromptText(NO_TEXT, (), True), False, "", "", NO_MARK, SpanRecord(), "", 0)


class Prompts:
    """The prompts and marks of one trajectory's generations."""

    def __init__(self) -> None:
        self.of_span: dict[int, Prompt] = {}
        self.agents: dict[int, Mark] = {}
        """The agents that are marked, by span id."""
        self.open = OpenPrompts()

    def copy(self) -> Prompts:
        """Return a copy, to which generations can be added without changing this one."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            setattr(other, name, value.copy())
        return other

    @property
    def size(self) -> int:
        """The bytes that it takes in memory, roughly."""
        return _PROMPT_BYTES * len(self.of_span)

    def add(self, span: ReadableSpan, record: SpanRecord | None = None) -> None:
        """Add a generation, with its record if that has more than its prompt."""
        attributes: Mapping[str, Any] = span.attributes or {}
        text = None if record is None else record.prompt
        if text is None:
            text = self.open.add(*text_of_prompt(attributes))
        conversation, request = attributes.get(semconv.CONVERSATION_ID), attributes.get(semconv.REQUEST_ID)
        if span.context is not None:
            self.of_span[span.context.span_id] = Prompt(
                text,
                attributes.get(semconv.COMPACTED) is True,
                conversation[:_MAX_ID] if type(conversation) is str else "",
                request[:_MAX_ID] if type(request) is str else "",
                _mark_of(attributes),
                record or UNKNOWN.record,
                last_text(attributes.get(semconv.FINISH_REASONS)) or "",
                times_of(span)[0],
            )

    def add_agent(self, span_id: int, attributes: Mapping[str, Any]) -> None:
        """Keep the marks on an agent, if it has some."""
        mark = _mark_of(attributes)
        if mark != NO_MARK and len(self.agents) < MAX_AGENTS:
            self.agents[span_id] = mark

    def marks(self, span_id: int, scope: Iterable[int]) -> Iterator[Mark]:
        """Yield the marks on a generation, and on the agents around it, from the innermost."""
        if (prompt := self.of_span.get(span_id)) is not None:
            yield prompt.mark
        for agent in reversed(tuple(scope)):
            if (mark := self.agents.get(agent)) is not None:
                yield mark


def _mark_of(attributes: Mapping[str, Any]) -> Mark:
    role = attributes.get(semconv.ROLE)
    is_trained = attributes.get(semconv.TRAINED) is True or semconv.MAX_WEIGHTS_VERSION in attributes
    for key in () if is_trained else (semconv.OUTPUT_VALUE, semconv.INPUT_VALUE):
        value = attributes.get(key)
        if type(value) is str and _IDS in value and any(name in value for name in _TOKEN_IDS):
            is_trained = True
    return Mark(role if role in semconv.ROLES else "", is_trained)
