"""A span as the pages get it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.facts.trace_tree import error_of, place_of
from otel_rollout.look.view.cut import Cutter
from otel_rollout.look.view.prefix_break import prefix_breaks
from otel_rollout.look.view.turns import turn_numbers

__all__ = ["span_id_of", "span_record", "span_records"]

MAX_SPANS: Final = 10_000
"""If there are more, the first and the last spans are listed."""
STATUSES: Final = {StatusCode.UNSET: "unset", StatusCode.OK: "ok", StatusCode.ERROR: "error"}


def span_id_of(span: ReadableSpan) -> str:
    """Return a span's id, 16 hexadecimal digits."""
    return f"{place_of(span).span_id:016x}"


def span_records(spans: Sequence[ReadableSpan], cutter: Cutter) -> tuple[list[dict[str, Any]], int]:
    """Return a trajectory's spans by start, and the number of those that are left out of its middle.

    Args:
        spans: All of them.
        cutter: Cuts their attributes.
    """
    turns, breaks = turn_numbers(spans), prefix_breaks(spans)
    ordered = sorted(spans, key=lambda span: (span.start_time or 0, span.parent is not None))
    left_out = max(0, len(ordered) - MAX_SPANS)
    if left_out:
        ordered = ordered[: MAX_SPANS // 2] + ordered[-MAX_SPANS // 2 :]
    return [span_record(span, cutter, turns, breaks) for span in ordered], left_out


def span_record(
    span: ReadableSpan, cutter: Cutter, turns: Mapping[int, int], breaks: Mapping[int, Mapping[str, int | None]]
) -> dict[str, Any]:
    """Return a span.

    Args:
        span: The span.
        cutter: Cuts its attributes and events.
        turns: The numbers of the trajectory's turns by span id.
        breaks: Its prefix breaks by span id.
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
        "turn": turns.get(place.span_id),
        "prefix_break": breaks.get(place.span_id),
    }


def _cut(attributes: Mapping[str, Any], cutter: Cutter) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the attributes, and the number of characters cut from each truncated one."""
    kept, cuts = {}, {}
    for key, value in attributes.items():
        kept[key], cut = cutter.value(value)
        if cut:
            cuts[key] = cut
    return kept, cuts
