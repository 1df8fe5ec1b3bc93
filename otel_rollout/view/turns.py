"""The turns of a trajectory: its generations, except nested ones, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.analysis.trace_tree import place_of

__all__ = ["turn_numbers", "turns_of"]


def turns_of(spans: Sequence[ReadableSpan]) -> list[ReadableSpan]:
    """Return the generations that are in no other generation, by start."""
    by_id = {place_of(span).span_id: span for span in spans}
    # A span's answer is kept, or a chain of 100,000 would be walked for each of its spans.
    inside: dict[int, bool] = {}

    def is_inside(span: ReadableSpan) -> bool:
        path: list[int] = []
        at, found = place_of(span).parent_id, False
        while at in by_id and at not in path[-1:]:
            if at in inside:
                found = inside[at]
                break
            if _is_generation(by_id[at]):
                found = True
                break
            path.append(at)
            if len(path) > len(by_id):
                break
            at = place_of(by_id[at]).parent_id
        inside.update(dict.fromkeys(path, found))
        return found

    turns = [span for span in spans if _is_generation(span) and not is_inside(span)]
    return sorted(turns, key=lambda span: span.start_time or 0)


def turn_numbers(spans: Sequence[ReadableSpan]) -> dict[int, int]:
    """Return the number of each turn, from 1, by span id."""
    return {place_of(span).span_id: number for number, span in enumerate(turns_of(spans), 1)}


def _is_generation(span: ReadableSpan) -> Any:
    return (span.attributes or {}).get(semconv.SPAN_KIND) == "LLM"
