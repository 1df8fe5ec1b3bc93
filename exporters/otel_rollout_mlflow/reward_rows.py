"""Rewards written into MLflow's table of assessments, many in one transaction."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Final

from otel_rollout_mlflow.bulk_sql import Statements
from otel_rollout_mlflow.layouts import Layout
from otel_rollout_mlflow.store import REWARD_NAME, REWARD_SOURCE, Feedback

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
        known = latest.get(reward.trace_id)
        if known is None or known.time_ns <= reward.time_ns:
            latest[reward.trace_id] = reward
    ids = sorted(latest)
    # Locked: a span that arrives meanwhile could move the trace's time, which the assessment repeats.
    query = "SELECT request_id, experiment_id, timestamp_ms FROM trace_info WHERE request_id IN"
    traces = {found[0]: found[1:] for found in statements.rows(query, ids, is_locking=True)}
    query = "SELECT assessment_id, assessment_metadata FROM assessments WHERE assessment_id IN"
    stored = dict(statements.rows(query, sorted(latest[trace_id].assessment_id for trace_id in traces)))
    new = []
    for trace_id in sorted(traces):
        reward = latest[trace_id]
        if reward.assessment_id not in stored:
            new.append((*_row(reward), *(_numbers(reward, *traces[trace_id]) if layout.has_columns else ())))
            continue
        metadata = json.loads(stored[reward.assessment_id] or "{}")
        if reward.is_newer_than(metadata):
            _update(statements, reward, {**metadata, **reward.metadata}, layout)
    more = ("experiment_id", "trace_timestamp_ms", "aggregate_value", "is_numeric_value") if layout.has_columns else ()
    statements.insert("assessments", (*_COLUMNS, *more), new)
    return [reward for reward in rewards if reward.trace_id not in traces]


def _row(reward: Feedback) -> tuple[Any, ...]:
    moment = reward.time_ns // 1_000_000
    metadata = json.dumps(reward.metadata)
    value = json.dumps(reward.value)
    names = (reward.assessment_id, reward.trace_id, REWARD_NAME, "feedback", value)
    return (*names, moment, moment, "CODE", REWARD_SOURCE, True, metadata)


def _numbers(reward: Feedback, experiment_id: int, timestamp_ms: int) -> tuple[Any, ...]:
    return experiment_id, timestamp_ms, reward.value, True


def _update(statements: Statements, reward: Feedback, metadata: dict[str, Any], layout: Layout) -> None:
    changes = {
        "value": json.dumps(reward.value),
        "last_updated_timestamp": time.time_ns() // 1_000_000,
        "assessment_metadata": json.dumps(metadata),
    }
    if layout.has_columns:
        changes |= {"aggregate_value": reward.value, "is_numeric_value": True}
    assignments = ", ".join(f"{statements.name(column)} = ?" for column in changes)
    statements.execute(
        f"UPDATE assessments SET {assignments} WHERE assessment_id = ?", (*changes.values(), reward.assessment_id)
    )
