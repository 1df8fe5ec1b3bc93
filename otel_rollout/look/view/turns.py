"""The numbers of a trajectory's turns, and the turns whose prompt doesn't extend the turn before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.conversation import outermost
from otel_rollout.facts.trace_tree import place_of
from otel_rollout.messages import parse_json


def turns_of(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    """Return the generations that are in no other generation, by start."""
    return outermost(sorted(spans, key=lambda span: span.start_time or 0), "LLM")


def turn_numbers(spans: Sequence[ReadableSpan]) -> dict[int, int]:
    """Return the number of each turn, from 1, by span id."""
    return {place_of(span).span_id: number for number, span in enumerate(turns_of(spans), 1)}


def prefix_breaks(spans: Sequence[ReadableSpan]) -> dict[int, dict[str, int | None]]:
    """Return the breaks by span id: `at`, the position, and the ids `expected` and `got` there; None is unknown.

    A turn is compared with the last one before it of the same request, whose ids are known as a whole.
    """
    if not any(_is_broken(span) for span in spans):
        return {}
    breaks: dict[int, dict[str, int | None]] = {}
    known: dict[Any, list[int]] = {}
    for turn in turns_of(spans):
        request = (turn.attributes or {}).get(semconv.REQUEST_ID)
        before = known.get(request, [])
        prompt, answer, start = token_ids_of(turn)
        is_whole = prompt is not None and start <= len(before)
        whole = before[:start] + prompt if prompt is not None and is_whole else None
        if _is_broken(turn):
            breaks[place_of(turn).span_id] = _first_difference(before, whole)
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
