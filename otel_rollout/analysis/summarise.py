"""Summaries of trajectories: from their spans, and from the summaries of their parts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.analysis.content_hash import hash_of
from otel_rollout.analysis.first_lines import answer_of, prompt_of
from otel_rollout.analysis.span_record import (
    SpanRecord,
    count_of,
    error_type_of,
    is_unknown_tool,
    record_of,
    short_name,
    unparsed_calls_of,
)
from otel_rollout.analysis.trajectory_summary import Provenance, SpanError, SpanShape, ToolCounts, TrajectorySummary
from otel_rollout.export.reward_parts import REWARD, reward_parts
from otel_rollout.export.span_facts import reward_of
from otel_rollout.values.sanitize import INT64_MAX, fits_int64, replace_surrogates

__all__ = [
    "MAX_ERRORS",
    "MAX_HASHES",
    "MAX_SHAPES",
    "MAX_TOOLS",
    "OTHER_TOOLS",
    "merge_summaries",
    "summarise_trajectory",
]

MAX_SHAPES: Final = 512
MAX_ERRORS: Final = 8
MAX_TOOLS: Final = 64
MAX_HASHES: Final = 256
OTHER_TOOLS: Final = "…"
"""Has the calls of tools beyond the bound."""
MAX_TAG_CHARACTERS: Final = 1024
_WORKERS_KINDS: Final = ("LLM", "TOOL", "EVALUATOR")


def summarise_trajectory(spans: Iterable[ReadableSpan]) -> TrajectorySummary:
    """Return the summary of a trajectory, or of a part of one.

    Args:
        spans: Its spans, of one trace, in any order; a span that comes twice counts once.
    """
    known: dict[int, ReadableSpan] = {}
    for span in spans:
        if span.context is not None:
            known.setdefault(span.context.span_id, span)
    ordered = sorted(known.values(), key=lambda span: (_start_of(span), _id_of(span)))
    if not ordered:
        raise ValueError("a trajectory has a span at least")
    records = [record_of(span) for span in ordered]
    main = min(ordered, key=_rank)
    generations = [span for span, record in zip(ordered, records, strict=True) if record.kind == "LLM"]
    tools = [span for span, record in zip(ordered, records, strict=True) if record.kind == "TOOL"]
    root = main if main.parent is None else None
    attributes = (root.attributes or {}) if root is not None else {}
    prompt, start_of_prompt = _line(root, generations, prompt_of)
    answer, start_of_answer = _line(root, generations[::-1], answer_of)
    finish_reason, start_of_finish = _finish_reason(attributes, generations)
    reward, parts, end_of_reward = _rewards(root, ordered)
    totals = {
        key: count_of(attributes.get(key)) for key in (semconv.TURNS, semconv.INPUT_TOKENS, semconv.OUTPUT_TOKENS)
    }
    context = main.context
    assert context is not None  # noqa: S101 - those without one are left out above
    oldest, newest = _weights(root, generations)
    summary = TrajectorySummary(
        f"{context.trace_id:032x}",
        **_identity(main),
        start_time=_start_of(ordered[0]),
        end_time=max(map(_end_of, ordered)),
        has_root=root is not None,
        status=_status(root),
        finish_reason=finish_reason,
        reward=reward,
        reward_parts=parts,
        advantage=_number(attributes.get(semconv.ADVANTAGE)),
        fate=_text(attributes.get(semconv.FATE)),
        turns=totals[semconv.TURNS],
        input_tokens=totals[semconv.INPUT_TOKENS],
        output_tokens=totals[semconv.OUTPUT_TOKENS],
        unknown_tool_calls=sum(map(is_unknown_tool, tools)),
        unparsed_tool_calls=sum(map(unparsed_calls_of, generations)),
        errors=tuple(
            SpanError(record.name, record.kind, error_type_of(span), position if position < MAX_SHAPES else -1)
            for position, (span, record) in enumerate(zip(ordered, records, strict=True))
            if record.status == StatusCode.ERROR.value
        )[:MAX_ERRORS],
        error_type=(error_type_of(root) or None) if root is not None and _failed(root) else None,
        prefix_breaks=sum((span.attributes or {}).get(semconv.PREFIX_BROKEN) is True for span in ordered),
        min_weights_version=oldest,
        max_weights_version=newest,
        staleness=_integer(attributes.get(semconv.STALENESS)),
        dropped_spans=count_of(attributes.get(semconv.DROPPED_SPANS)) or 0,
        truncated_bytes=count_of(attributes.get(semconv.TRUNCATED_BYTES)) or 0,
        prompt=prompt,
        answer=answer,
        spans=len(ordered),
        provenance=Provenance(
            _rank(main),
            end_of_reward,
            start_of_prompt,
            start_of_answer,
            start_of_finish,
            any(total is not None for total in totals.values()),
        ),
    )
    return _with_records(summary, records)


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
            raise ValueError("a trajectory has a part at least")
        return parts[0]
    ordered = sorted(parts, key=lambda part: part.provenance.main)
    main = ordered[0]
    by_start = sorted(parts, key=lambda part: (part.start_time, part.provenance.main))
    rewarded = sorted(ordered, key=lambda part: part.provenance.end_of_reward)
    prompted = _first(ordered, "prompt", "start_of_prompt")
    answered = _first(ordered, "answer", "start_of_answer", is_last=True)
    finished = _first(ordered, "finish_reason", "start_of_finish", is_last=True)
    late = next((part for part in reversed(rewarded) if part.reward is not None), main)
    records = sorted(
        (record for part in parts for record in _records_of(part)), key=lambda record: (record.start, record.span_id)
    )
    positions = {record.span_id: position for position, record in enumerate(records[:MAX_SHAPES])}
    errors = [
        (error, part.shape[error.shape].span_id if error.shape >= 0 else "")
        for part in by_start
        for error in part.errors
    ]
    times = {record.span_id: (record.start, record.span_id) for record in records}
    errors.sort(key=lambda found: times.get(found[1], (INT64_MAX, "")))
    summary = replace(
        main,
        start_time=min(part.start_time for part in parts),
        end_time=max(part.end_time for part in parts),
        finish_reason=finished.finish_reason,
        reward=late.reward,
        reward_parts={name: value for part in rewarded for name, value in part.reward_parts.items()},
        unknown_tool_calls=sum(part.unknown_tool_calls for part in parts),
        unparsed_tool_calls=sum(part.unparsed_tool_calls for part in parts),
        errors=tuple(error._replace(shape=positions.get(span_id, -1)) for error, span_id in errors[:MAX_ERRORS]),
        prefix_breaks=sum(part.prefix_breaks for part in parts),
        min_weights_version=min(_known(part.min_weights_version for part in parts), default=None),
        max_weights_version=max(_known(part.max_weights_version for part in parts), default=None),
        prompt=prompted.prompt,
        answer=answered.answer,
        spans=sum(part.spans for part in parts),
        bytes=sum(part.bytes for part in parts),
        stored_bytes=sum(part.stored_bytes for part in parts),
        provenance=main.provenance._replace(
            end_of_reward=max(part.provenance.end_of_reward for part in parts),
            start_of_prompt=prompted.provenance.start_of_prompt,
            start_of_answer=answered.provenance.start_of_answer,
            start_of_finish=finished.provenance.start_of_finish,
        ),
    )
    return _with_records(summary, records, parts if len(records) < summary.spans else ())


def _with_records(
    summary: TrajectorySummary, records: Sequence[SpanRecord], parts: Sequence[TrajectorySummary] = ()
) -> TrajectorySummary:
    """Return a summary with everything that follows from the spans' records.

    Args:
        summary: The summary.
        records: The records by start.
        parts: The summaries of the parts if `records` lacks some.
    """
    outermost = {kind: _outermost(records, kind) for kind in ("LLM", "TOOL")}
    calls = outermost["TOOL"]
    repeats = Counter(record.call for record in calls if record.call)
    start = summary.start_time // 1000
    positions = {record.span_id: position for position, record in enumerate(records[:MAX_SHAPES])}
    changes: dict[str, Any] = {
        "repeated_calls": max(repeats.values(), default=0),
        "turn_hashes": _turn_hashes(records[:MAX_SHAPES], outermost),
        "shape": tuple(
            SpanShape(
                record.name,
                record.kind,
                record.start - start,
                record.end - record.start,
                record.status,
                positions.get(record.parent_id, -1),
                record.span_id,
                record.parent_id,
                record.content,
                record.call,
                record.input_tokens,
                record.output_tokens,
            )
            for record in records[:MAX_SHAPES]
        ),
    }
    if parts:
        for name in ("llm_seconds", "tool_seconds", "reward_seconds", "waiting_seconds"):
            changes[name] = sum(getattr(part, name) for part in parts)
        changes["repeated_calls"] = max(changes["repeated_calls"], *(part.repeated_calls for part in parts))
        tools: Counter[str] = Counter()
        failed: Counter[str] = Counter()
        for part in parts:
            for name, counts in part.tools.items():
                tools[name] += counts.calls
                failed[name] += counts.errors
    else:
        tools = Counter(record.name for record in calls)
        failed = Counter(record.name for record in calls if record.status == StatusCode.ERROR.value)
        changes |= _seconds(summary, records)
    changes["tools"] = _bounded(tools, failed)
    if not summary.provenance.has_totals:
        generations = outermost["LLM"]
        if parts:
            for name in ("turns", "input_tokens", "output_tokens"):
                known = [value for part in parts if (value := getattr(part, name)) is not None]
                changes[name] = sum(known) if known else None
        else:
            changes["turns"] = len(generations) or None
            for name in ("input_tokens", "output_tokens"):
                known = [value for record in generations if (value := getattr(record, name)) is not None]
                changes[name] = sum(known) if known else None
    return replace(summary, **changes)


def _records_of(part: TrajectorySummary) -> list[SpanRecord]:
    start = part.start_time // 1000
    return [
        SpanRecord(
            shape.span_id,
            shape.parent_id,
            shape.name,
            shape.kind,
            start + shape.offset,
            start + shape.offset + shape.duration,
            shape.status,
            shape.content,
            shape.call,
            shape.input_tokens,
            shape.output_tokens,
        )
        for shape in part.shape
    ]


def _outermost(records: Sequence[SpanRecord], kind: str) -> list[SpanRecord]:
    """Return the records of a kind that are not inside another of that kind."""
    known = {record.span_id: record for record in records}
    inside: dict[str, bool] = {}

    def is_inside(record: SpanRecord) -> bool:
        path: list[str] = []
        found = False
        parent = known.get(record.parent_id)
        while parent is not None:
            if parent.kind == kind:
                found = True
                break
            if parent.span_id in inside:
                found = inside[parent.span_id]
                break
            inside[parent.span_id] = False
            path.append(parent.span_id)
            parent = known.get(parent.parent_id)
        for span_id in path:
            inside[span_id] = found
        return found

    return [record for record in records if record.kind == kind and not is_inside(record)]


def _turn_hashes(records: Sequence[SpanRecord], outermost: Mapping[str, Sequence[SpanRecord]]) -> tuple[str, ...]:
    """Return a hash for each generation: of its output, and of the results of the tools before the next one."""
    counted = {record.span_id for found in outermost.values() for record in found}
    turns: list[list[str]] = []
    for record in records:
        if record.span_id in counted:
            if record.kind == "LLM":
                turns.append([record.content])
            elif turns:
                turns[-1].append(record.content or f"error {record.status}")
    return tuple(hash_of("\0".join(turn)) if turn[0] else "" for turn in turns[:MAX_HASHES])


def _seconds(summary: TrajectorySummary, records: Sequence[SpanRecord]) -> dict[str, float]:
    spent = {kind: _union((r.start, r.end) for r in records if r.kind == kind) for kind in _WORKERS_KINDS}
    waiting = 0.0
    root = next(
        (record for record in records if summary.has_root and record.span_id == summary.provenance.main[3]), None
    )
    if root is not None:
        busy = ((r.start, r.end) for r in records if r.kind in _WORKERS_KINDS)
        inside = [(max(start, root.start), min(end, root.end)) for start, end in busy]
        waiting = (root.end - root.start) / 1e6 - _union((start, end) for start, end in inside if start < end)
    return {
        "llm_seconds": spent["LLM"],
        "tool_seconds": spent["TOOL"],
        "reward_seconds": spent["EVALUATOR"],
        "waiting_seconds": waiting,
    }


def _union(intervals: Iterable[tuple[int, int]]) -> float:
    """Return the seconds that intervals in microseconds cover."""
    covered, last = 0, 0
    for start, end in sorted(intervals):
        covered += max(0, end - max(start, last))
        last = max(last, end)
    return covered / 1e6


def _bounded(calls: Counter[str], failed: Counter[str]) -> dict[str, ToolCounts]:
    names = sorted(calls, key=lambda name: (name == OTHER_TOOLS, -calls[name], name))
    tools = {name: ToolCounts(calls[name], failed[name]) for name in names[:MAX_TOOLS]}
    if len(names) > MAX_TOOLS:
        rest = names[MAX_TOOLS - 1 :]
        tools.pop(names[MAX_TOOLS - 1])
        tools[OTHER_TOOLS] = ToolCounts(sum(calls[name] for name in rest), sum(failed[name] for name in rest))
    return tools


def _first(parts: Sequence[TrajectorySummary], field: str, key: str, *, is_last: bool = False) -> TrajectorySummary:
    """Return the part whose value counts: the root's, else the first generation's, or the last one's."""
    known = [part for part in parts if getattr(part, field)]
    sign = -1 if is_last else 1
    return min(
        known or parts,
        key=lambda part: (getattr(part.provenance, key) != 0, sign * getattr(part.provenance, key), not part.has_root),
    )


