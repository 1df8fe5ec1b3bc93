"""Translates the rows of a batch's spans to rows of their traces: pure functions.

A trace that is in the database already is merged with its row there, which the writer has locked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

from otel_rollout import semconv
from otel_rollout_mlflow.layouts import COSTS, Layout
from otel_rollout_mlflow.mlflow_functions import MlflowFunctions
from otel_rollout_mlflow.payloads import INPUTS, OUTPUTS
from otel_rollout_mlflow.span_rows import SpanRow, parsed_text
from otel_rollout_mlflow.translate import TRACE_NAME, USER_ID

__all__ = [
    "FINALIZED",
    "LOCATION",
    "LOCATION_IN_DATABASE",
    "SESSION",
    "USER",
    "Node",
    "StoredTrace",
    "TraceRows",
    "trace_rows",
]

LOCATION: Final = "mlflow.trace.spansLocation"
LOCATION_IN_DATABASE: Final = "TRACKING_STORE"
ARTIFACTS: Final = "mlflow.artifactLocation"
NAME_TAG: Final = "mlflow.traceName"
FINALIZED: Final = "mlflow.trace.infoFinalized"
SESSION: Final = "mlflow.trace.session"
USER: Final = "mlflow.trace.user"
USAGE_KEY: Final = "mlflow.trace.tokenUsage"
COST_KEY: Final = "mlflow.trace.cost"

_UNSETTLED: Final = ("IN_PROGRESS", "TRACE_STATE_UNSPECIFIED", "STATE_UNSPECIFIED")
_MAX_INT64: Final = 2**63 - 1


class Node(NamedTuple):
    """A span in the tree over which token usage and cost are summed."""

    span_id: str
    parent_id: str | None
    usage: dict[str, Any] | None
    cost: dict[str, Any] | None


@dataclass(frozen=True)
class StoredTrace:
    """A trace that is in the database.

    Args:
        columns: Its row of `trace_info`, by column.
        has_location: It has the tag with the place of its spans.
        has_session: Its metadata has a session.
        has_user: Its metadata has a user.
        nodes: Its stored spans; needed only if spans with usage or cost are added.
    """

    columns: Mapping[str, Any]
    has_location: bool = True
    has_session: bool = False
    has_user: bool = False
    nodes: Sequence[Node] = ()


@dataclass
class TraceRows:
    """The rows of one trace.

    Args:
        info: Its row of `trace_info`, by column.
        is_new: The row isn't in the database yet.
        is_moved: Its time became earlier.
        tags: Rows of `trace_tags`.
        metadata: Rows of `trace_request_metadata`.
        metrics: Rows of `trace_metrics`.
        nodes: All of its spans, as far as they are known.
    """

    info: dict[str, Any]
    is_new: bool
    is_moved: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)


def nodes_of(rows: Iterable[SpanRow]) -> list[Node]:
    """Return the nodes of a batch's spans."""
    return [Node(row.span_id, row.parent_id, row.usage, row.cost) for row in rows]


def trace_rows(
    trace_id: str,
    experiment_id: int,
    artifacts: str,
    rows: Sequence[SpanRow],
    tags: Mapping[str, str],
    stored: StoredTrace | None,
    layout: Layout,
    functions: MlflowFunctions,
) -> TraceRows:
    """Return the rows of one trace.

    Args:
        trace_id: MLflow's id of the trace.
        experiment_id: The experiment of a new trace.
        artifacts: The artifact location of a new trace.
        rows: The rows of its spans in this batch.
        tags: Its tags.
        stored: The trace in the database; None if there is none.
        layout: The database's layout.
        functions: MLflow's functions.
    """
    found = TraceRows(_times(trace_id, experiment_id, rows, stored, layout), is_new=stored is None)
    info = found.info
    found.is_moved = stored is not None and info["timestamp_ms"] < stored.columns["timestamp_ms"]
    root = next((row for row in rows if row.parent_id is None), None)
    if info["status"] in _UNSETTLED and root is not None:
        info["status"] = "ERROR" if root.columns[6] == "ERROR" else "OK"
    if stored is None:
        found.tags[ARTIFACTS] = artifacts
    if stored is None or not stored.has_location:
        found.tags[LOCATION] = LOCATION_IN_DATABASE
    found.tags |= tags
    # With several roots the last one is MLflow's.
    for row in reversed(rows):
        if row.parent_id is None:
            _previews(info, row.attributes, functions)
            if TRACE_NAME in row.attributes:
                name = str(parsed_text(row.attributes[TRACE_NAME]))
                if layout.has_columns:
                    info["trace_name"] = name
                else:
                    found.tags[NAME_TAG] = name
            break
    _session_and_user(found, rows, stored, layout)
    batch = nodes_of(rows)
    ids = {node.span_id for node in batch}
    found.nodes = [*batch, *(node for node in (stored.nodes if stored else ()) if node.span_id not in ids)]
    if any(node.usage is not None for node in batch):
        _add_usage(found, layout)
    if any(node.cost is not None for node in batch):
        _add_cost(found, layout)
    return found


