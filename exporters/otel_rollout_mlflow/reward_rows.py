"""Rewards written into MLflow's table of assessments, many in one transaction."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from typing import Any, Final

from otel_rollout_mlflow.bulk_sql import Statements
from otel_rollout_mlflow.layouts import Layout
from otel_rollout_mlflow.store import REWARD_SOURCE, Feedback

__all__ = ["write_rewards"]

_COLUMNS: Final = (
    "assessment_id",
    "trace_id",
    "name",
    "assessment_type",
    "value",
    "created_timestamp",
    "last_updated_timestamp",
    "source_type",
    "source_id",
    "rationale",
    "valid",
    "assessment_metadata",
)


def write_rewards(statements: Statements, rewards: Sequence[Feedback], layout: Layout) -> list[Feedback]:
    """Upsert rewards; return those whose traces are not in the database.

    Args:
        statements: The transaction.
        rewards: The rewards; of several for one trace the latest counts.
        layout: The database's layout.
    """
    latest: dict[str, Feedback] = {}
    for reward in rewards:
        known = latest.get(reward.assessment_id)
        if known is None or known.time_ns <= reward.time_ns:
            latest[reward.assessment_id] = reward
    # Locked: a span that arrives meanwhile could move the trace's time, which the assessment repeats.
    query = "SELECT request_id, experiment_id, timestamp_ms FROM trace_info WHERE request_id IN"
    trace_ids = sorted({reward.trace_id for reward in latest.values()})
    traces = {found[0]: found[1:] for found in statements.rows(query, trace_ids, is_locking=True)}
    query = "SELECT assessment_id, assessment_metadata FROM assessments WHERE assessment_id IN"
    stored = dict(statements.rows(query, sorted(latest)))
    new = []
    for assessment_id in sorted(latest):
        reward = latest[assessment_id]
        if reward.trace_id not in traces:
            continue
        if assessment_id not in stored:
            new.append((*_row(reward), *(_numbers(reward, *traces[reward.trace_id]) if layout.has_columns else ())))
            continue
        metadata = json.loads(stored[assessment_id] or "{}")
        if reward.is_newer_than(metadata):
            _update(statements, reward, {**metadata, **reward.metadata}, layout)
    more = ("experiment_id", "trace_timestamp_ms", "aggregate_value", "is_numeric_value") if layout.has_columns else ()
    statements.insert("assessments", (*_COLUMNS, *more), new)
    return [reward for reward in rewards if reward.trace_id not in traces]


def _row(reward: Feedback) -> tuple[Any, ...]:
    moment = reward.time_ns // 1_000_000
    metadata = json.dumps(reward.metadata)
    value = json.dumps(reward.value)
    names = (reward.assessment_id, reward.trace_id, reward.name, "feedback", value)
    return (*names, moment, moment, "CODE", REWARD_SOURCE, reward.rationale or None, True, metadata)


def _numbers(reward: Feedback, experiment_id: int, timestamp_ms: int) -> tuple[Any, ...]:
    return experiment_id, timestamp_ms, *_aggregate(reward.value)


def _aggregate(value: float | bool | str) -> tuple[float | None, bool]:
    """Return the number of a value in MLflow's sums, and True if the value is one."""
    if isinstance(value, bool):
        return float(value), False
    if isinstance(value, str):
        return {"yes": 1.0, "no": 0.0}.get(value.strip().lower()), False
    return (float(value), True) if math.isfinite(value) else (None, False)


def _update(statements: Statements, reward: Feedback, metadata: dict[str, Any], layout: Layout) -> None:
    changes: dict[str, Any] = {
        "value": json.dumps(reward.value),
        "last_updated_timestamp": time.time_ns() // 1_000_000,
        "assessment_metadata": json.dumps(metadata),
    }
    if layout.has_columns:
        changes["aggregate_value"], changes["is_numeric_value"] = _aggregate(reward.value)
    if reward.rationale:
        changes["rationale"] = reward.rationale
    assignments = ", ".join(f"{statements.name(column)} = ?" for column in changes)
    statements.execute(
        f"UPDATE assessments SET {assignments} WHERE assessment_id = ?", (*changes.values(), reward.assessment_id)
    )
