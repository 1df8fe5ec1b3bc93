"""The utterances of a trajectory: each message once, in the order of time, with its conversation."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.conversations import Conversations, conversations_of
from otel_rollout.facts.histories import has_only_new_messages
from otel_rollout.facts.span_messages import input_messages, output_messages
from otel_rollout.facts.trace_tree import error_of, id_of
from otel_rollout.messages import CALL, RESULT, Message, Part, ToolCall, parse_json, text_message

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_TOKENS: Final = ("token_ids", "response_ids", "output_ids")


@dataclass(frozen=True)
class Utterance:
    """A message, and the span that it came from if it was generated or is a tool's result."""

    message: Message
    span: ReadableSpan | None = None
    is_error: bool = False
    conversation: int = 1


def utterances_of(spans: Sequence[ReadableSpan], conversations: Conversations | None = None) -> list[Utterance]:
    """Return a trajectory's utterances: prompts, generations, tool calls, tool results."""
    ordered = sorted(spans, key=lambda span: span.start_time or 0)
    found = conversations_of(ordered) if conversations is None else conversations
    if not found.turns:
        return _without_turns(ordered, found.tools)
    teller = _Teller(ordered, found)
    for turn in found.turns:
        teller.add(turn)
    teller.add_rest()
    return list(_named(teller.told))


class _Teller:
    """Collects the utterances of a trajectory's turns, each after the history of its conversation."""

    def __init__(self, ordered: Sequence[ReadableSpan], found: Conversations) -> None:
        self.told: list[Utterance] = []
        self._ordered = ordered
        self._found = found
        self._known: dict[int, list[Message]] = {}
        """The history of each conversation."""
        self._left = {each.id: len(each.turns) for each in found.all}
        """The turns of each conversation that are not among the utterances yet."""
        self._tools: dict[int, deque[ReadableSpan]] = {}
        """The tool calls of each conversation that are not among the utterances yet."""
        main = next((each.id for each in found.all if each.kind == "main"), 1)
        for tool in found.tools:
            self._tools.setdefault(found.of_span.get(id_of(tool), main), deque()).append(tool)

    def add(self, turn: ReadableSpan) -> None:
        """Add a turn."""
        number = self._found.of_span[id_of(turn)]
        self._add_results(turn.start_time or 0)
        prompt = self._found.prompts.get(id_of(turn)) or input_messages(turn)
        if not prompt and not self.told:
            prompt = _prompt_of(self._ordered)
        before = self._known.get(number)
        is_continued = before is not None and has_only_new_messages(turn.attributes or {}, prompt)
        if before is None:
            new = prompt[self._found.all[number - 1].shared :]
        else:
            new = prompt if is_continued else list(_new_of(before, prompt))
        ran = _take_before(self._tools.get(number, deque()), turn.start_time or 0)
        said: list[Utterance] = []
        if ran and not any(message.role == "tool" for message in new):
            said += map(_result, ran)
            ran = []
        for message in new:
            tool = _take(ran, message) if message.role == "tool" else None
            is_error = tool is not None and tool.status.status_code is StatusCode.ERROR
            said.append(Utterance(message, tool, is_error))
        if ran:
            # Results that the prompt lacks, after those that it has.
            last = max(at for at, each in enumerate(said) if each.message.role == "tool")
            said[last + 1 : last + 1] = map(_result, ran)
        generated = self._found.answers.get(id_of(turn)) or output_messages(turn)
        said += [Utterance(message, turn) for message in generated]
        if turn.status.status_code is StatusCode.ERROR:
            said.append(Utterance(text_message("assistant", error_of(turn)), turn, is_error=True))
        elif not generated:
            said.append(Utterance(text_message("assistant", _tokens_of(turn)), turn))
        self._left[number] -= 1
        if prompt:
            self._known[number] = ((before or []) if is_continued else []) + prompt + generated
        self._tell(said, number)

    def add_rest(self) -> None:
        """Add the tool calls after the last turns."""
        self._add_results(None)

    def _add_results(self, time: int | None) -> None:
        """Add the tool calls before a time after the last turns of their conversations: no later prompt has them."""
        for number, tools in self._tools.items():
            if not self._left[number]:
                self._tell(list(map(_result, _take_before(tools, time))), number)

    def _tell(self, said: Sequence[Utterance], number: int) -> None:
        self.told += said if number == 1 else [replace(each, conversation=number) for each in said]


