"""A conversation as the pages get it: each message once, with its span, turn, reasoning and tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.trace_tree import place_of
from otel_rollout.look.view.cut import Cutter
from otel_rollout.look.view.prefix_break import token_ids_of
from otel_rollout.look.view.turns import turn_numbers
from otel_rollout.messages.conversation import Utterance, conversation_of
from otel_rollout.messages.messages import ToolCall

__all__ = ["utterances"]

MAX_UTTERANCES: Final = 10_000
"""If a conversation is longer, its beginning and its end are shown."""
MAX_TOKEN_IDS: Final = 20_000


def utterances(
    spans: Sequence[ReadableSpan], cutter: Cutter, *, has_token_ids: bool = True
) -> tuple[list[dict[str, Any]], int]:
    """Return a trajectory's messages, and the number that is left out of their middle.

    Args:
        spans: Its spans.
        cutter: Cuts their texts.
        has_token_ids: Add the ids of generated tokens.
    """
    told = conversation_of(spans)
    left_out = max(0, len(told) - MAX_UTTERANCES)
    if left_out:
        told = told[: MAX_UTTERANCES // 2] + told[-MAX_UTTERANCES // 2 :]
    turns = turn_numbers(spans)
    seen: set[int] = set()
    records = []
    for each in told:
        span_id = place_of(each.span).span_id if each.span is not None else None
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
        "is_new_prompt": each.is_new_prompt,
        "reasoning": reasoning or None,
        "tokens": tokens,
        "token_ids": None if ids is None else ids[:MAX_TOKEN_IDS],
        "cut": cut + sum(call["cut"] for call in calls),
    }


def _call(call: ToolCall, cutter: Cutter) -> dict[str, Any]:
    arguments, cut = cutter.value(call.arguments if call.fields is None else call.fields)
    return {"name": call.name, "arguments": arguments, "call_id": call.call_id, "cut": cut}


def _tokens(span: ReadableSpan) -> dict[str, Any] | None:
    attributes = span.attributes or {}
    tokens = {
        "input": attributes.get(semconv.USAGE_INPUT_TOKENS),
        "output": attributes.get(semconv.USAGE_OUTPUT_TOKENS),
    }
    return None if tokens["input"] is None and tokens["output"] is None else tokens
