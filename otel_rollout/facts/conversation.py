"""A trajectory's conversation: each message once, in the order of the chat."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.span_messages import input_messages, output_messages
from otel_rollout.facts.trace_tree import error_of, place_of
from otel_rollout.messages import CALL, RESULT, Message, Part, ToolCall, parse_json, text_message

PROMPT_START: Final = '"prompt_ids_start":'
"""In a turn's input: the number of the prompt's token ids that earlier turns have recorded."""
_TOKENS: Final = ("token_ids", "response_ids", "output_ids")


@dataclass(frozen=True)
class Utterance:
    """A message, and the span that it came from if it was generated or is a tool's result.

    Args:
        message: The message.
        span: The span.
        is_error: True if it is the error of a tool or of a generation.
        is_new_prompt: True if the conversation before it was replaced by another.
    """

    message: Message
    span: ReadableSpan | None = None
    is_error: bool = False
    is_new_prompt: bool = False


def conversation_of(spans: Sequence[ReadableSpan]) -> list[Utterance]:
    """Return a trajectory's utterances: prompts, generations, tool calls, tool results."""
    ordered = sorted(spans, key=lambda span: span.start_time or 0)
    turns = outermost(ordered, "LLM")
    if not turns:
        return _without_turns(ordered)
    tools = deque(outermost(ordered, "TOOL"))
    told: list[Utterance] = []
    known: list[Message] = []
    for turn in turns:
        prompt = input_messages(turn) or (_prompt_of(ordered) if not told else [])
        is_continued = bool(known) and _has_only_new_messages(turn, prompt)
        at = 0 if is_continued else _common(known, prompt)
        is_other = bool(known) and at < len(known) and bool(prompt) and not is_continued
        ran = _take_before(tools, turn.start_time or 0)
        if ran and (is_other or not any(message.role == "tool" for message in prompt[at:])):
            told += map(_result, ran)
            ran = []
        for position, message in enumerate(prompt[at:]):
            tool = _take(ran, message) if message.role == "tool" else None
            is_error = tool is not None and tool.status.status_code is StatusCode.ERROR
            told.append(Utterance(message, tool, is_error, is_new_prompt=is_other and position == 0))
        generated = output_messages(turn)
        told += [Utterance(message, turn) for message in generated]
        if turn.status.status_code is StatusCode.ERROR:
            told.append(Utterance(text_message("assistant", error_of(turn)), turn, is_error=True))
        elif not generated:
            told.append(Utterance(text_message("assistant", _tokens_of(turn)), turn))
        if prompt:
            known = (known if is_continued else []) + prompt + generated
    told += map(_result, tools)
    return list(_named(told))


def outermost(ordered: Sequence[ReadableSpan], kind: str) -> list[ReadableSpan]:
    """Return the spans of a kind that are not inside another of that kind, in their order.

    Args:
        ordered: All spans of a trajectory.
        kind: The OpenInference kind.
    """
    places = {place_of(span).span_id: span for span in ordered}
    # The answer for each span that was passed: a chain is walked once, not once for each of its spans.
    inside: dict[int, bool] = {}

    def is_inside(span: ReadableSpan) -> bool:
        passed: dict[int, None] = {}
        parent, found = place_of(span).parent_id, False
        while parent in places and parent not in passed and not found:
            if parent in inside:
                found = inside[parent]
                break
            found = _kind(places[parent]) == kind
            passed[parent] = None
            parent = place_of(places[parent]).parent_id
        inside.update(dict.fromkeys(passed, found))
        return found

    return [span for span in ordered if _kind(span) == kind and not is_inside(span)]


def _kind(span: ReadableSpan) -> Any:
    return (span.attributes or {}).get(semconv.SPAN_KIND)


def _has_only_new_messages(turn: ReadableSpan, prompt: Sequence[Message]) -> bool:
    """Return True if a generation's prompt is recorded without the messages of earlier turns, as verl's turns are."""
    attributes = turn.attributes or {}
    if attributes.get(semconv.PREFIX_BROKEN) is True:
        return False
    value = attributes.get(semconv.INPUT_VALUE)
    # No conversation begins with a tool's result.
    return (isinstance(value, str) and PROMPT_START in value) or (bool(prompt) and prompt[0].role == "tool")


def _common(known: Sequence[Message], prompt: Sequence[Message]) -> int:
    """Return the number of messages that both begin with.

    A tool's name is no part of a message's text, nor is reasoning, which templates leave out of later prompts.
    """

    def said(message: Message) -> tuple[str, str, list[str]]:
        return message.role, message.text.strip(), [call.name for call in message.calls]

    at = 0
    while at < len(known) and at < len(prompt) and said(known[at]) == said(prompt[at]):
        at += 1
    return at


def _take_before(tools: deque[ReadableSpan], time: int) -> list[ReadableSpan]:
    """Take the tools that started before a time from the beginning of those that are left."""
    taken: list[ReadableSpan] = []
    while tools and (tools[0].start_time or 0) < time:
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
    parsed = error_of(tool) if is_error else parse_json(value)
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


def _without_turns(ordered: Sequence[ReadableSpan]) -> list[Utterance]:
    """Return the root's input and output, and the tools between them."""
    told = [*map(Utterance, _prompt_of(ordered)), *map(_result, outermost(ordered, "TOOL"))]
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
