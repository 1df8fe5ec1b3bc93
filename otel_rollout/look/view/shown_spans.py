"""A trajectory's conversation and spans as the pages have them: what is too long is cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.conversations import Conversations
from otel_rollout.facts.trace_tree import error_of, id_of, place_of
from otel_rollout.facts.utterances import Utterance, utterances_of
from otel_rollout.messages import ToolCall, parse_json

MAX_TEXT: Final = 20_000
"""The characters of one text in a list."""
MAX_ANSWER: Final = 8_000_000
"""The characters of all texts of one answer."""
MIN_TEXT: Final = 200
"""The characters of a text once the answer is full."""


class Cutter:
    """Cuts the texts of one answer, each and altogether: after `MAX_ANSWER` characters, each has 200.

    Args:
        each: The most characters of a text; None for no bound.
    """

    def __init__(self, each: int | None = MAX_TEXT) -> None:
        self._each = each
        self._left = MAX_ANSWER

    def text(self, text: str) -> tuple[str, int]:
        """Return a text's beginning and the number of characters that are cut."""
        if self._each is None:
            return text, 0
        kept = text[: self._each if self._left > 0 else MIN_TEXT]
        self._left -= len(kept)
        return kept, len(text) - len(kept)

    def value(self, value: Any) -> tuple[Any, int]:
        """Return a value as JSON can hold it; one that is long becomes the beginning of its text."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.text(value.hex())
        if isinstance(value, (Mapping, list, tuple)):
            value = list(value) if isinstance(value, tuple) else value
            text = orjson.dumps(value, default=str).decode()
            kept, cut = self.text(text)
            return (kept, cut) if cut else (value, 0)
        return value, 0


MAX_SPANS: Final = 10_000
"""If there are more, the first and the last spans are listed."""
STATUSES: Final = {StatusCode.UNSET: "unset", StatusCode.OK: "ok", StatusCode.ERROR: "error"}


def span_id_of(span: ReadableSpan) -> str:
    """Return a span's id, 16 hexadecimal digits."""
    return f"{id_of(span):016x}"


