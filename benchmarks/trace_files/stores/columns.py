"""The columns that a span has in a table: what is asked for has one of its own, the rest is one JSON text."""

from __future__ import annotations

from typing import Any, Final

import orjson
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv

PROMOTED: Final = {
    semconv.STEP: "step",
    semconv.SAMPLE_INDEX: "sample_index",
    semconv.ROLLOUT_N: "rollout_n",
    semconv.VALIDATE: "validate",
    semconv.EXPERIMENT_NAME: "experiment_name",
    semconv.STATUS: "status",
    semconv.REWARD: "reward",
    semconv.INPUT_VALUE: "input",
    semconv.OUTPUT_VALUE: "output",
}
"""Which attributes have a column, and its name."""

COLUMNS: Final = (
    "trace_id",
    "span_id",
    "parent_span_id",
    "name",
    "kind",
    "start_time",
    "end_time",
    "status_code",
    *PROMOTED.values(),
    "attributes",
)

SPANS: Final = f"SELECT name, start_time, end_time, {', '.join(PROMOTED.values())}, attributes FROM spans "
"""Reads whole spans; a condition follows."""
ROOTS: Final = (
    "SELECT trace_id, sample_index, rollout_n, status, reward, start_time, end_time FROM spans "
    "WHERE step = ? AND parent_span_id IS NULL"
)
TRAJECTORY: Final = SPANS + "WHERE step = ? AND sample_index = ? AND rollout_n = ? ORDER BY start_time"
STEP: Final = SPANS + "WHERE step = ?"
GROUPS: Final = (
    "SELECT step, sample_index, count(*), avg(reward) FROM spans WHERE parent_span_id IS NULL "
    "GROUP BY step, sample_index"
)


def row_of(span: ReadableSpan) -> tuple[Any, ...]:
    """Return a span's values in the order of COLUMNS."""
    context, parent = span.context, span.parent
    assert context is not None
    attributes: dict[str, Any] = dict(span.attributes or {})
    promoted = [attributes.pop(key, None) for key in PROMOTED]
    return (
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{parent.span_id:016x}" if parent is not None else None,
        span.name,
        span.kind.value + 1,
        span.start_time,
        span.end_time,
        span.status.status_code.value,
        *promoted,
        orjson.dumps(attributes).decode(),
    )


def attributes_of(row: tuple[Any, ...]) -> dict[str, Any]:
    """Return the attributes of a row that SPANS selected, its JSON text parsed."""
    promoted = {key: value for key, value in zip(PROMOTED, row[3:], strict=False) if value is not None}
    return promoted | row[-1]


def parsed(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows that SPANS selected with their last column parsed, as whoever wants the spans does."""
    return [(*row[:-1], orjson.loads(row[-1])) for row in rows]
