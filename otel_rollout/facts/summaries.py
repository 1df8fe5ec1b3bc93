"""Summaries of trajectories: from their spans, from the facts in an index, and from lines of late annotations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from otel_rollout.facts.amounts import sum_of
from otel_rollout.facts.json_types import readers_of
from otel_rollout.facts.reward_parts import LATEST, Dated
from otel_rollout.facts.table import COLUMNS, DEFAULTS, FACTS, TrajectorySummary

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

_NOT_LATE: Final = tuple(each.name for each in FACTS if each.merge == "main" and each.name in COLUMNS)
"""The facts that the span of a late annotation lacks, except for its service."""
_READERS: Final = {name: readers_of(TrajectorySummary)[name] for name in COLUMNS}


def summarise_trajectory(spans: Iterable[ReadableSpan]) -> TrajectorySummary:
    """Return the summary of a trajectory, or of a part of one.

    Args:
        spans: Its spans, of one trace, in any order; a span that comes twice counts once.

    Raises:
        ValueError: There is none.
    """
    # Lists of what an index has need neither.
    from otel_rollout.facts.builder import Collected, SummaryBuilder
    from otel_rollout.facts.histories import Histories

    known = {span.context.span_id: span for span in spans if span.context is not None}
    first = next(iter(known.values()), None)
    if first is None or first.context is None:
        raise ValueError("a trajectory has one span at least")
    builder = SummaryBuilder(first.context.trace_id)
    # As the writer has them.
    ordered = sorted(known.values(), key=lambda span: (span.parent is None, span.end_time or 0))
    builder.add(ordered)
    return TrajectorySummary(**Collected(builder, lambda: Histories(ordered)).facts)


def summary_of_json(identity: Mapping[str, Any], facts: bytes) -> TrajectorySummary:
    """Return the summary of facts in JSON; those that are missing have their defaults.

    Args:
        identity: The fields that `facts` lacks.
        facts: An object, which another program may have written.

    Raises:
        ValueError: A fact has another form.
    """
    try:
        given = orjson.loads(facts)
        values = {name: _READERS[name](value) for name, value in given.items() if name in _READERS}
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"no summary: {error}") from error
    if any(counts.errors > counts.calls for counts in values.get("tools", {}).values()):
        raise ValueError("tools has another form")
    return TrajectorySummary(**identity, **values)


def merge_late(parts: Sequence[TrajectorySummary]) -> TrajectorySummary | None:
    """Return the summary of a trajectory from the summary with its root and the summaries of late annotations.

    It equals the summary of all spans. None if a part has other facts: then the spans must be read.

    Args:
        parts: The summaries, of one trace, which have no span in common, in any order.
    """
    main, *late = sorted(parts, key=lambda part: (not part.has_root, part.start_time))
    if not main.has_root or not all(map(_is_late, late)):
        return None
    ordered = [main, *late]
    latest = _latest_facts(ordered)
    joined: dict[str, Any] = {
        each.name: sum_of(getattr(part, each.name) for part in ordered) for each in FACTS if each.merge == "sum"
    }
    joined |= {name: latest[name].value if name in latest else None for name in LATEST}
    joined["start_time"] = min(part.start_time for part in ordered)
    joined["reward_parts"] = {name[1:]: value for name, (_, value) in sorted(latest.items()) if name[0] == "."}
    joined["late"] = {name: at for name, (at, _) in sorted(latest.items()) if at > 0}
    return replace(main, **joined)


def _is_late(part: TrajectorySummary) -> bool:
    return (
        not part.has_root
        and bool(part.late)
        and all(getattr(part, name) == DEFAULTS[name] for name in _NOT_LATE if name not in ("service_name", "host"))
    )


def _latest_facts(parts: Sequence[TrajectorySummary]) -> dict[str, Dated]:
    """Return the latest reward, facts of training and parts of the reward."""
    latest: dict[str, Dated] = {}
    for part in parts:
        known = {name: getattr(part, name) for name in LATEST}
        known |= {f".{name}": value for name, value in part.reward_parts.items()}
        for name, value in known.items():
            if value is not None:
                fact = Dated(part.late.get(name, 0), value)
                latest[name] = max(latest.get(name, fact), fact)
    return latest