def _known(values: Iterable[int | None]) -> list[int]:
    return [value for value in values if value is not None]


def _rank(span: ReadableSpan) -> tuple[int, int, int, str]:
    """Return the sort key by which the first span has a trajectory's identity."""
    has_no_step = type((span.attributes or {}).get(semconv.STEP)) is not int
    return int(span.parent is not None), int(has_no_step), _start_of(span), _id_of(span)


def _identity(main: ReadableSpan) -> dict[str, Any]:
    attributes, resource = main.attributes or {}, main.resource.attributes
    return {
        "step": _integer(attributes.get(semconv.STEP)),
        "sample_index": _tag(attributes.get(semconv.SAMPLE_INDEX)),
        "rollout_n": _tag(attributes.get(semconv.ROLLOUT_N)),
        "validate": attributes.get(semconv.VALIDATE) is True,
        "experiment_name": _text(attributes.get(semconv.EXPERIMENT_NAME)),
        "project_name": _text(resource.get(semconv.PROJECT_NAME)),
        "run_id": _text(resource.get(semconv.RUN_ID)),
        "service_name": _text(resource.get(semconv.SERVICE_NAME)),
        "name": short_name(main.name),
    }


def _status(root: ReadableSpan | None) -> str | None:
    if root is None:
        return None
    return _text((root.attributes or {}).get(semconv.STATUS)) or ("error" if _failed(root) else None)