def span_records(
    spans: Sequence[ReadableSpan], conversations: Conversations, cutter: Cutter
) -> tuple[list[dict[str, Any]], int]:
    """Return a trajectory's spans by start, and the number of those that are left out of its middle.

    Args:
        spans: All of them.
        conversations: Its conversations.
        cutter: Cuts their attributes.
    """
    turns = Turns(conversations)
    ordered = sorted(spans, key=lambda span: (span.start_time or 0, span.parent is not None))
    left_out = max(0, len(ordered) - MAX_SPANS)
    if left_out:
        ordered = ordered[: MAX_SPANS // 2] + ordered[-MAX_SPANS // 2 :]
    return [span_record(span, turns, cutter) for span in ordered], left_out


class Turns:
    """By span id: the numbers of turns, from 1, their prefix breaks, and the conversations of spans.

    Args:
        conversations: The conversations of a trajectory.
    """

    def __init__(self, conversations: Conversations) -> None:
        self.numbers = turn_numbers(conversations)
        self.breaks = prefix_breaks(conversations.turns)
        self.conversations = conversations.of_span


def span_record(span: ReadableSpan, turns: Turns, cutter: Cutter) -> dict[str, Any]:
    """Return a span.

    Args:
        span: The span.
        turns: The turns of its trajectory.
        cutter: Cuts its attributes and events.
    """
    place = place_of(span)
    failed = span.status.status_code is StatusCode.ERROR
    attributes, cut = _cut(span.attributes or {}, cutter)
    events = []
    for event in span.events:
        of_event, cut_of_event = _cut(event.attributes or {}, cutter)
        # Nanoseconds since 1970 have more digits than JavaScript's numbers.
        events.append({"name": event.name, "time": str(event.timestamp), "attributes": of_event, "cut": cut_of_event})
    return {
        "span_id": f"{place.span_id:016x}",
        "parent_id": None if place.parent_id is None else f"{place.parent_id:016x}",
        "name": span.name,
        "kind": (span.attributes or {}).get(semconv.SPAN_KIND) or "",
        "start_time": str(span.start_time or 0),
        "end_time": str(span.end_time or 0),
        "status": STATUSES[span.status.status_code],
        "error": cutter.text(error_of(span))[0] if failed else None,
        "attributes": attributes,
        "cut": cut,
        "events": events,
        "turn": turns.numbers.get(place.span_id),
        "conversation": turns.conversations.get(place.span_id),
        "prefix_break": turns.breaks.get(place.span_id),
    }


def _cut(attributes: Mapping[str, Any], cutter: Cutter) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the attributes, and the number of characters cut from each truncated one."""
    kept, cuts = {}, {}
    for key, value in attributes.items():
        kept[key], cut = cutter.value(value)
        if cut:
            cuts[key] = cut
    return kept, cuts


MAX_UTTERANCES: Final = 10_000
"""If a conversation is longer, its beginning and its end are shown."""
MAX_TOKEN_IDS: Final = 20_000


def utterances(
    spans: Sequence[ReadableSpan], conversations: Conversations, cutter: Cutter, *, has_token_ids: bool = True
) -> tuple[list[dict[str, Any]], int]:
    """Return a trajectory's messages, and the number that is left out of their middle.

    Args:
        spans: Its spans.
        conversations: Its conversations.
        cutter: Cuts their texts.
        has_token_ids: Add the ids of generated tokens.
    """
    told = utterances_of(spans, conversations)
    left_out = max(0, len(told) - MAX_UTTERANCES)
    if left_out:
        told = told[: MAX_UTTERANCES // 2] + told[-MAX_UTTERANCES // 2 :]
    turns = turn_numbers(conversations)
    seen: set[int] = set()
    records = []
    for each in told:
        span_id = id_of(each.span) if each.span is not None else None
        is_first = span_id is not None and span_id not in seen
        seen |= {span_id} if span_id is not None else set()
        records.append(_record(each, span_id, turns, cutter, is_first, has_token_ids))
    return records, left_out


def _record(
    each: Utterance, span_id: int | None, turns: dict[int, int], cutter: Cutter, is_first: bool, has_token_ids: bool
) -> dict[str, Any]:
    message, span = each.message, each.span
    turn = turns.get(span_id) if span_id is not None else None
    kept, cut = cutter.text(message.text)
    reasoning, more = cutter.text(message.reasoning)
    cut += more
    calls = [_call(call, cutter) for call in message.calls]
    tokens = ids = None
    if span is not None and turn is not None and is_first:
        tokens = _tokens(span)
        ids = token_ids_of(span)[1] if has_token_ids else None
    return {
        "role": message.role,
        "text": kept,
        "calls": calls,
        "name": message.name,
        "call_id": message.call_id,
        "span_id": None if span_id is None else f"{span_id:016x}",
        "turn": turn,
        "is_error": each.is_error,
        "conversation": each.conversation,
        "reasoning": reasoning or None,
        "tokens": tokens,
        "token_ids": None if ids is None else ids[:MAX_TOKEN_IDS],
        "cut": cut + sum(call["cut"] for call in calls),
    }


def _call(call: ToolCall, cutter: Cutter) -> dict[str, Any]:
    arguments, cut = cutter.value(call.arguments)
    return {"name": call.name, "arguments": arguments, "call_id": call.call_id, "cut": cut}


def _tokens(span: ReadableSpan) -> dict[str, Any] | None:
    attributes = span.attributes or {}
    tokens = {
        "input": attributes.get(semconv.USAGE_INPUT_TOKENS),
        "output": attributes.get(semconv.USAGE_OUTPUT_TOKENS),
    }
    return None if tokens["input"] is None and tokens["output"] is None else tokens


def turn_numbers(conversations: Conversations) -> dict[int, int]:
    """Return the number of each turn, from 1, by span id."""
    return {id_of(span): number for number, span in enumerate(conversations.turns, 1)}


def prefix_breaks(turns: Sequence[ReadableSpan]) -> dict[int, dict[str, int | None]]:
    """Return the breaks by span id: `at`, the position, and the ids `expected` and `got` there; None is unknown.

    Args:
        turns: The turns of a trajectory, by start.

    A turn is compared with the last one before it of the same request, whose ids are known as a whole.
    """
    if not any(map(_is_broken, turns)):
        return {}
    breaks: dict[int, dict[str, int | None]] = {}
    known: dict[Any, list[int]] = {}
    for turn in turns:
        request = (turn.attributes or {}).get(semconv.REQUEST_ID)
        before = known.get(request, [])
        prompt, answer, start = token_ids_of(turn)
        is_whole = prompt is not None and start <= len(before)
        whole = before[:start] + prompt if prompt is not None and is_whole else None
        if _is_broken(turn):
            breaks[id_of(turn)] = _first_difference(before, whole)
        known[request] = [] if whole is None or answer is None else whole + answer
    return breaks


def token_ids_of(span: ReadableSpan) -> tuple[list[int] | None, list[int] | None, int]:
    """Return a generation's prompt ids, its response ids, and the position of the first prompt id; None is unknown."""
    attributes = span.attributes or {}
    asked = parse_json(attributes.get(semconv.INPUT_VALUE))
    answered = parse_json(attributes.get(semconv.OUTPUT_VALUE))
    asked = asked if isinstance(asked, Mapping) else {}
    answered = answered if isinstance(answered, Mapping) else {}
    prompt = _ids(answered.get("prompt_ids")) or _ids(asked.get("prompt_ids"))
    response = next(
        (ids for key in ("response_ids", "token_ids") if (ids := _ids(answered.get(key))) is not None), None
    )
    start = asked.get("prompt_ids_start")
    return prompt, response, start if type(start) is int and start > 0 else 0


def _is_broken(span: ReadableSpan) -> bool:
    return (span.attributes or {}).get(semconv.PREFIX_BROKEN) is True


def _ids(value: Any) -> list[int] | None:
    if isinstance(value, list) and all(type(each) is int for each in value):
        return value
    return None


def _first_difference(before: Sequence[int], prompt: Sequence[int] | None) -> dict[str, int | None]:
    if not before or prompt is None:
        return {"at": None, "expected": None, "got": None}
    at = next((at for at, left, right in zip(count(), before, prompt, strict=False) if left != right), None)
    at = min(len(before), len(prompt)) if at is None else at
    return {
        "at": at,
        "expected": before[at] if at < len(before) else None,
        "got": prompt[at] if at < len(prompt) else None,
    }