def _times(
    trace_id: str, experiment_id: int, rows: Sequence[SpanRow], stored: StoredTrace | None, layout: Layout
) -> dict[str, Any]:
    start = min(row.columns[7] for row in rows) // 1_000_000
    ends = [row.columns[8] for row in rows if row.columns[8] is not None]
    end = max(ends) // 1_000_000 if ends else None
    if stored is None:
        empty: dict[str, Any] = dict.fromkeys(layout.trace_columns)
        return empty | {
            "request_id": trace_id,
            "experiment_id": experiment_id,
            "timestamp_ms": start,
            "execution_time_ms": None if end is None else end - start,
            "status": "IN_PROGRESS",
            "db_payload_generation": 1,
        }
    info = dict(stored.columns)
    known_start, known_time = info["timestamp_ms"], info["execution_time_ms"]
    info["timestamp_ms"] = min(start, known_start)
    if end is not None:
        if known_time is not None:
            end = max(end, known_start + known_time)
        info["execution_time_ms"] = end - info["timestamp_ms"]
    info["db_payload_generation"] += 1
    return info


def _previews(info: dict[str, Any], attributes: Mapping[str, str], functions: MlflowFunctions) -> None:
    try:
        for column, key, role in (("request_preview", INPUTS, "user"), ("response_preview", OUTPUTS, "assistant")):
            text = attributes.get(key)
            if info[column] is None and text:
                # PostgreSQL refuses NUL, and with it the whole batch.
                info[column] = (functions.preview(text, role) or "").replace("\x00", "\ufffd") or None
    except Exception:  # noqa: S110 - as MLflow does: a preview that can't be made is left out
        pass


def _session_and_user(found: TraceRows, rows: Sequence[SpanRow], stored: StoredTrace | None, layout: Layout) -> None:
    session = user = None
    for row in rows:
        session = session or row.attributes.get(semconv.SESSION_ID) or row.attributes.get(semconv.CONVERSATION_ID)
        user = user or row.attributes.get(USER_ID)
    if session:
        text = parsed_text(session)
        if not layout.has_columns:
            if stored is None or not stored.has_session:
                found.metadata[SESSION] = text
        elif found.info["session_id"] is None:
            found.info["session_id"] = text
    if user and (stored is None or not stored.has_user):
        found.metadata[USER] = parsed_text(user)


def _add_usage(found: TraceRows, layout: Layout) -> None:
    if layout.sums_flatly:
        usages = [node.usage for node in found.nodes if node.usage]
        total = {
            key: sum(usage.get(key, 0) for usage in usages)
            for key in layout.token_keys
            if any(key in usage for usage in usages)
        }
    else:
        total = _tree_sum(
            [(node.span_id, node.parent_id, node.usage) for node in found.nodes],
            dict.fromkeys(layout.token_keys[:3], 0),
            layout.token_keys[3:],
        )
    if layout.has_columns:
        counts = {key: _count(total.get(key)) for key in layout.token_keys}
        found.info |= {key: count for key, count in counts.items() if count is not None}
        return
    found.metadata[USAGE_KEY] = json.dumps(total)
    found.metrics |= {key: float(total[key]) for key in layout.token_keys if total.get(key) is not None}


def _add_cost(found: TraceRows, layout: Layout) -> None:
    if layout.sums_flatly:
        costs = [node.cost for node in found.nodes if node.cost]
        total = {key: sum((cost.get(key, 0.0) for cost in costs), 0.0) for key in COSTS}
    else:
        total = _tree_sum(
            [(node.span_id, node.parent_id, node.cost) for node in found.nodes], dict.fromkeys(COSTS, 0.0), ()
        )
    if layout.has_columns:
        found.info |= total
    else:
        found.metadata[COST_KEY] = json.dumps(total)


def _tree_sum(
    nodes: Sequence[tuple[str, str | None, dict[str, Any] | None]], start: dict[str, Any], optional: Sequence[str]
) -> dict[str, Any]:
    """Return the sums over the nodes that have no ancestor with values, as MLflow sums them.

    Instrumentations that put a total on a parent would otherwise have it counted twice.
    """
    totals = dict(start)
    ids = {span_id for span_id, _, _ in nodes}
    children: dict[str, list[tuple[str, dict[str, Any] | None]]] = {}
    stack: list[tuple[str, dict[str, Any] | None, bool]] = []
    for span_id, parent_id, data in nodes:
        if parent_id and parent_id in ids:
            children.setdefault(parent_id, []).append((span_id, data))
        else:
            stack.append((span_id, data, False))
    while stack:
        span_id, data, is_counted = stack.pop()
        if data is not None and not is_counted:
            for key, nothing in start.items():
                totals[key] += data.get(key, nothing)
            for key in optional:
                if key in data:
                    totals[key] = totals.get(key, 0) + data[key]
        is_counted = is_counted or data is not None
        stack += [(child, found, is_counted) for child, found in children.get(span_id, ())]
    return totals


def _count(value: Any) -> int | None:
    if value is None or isinstance(value, bool):
        return None
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    if not number.is_finite() or number != number.to_integral_value() or abs(number) > _MAX_INT64:
        return None
    return int(number)