def _line(root: ReadableSpan | None, generations: Sequence[ReadableSpan], read: Any) -> tuple[str, int]:
    """Return the first line that is found, on the root or in one of the generations, and the start of that one."""
    if root is not None and (line := read(root)):
        return line, 0
    return next(((line, _start_of(span)) for span in generations if (line := read(span))), ("", 0))


def _finish_reason(attributes: Mapping[str, Any], generations: Sequence[ReadableSpan]) -> tuple[str | None, int]:
    if reason := _text(attributes.get(semconv.FINISH_REASON)):
        return reason, 0
    for span in reversed(generations):
        reasons = (span.attributes or {}).get(semconv.FINISH_REASONS)
        if isinstance(reasons, Sequence) and reasons:
            last = reasons if isinstance(reasons, str) else reasons[-1]
            if reason := _text(last):
                return reason, _start_of(span)
    return None, 0


def _rewards(root: ReadableSpan | None, spans: Sequence[ReadableSpan]) -> tuple[float | None, dict[str, float], int]:
    """Return the reward and its parts, of which a late one counts, and the end of the last span that has one."""
    given = [
        span
        for span in spans
        if (attributes := span.attributes) and (semconv.REWARD in attributes or semconv.REWARD_PARTS in attributes)
    ]
    given.sort(key=lambda span: (span is not root, _end_of(span), _id_of(span)))
    reward: float | None = None
    parts: dict[str, float] = {}
    end = 0
    for span in given:
        if (found := reward_of(span)) is not None:
            reward = found
        parts |= {
            part.name: float(part.value)
            for part in reward_parts(span)
            if part.name != REWARD and isinstance(part.value, (int, float))
        }
        end = 0 if span is root else _end_of(span)
    return reward, parts, end


