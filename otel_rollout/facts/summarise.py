"""Summaries of trajectories: from their spans, and from the summaries of their parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.facts.amounts import sum_of
from otel_rollout.facts.span_rows import SpanRow, Totals, bound_tools, figures_of
from otel_rollout.facts.span_shapes import Shapes, shape_columns
from otel_rollout.facts.summary_builder import MAX_ERRORS, SummaryBuilder
from otel_rollout.facts.summary_columns import identity_of, summary_of
from otel_rollout.facts.trajectory_summary import TrajectorySummary
from otel_rollout.text.sanitize import INT64_MAX

__all__ = ["is_disjoint", "merge_summaries", "summarise_trajectory", "without_copies"]

_FACTS = ("reward", "advantage", "fate")
_SECONDS = ("llm_seconds", "tool_seconds", "reward_seconds", "waiting_seconds")


def summarise_trajectory(spans: Iterable[ReadableSpan]) -> TrajectorySummary:
    """Return the summary of a trajectory, or of a part of one.

    Args:
        spans: Its spans, of one trace, in any order; a span that comes twice counts once.

    Raises:
        ValueError: There is none.
    """
    known = {span.context.span_id: span for span in spans if span.context is not None}
    first = next(iter(known.values()), None)
    if first is None or first.context is None:
        raise ValueError("a trajectory has one span at least")
    builder = SummaryBuilder(first.context.trace_id)
    builder.add(known.values())
    return summary_of(identity_of(builder), builder.columns())


def merge_summaries(parts: Sequence[TrajectorySummary]) -> TrajectorySummary:
    """Return the summary of a trajectory from those of its parts, which have no span in common.

    It equals the summary of all spans if each part's `shape` has all of its spans; else durations, tokens and turns
    are sums over the parts.

    Args:
        parts: The summaries, of one trace, in any order.

    Raises:
        ValueError: There is none.
    """
    if len(parts) < 2:
        if not parts:
            raise ValueError("a trajectory has one part at least")
        return parts[0]
    parts = sorted(parts, key=lambda part: part.provenance.main)
    main = parts[0]
    facts = _latest_facts(parts)
    prompted = _best(parts, "prompt", "start_of_prompt", is_last=False)
    answered = _best(parts, "answer", "start_of_answer", is_last=True)
    finished = _best(parts, "finish_reason", "start_of_finish", is_last=True)
    names: dict[str, int] = {}
    rows = sorted(row for part in parts for row in _rows_of(part, names))
    start_time = min(part.start_time for part in parts)
    shape = Shapes(shape_columns(rows, list(names), start_time // 1000))
    changes: dict[str, Any] = {
        "start_time": start_time,
        "end_time": main.end_time if main.has_root else max(part.end_time for part in parts),
        "finish_reason": finished.finish_reason,
        **{name: facts[name][1] if name in facts else None for name in _FACTS},
        "reward_parts": {name[1:]: value for name, (_, value) in sorted(facts.items()) if name[0] == "."},
        "late": {name: at for name, (at, _) in sorted(facts.items()) if at > 0},
        "errors": _merged_errors(parts, rows, shape),
        "min_weights_version": min(_known(parts, "min_weights_version"), default=None),
        "max_weights_version": max(_known(parts, "max_weights_version"), default=None),
        "prompt": prompted.prompt,
        "answer": answered.answer,
        "shape": shape,
        "provenance": main.provenance._replace(
            start_of_prompt=prompted.provenance.start_of_prompt,
            start_of_answer=answered.provenance.start_of_answer,
            start_of_finish=finished.provenance.start_of_finish,
        ),
    }
    for name in ("unknown_tool_calls", "unparsed_tool_calls", "prefix_breaks", "spans", "bytes", "stored_bytes"):
        changes[name] = sum_of(getattr(part, name) for part in parts)
    root_id = main.provenance.main[3] if main.has_root else 0
    figures = figures_of(rows, list(names), root_id)
    changes["turn_hashes"] = figures.turn_hashes
    if len(rows) == changes["spans"]:
        changes |= zip(_SECONDS, figures.seconds, strict=True)
        changes |= {"tools": figures.tools, "repeated_calls": figures.repeated_calls}
        totals = figures.totals
    else:
        for name in _SECONDS:
            changes[name] = sum(getattr(part, name) for part in parts)
        changes["tools"] = bound_tools(pair for part in parts for pair in part.tools.items())
        changes["repeated_calls"] = max(figures.repeated_calls, *(part.repeated_calls for part in parts))
        known = [_known(parts, name) for name in Totals._fields]
        totals = Totals(*(sum_of(values) if values else None for values in known))
    if not main.provenance.has_totals:
        changes |= totals._asdict()
    return replace(main, **changes)


def _latest_facts(parts: Sequence[TrajectorySummary]) -> dict[str, tuple[int, Any]]:
    """Return the latest reward, advantage, fate and parts of the reward, with the time of each.

    Args:
        parts: The summaries, in the order of their first spans.
    """
    latest: dict[str, tuple[int, Any]] = {}
    for part in parts:
        known = {name: getattr(part, name) for name in _FACTS}
        known |= {f".{name}": value for name, value in part.reward_parts.items()}
        for name, value in known.items():
            at = part.late.get(name, 0)
            if value is not None and at >= latest.get(name, (0,))[0]:
                latest[name] = (at, value)
    return latest


def is_disjoint(parts: Sequence[TrajectorySummary]) -> bool:
    """Return True if no span is in two parts, as far as their shapes tell."""
    ids = [each.span_id for part in parts for each in part.shape]
    return len(set(ids)) == len(ids)


def without_copies(parts: Sequence[TrajectorySummary]) -> list[TrajectorySummary]:
    """Return the parts without those whose spans are all in parts before them.

    Args:
        parts: The parts of one trajectory; of two that have the same spans the first is kept.
    """
    kept: list[TrajectorySummary] = []
    known: set[str] = set()
    for part in parts:
        ids = {each.span_id for each in part.shape}
        # A shape has a bound: the spans beyond it may be new.
        if kept and ids <= known and len(part.shape) == part.spans:
            continue
        kept.append(part)
        known |= ids
    return kept


def _rows_of(part: TrajectorySummary, names: dict[str, int]) -> Iterable[SpanRow]:
    return part.shape.rows(part.start_time // 1000, names) if isinstance(part.shape, Shapes) else ()


def _merged_errors(parts: Sequence[TrajectorySummary], rows: Sequence[SpanRow], shape: Shapes) -> tuple[Any, ...]:
    """Return the first errors of all parts by time; those without a shape are last."""
    positions = {each.span_id: position for position, each in enumerate(shape)}
    starts = {row[2]: row[0] for row in rows}
    placed = []
    for part in parts:
        for error in part.errors:
            failed = part.shape_of(error)
            at = (starts[int(failed.span_id, 16)], int(failed.span_id, 16)) if failed else (INT64_MAX, 0)
            placed.append((at, error._replace(shape=positions.get(failed.span_id, -1) if failed else -1)))
    return tuple(error for _, error in sorted(placed)[:MAX_ERRORS])


def _best(parts: Sequence[TrajectorySummary], field: str, key: str, *, is_last: bool) -> TrajectorySummary:
    """Return the part whose value counts: the root's, else the first or the last generation's."""
    known = [part for part in parts if getattr(part, field)] or parts[:1]
    sign = -1 if is_last else 1

    def order(part: TrajectorySummary) -> tuple[bool, int, str]:
        at = getattr(part.provenance, key)
        return at != 0, sign * at, getattr(part, field) or ""

    return min(known, key=order)


def _known(parts: Sequence[TrajectorySummary], field: str) -> list[int]:
    return [value for part in parts if (value := getattr(part, field)) is not None]
