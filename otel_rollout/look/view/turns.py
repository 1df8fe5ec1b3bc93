"""The turns of a trajectory: its generations, except nested ones, in order."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.facts.trace_tree import place_of
from otel_rollout.messages.conversation import outermost

__all__ = ["turn_numbers", "turns_of"]


def turns_of(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    """Return the generations that are in no other generation, by start."""
    return outermost(sorted(spans, key=lambda span: span.start_time or 0), "LLM")


def turn_numbers(spans: Sequence[ReadableSpan]) -> dict[int, int]:
    """Return the number of each turn, from 1, by span id."""
    return {place_of(span).span_id: number for number, span in enumerate(turns_of(spans), 1)}