def _weights(root: ReadableSpan | None, generations: Sequence[ReadableSpan]) -> tuple[int | None, int | None]:
    spans = [*generations, *([root] if root is not None else ())]
    oldest = _known(_integer((span.attributes or {}).get(semconv.MIN_WEIGHTS_VERSION)) for span in spans)
    newest = _known(_integer((span.attributes or {}).get(semconv.MAX_WEIGHTS_VERSION)) for span in spans)
    return min(oldest, default=None), max(newest, default=None)


def _failed(span: ReadableSpan) -> bool:
    return span.status.status_code is StatusCode.ERROR


def _start_of(span: ReadableSpan) -> int:
    return min(span.start_time or 0, INT64_MAX)


def _end_of(span: ReadableSpan) -> int:
    return min(span.end_time or 0, INT64_MAX)


def _id_of(span: ReadableSpan) -> str:
    return f"{span.context.span_id:016x}" if span.context else ""


def _integer(value: Any) -> int | None:
    return value if type(value) is int and fits_int64(value) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if fits_int64(int(value) if math.isfinite(value) else 2**64) else None


def _text(value: Any) -> str | None:
    return replace_surrogates(value[:MAX_TAG_CHARACTERS]) if isinstance(value, str) and value else None


def _tag(value: Any) -> int | str | None:
    return _integer(value) if isinstance(value, int) else _text(value)