def _new_of(known: Sequence[Message], prompt: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a prompt that come after a known history, also if that was edited or shortened."""
    at = _common(known, prompt)
    if at == len(known) or at == len(prompt):
        return prompt[at:]
    if at == len(known) - 1 and prompt[at].role == known[at].role == "assistant":
        # The answer was not recorded as later prompts have it.
        return prompt[at + 1 :]
    for last in (known[-1], *known[-2:-1]):
        for place in range(len(prompt) - 1, at - 1, -1):
            if _said(prompt[place]) == _said(last):
                return prompt[place + 1 :]
    old, new = known[at], prompt[at]
    if new.role == old.role and len(new.parts) == 1 and new.text.startswith(old.text) and old.text:
        # A prompt of one text, to which the answers are added.
        rest = new.text[len(old.text) :].lstrip()
        answer = known[-1].text if known[-1].role == "assistant" else ""
        rest = rest.removeprefix(answer.strip()).strip()
        return [*([text_message(new.role, rest)] if rest else []), *prompt[at + 1 :]]
    return prompt[at:]


def _are_same(one: Message, other: Message) -> bool:
    return one is other or _said(one) == _said(other)


def _said(message: Message) -> tuple[str, str, list[str]]:
    """Return the parts of a message that comparisons use.

    A tool's name is no part of a message's text, nor is reasoning, which templates leave out of later prompts.
    """
    return message.role, message.text.strip(), [call.name for call in message.calls]


def _common(known: Sequence[Message], prompt: Sequence[Message]) -> int:
    """Return the number of messages that both begin with."""
    at = 0
    while at < len(known) and at < len(prompt) and _are_same(known[at], prompt[at]):
        at += 1
    return at


def _take_before(tools: deque[ReadableSpan], time: int | None) -> list[ReadableSpan]:
    """Take the tools that started before a time, or all, from the beginning of those that are left."""
    taken: list[ReadableSpan] = []
    while tools and (time is None or (tools[0].start_time or 0) < time):
        taken.append(tools.popleft())
    return taken


def _take(tools: list[ReadableSpan], result: Message) -> ReadableSpan | None:
    """Remove the span of a tool's result and return it: by the call's id, else by the tool's name, else in order."""
    for key, wanted in ((semconv.TOOL_CALL_ID, result.call_id), (semconv.TOOL_NAME, result.name)):
        for tool in tools:
            if wanted and (tool.attributes or {}).get(key) == wanted:
                tools.remove(tool)
                return tool
    return tools.pop(0) if tools else None


def _result(tool: ReadableSpan) -> Utterance:
    attributes = tool.attributes or {}
    more = {"name": str(attributes.get(semconv.TOOL_NAME) or tool.name)}
    is_error = tool.status.status_code is StatusCode.ERROR
    value = attributes.get(semconv.OUTPUT_VALUE, attributes.get(semconv.TOOL_CALL_RESULT))
    # A text stays as it is, also if it is JSON.
    is_text = attributes.get(semconv.OUTPUT_MIME_TYPE) == semconv.TEXT_MIME_TYPE
    parsed = error_of(tool) if is_error else None if is_text else parse_json(value)
    response = str(value or "") if parsed is None else parsed
    return Utterance(Message("tool", [{"type": RESULT, "id": None, "response": response}], more), tool, is_error)


def _call_of(tool: ReadableSpan, name: str) -> list[Part]:
    """Return a tool's call as its span has it; empty if it has no arguments."""
    attributes = tool.attributes or {}
    given = attributes.get(semconv.INPUT_VALUE, attributes.get(semconv.TOOL_CALL_ARGUMENTS))
    if given is None:
        return []
    return [{"type": CALL, "id": attributes.get(semconv.TOOL_CALL_ID), "name": name or tool.name, "arguments": given}]


def _tokens_of(turn: ReadableSpan) -> str:
    """Return words for a generation without text."""
    value = parse_json((turn.attributes or {}).get(semconv.OUTPUT_VALUE))
    ids = (
        next((value[key] for key in _TOKENS if isinstance(value.get(key), list)), None)
        if isinstance(value, Mapping)
        else None
    )
    return "" if ids is None else f"[{len(ids)} token ids; with token2text they are recorded as text]"


def _without_turns(ordered: Sequence[ReadableSpan], tools: Sequence[ReadableSpan]) -> list[Utterance]:
    """Return the root's input and output, and the tools between them."""
    told = [*map(Utterance, _prompt_of(ordered)), *map(_result, tools)]
    if (root := _root_of(ordered)) is not None:
        answer = output_messages(root)
        if not answer and (value := (root.attributes or {}).get(semconv.OUTPUT_VALUE)) not in (None, "null"):
            answer = [text_message("assistant", str(value))]
        told += [Utterance(message, root) for message in answer]
    return list(_named(told))


def _named(told: Sequence[Utterance]) -> Iterator[Utterance]:
    """Yield the messages, each tool's result with the name of its tool: by the call's id, else by its place.

    A result that no message asked for has the call of its span.
    """
    calls: list[ToolCall] = []
    for utterance in told:
        message = utterance.message
        if message.role != "tool":
            calls = list(message.calls)
        elif calls:
            call = next((call for call in calls if call.call_id and call.call_id == message.call_id), calls[0])
            calls.remove(call)
            if not message.name:
                message = message._replace(more={**message.more, "name": call.name})
        elif utterance.span is not None:
            message = message._replace(parts=[*_call_of(utterance.span, message.name), *message.parts])
        yield utterance if message is utterance.message else replace(utterance, message=message)


def _root_of(spans: Sequence[ReadableSpan]) -> ReadableSpan | None:
    return next((span for span in spans if span.parent is None), None)


def _prompt_of(spans: Sequence[ReadableSpan]) -> list[Message]:
    """Return the root's prompt."""
    root = _root_of(spans)
    if root is None or (prompt := input_messages(root)):
        return prompt if root is not None else []
    value = (root.attributes or {}).get(semconv.INPUT_VALUE)
    return [] if value in (None, "null") else [text_message("user", str(value))]
