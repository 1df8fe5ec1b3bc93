"""Batches of spans and rewards written into MLflow's tables, each in one transaction.

Traces are locked in the order of their ids before anything of theirs is written, so several writers wait for each
other in one direction. A batch that is written twice leaves the tables as they were, but for a counter.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from weakref import finalize

from mlflow.store.tracking.dbmodels.models import SqlAssessments
from mlflow.tracing.constant import SpanAttributeKey, TraceMetadataKey, TraceTagKey
from opentelemetry.sdk.trace import ReadableSpan
from sqlalchemy import select

from otel_rollout.export.recent import RecentDict
from otel_rollout.facts.reward_parts import REWARD
from otel_rollout_mlflow import bulk_rows
from otel_rollout_mlflow.bulk_rows import SpanRow, TraceRows, is_counted, nodes_of, span_row, trace_rows
from otel_rollout_mlflow.bulk_sql import bulk_engine, in_transaction, stored_rows, upsert
from otel_rollout_mlflow.mlflow_store import assessment_of
from otel_rollout_mlflow.payloads import preview_with_reward
from otel_rollout_mlflow.store import Feedback, check_experiment
from otel_rollout_mlflow.translate import TRACE_NAME, mlflow_trace_id, stored_spans

REVISIONS: Final = {
    "6f8d9c3b2a1e": "3.15",
    "b7e2c1a4d9f3": "3.16",
    "dc11669786a5": "3.17",
    "f4a9b2c7d1e6": "3.18",
}
"""The schema revisions whose tables are known, and the MLflow that makes each."""

MAX_TREES: Final = 4096
"""The traces whose spans are remembered, so that they need not be read again."""
MAX_TRACES_READ: Final = 16
"""The traces whose stored payloads are in memory simultaneously."""

_TABLES: Final = SqlAssessments.metadata.tables
_ASSESSMENTS: Final = _TABLES["assessments"]
_TRACES: Final = _TABLES["trace_info"]
_EXPERIMENTS: Final = _TABLES["experiments"]
_TAGS: Final = SpanAttributeKey.TRACE_TAG_PREFIX
_FINALIZED: Final = TraceMetadataKey.TRACE_INFO_FINALIZED
_MARKS: Final = (TraceTagKey.SPANS_LOCATION, _FINALIZED, TraceMetadataKey.TRACE_SESSION, TraceMetadataKey.TRACE_USER)


class BulkStore:
    """One connection to a tracking database whose tables are known."""

    def __init__(self, uri: str) -> None:
        self._engine = bulk_engine(uri)
        # psycopg warns of a connection that a dropped exporter leaves open.
        finalize(self, _dispose, self._engine, os.getpid()).atexit = False
        self._trees: RecentDict[tuple[str, int], list[tuple[Any, Any]]] = RecentDict(MAX_TREES)

    def write(
        self,
        experiment_id: str,
        name: str | None,
        spans: Sequence[ReadableSpan],
        tags: Mapping[int, Mapping[str, str]],
    ) -> list[ReadableSpan]:
        """Store spans with their traces; return the spans of traces that only MLflow's own store can write.

        The experiment is read in the same transaction: people delete and rename experiments during training.

        Args:
            experiment_id: The experiment of new traces.
            name: The experiment's name; None if it is known by its id.
            spans: The spans.
            tags: The tags to write, by trace id.
        """
        batch: dict[str, list[SpanRow]] = {}
        left: set[str] = set()
        # Tags are rows of their own here, so the spans need no resource.
        for span in stored_spans(spans, unwraps_texts=bulk_rows.UNWRAPS_TEXTS, tags={key: {} for key in tags}):
            row = span_row(span, int(experiment_id))
            batch.setdefault(row.columns["trace_id"], []).append(row)
            if span.start_time is None or any(key.startswith(_TAGS) and key != TRACE_NAME for key in row.attributes):
                left.add(row.columns["trace_id"])
        rows = {trace_id: batch[trace_id] for trace_id in sorted(batch) if trace_id not in left}
        found_tags = {f"tr-{trace_id:032x}": found for trace_id, found in tags.items()}

        def work(connection: Any) -> tuple[dict[str, TraceRows], set[str]]:
            columns = _EXPERIMENTS.c
            query = select(columns.name, columns.lifecycle_stage, columns.artifact_location)
            experiment = connection.execute(query.where(columns.experiment_id == int(experiment_id))).first()
            check_experiment(experiment_id, experiment and experiment[:2], name)
            artifacts = str(experiment[2])
            stored, elsewhere = self._read(connection, rows)
            written = {
                trace_id: trace_rows(found, found_tags.get(trace_id, {}), artifacts, stored.get(trace_id))
                for trace_id, found in rows.items()
                if trace_id not in elsewhere
            }
            _write(connection, written, rows, stored)
            return written, elsewhere

        if rows:
            written, elsewhere = in_transaction(self._engine, work)
            left |= elsewhere
            for trace_id, trace in written.items():
                generation = trace.info["db_payload_generation"]
                self._trees.pop((trace_id, generation - 1), None)
                if trace.nodes is not None:
                    self._trees[trace_id, generation] = trace.nodes
        return [span for span in spans if mlflow_trace_id(span) in left]

    def record(self, rewards: Sequence[Feedback]) -> list[Feedback]:
        """Upsert rewards, of several for one trace the latest; return those whose traces are not in the database."""
        latest = {reward.assessment_id: reward for reward in sorted(rewards, key=lambda reward: reward.time_ns)}
        trace_ids = sorted({reward.trace_id for reward in rewards})

        def work(connection: Any) -> list[Feedback]:
            # Locked: a span that arrives meanwhile could move the trace's time, which the assessment repeats.
            traces = stored_rows(connection, _TABLES["trace_info"], trace_ids, is_locking=True)
            infos = {info["request_id"]: info for info in traces}
            stored = {row["assessment_id"]: row for row in stored_rows(connection, _ASSESSMENTS, sorted(latest))}
            rows = [
                _assessment(reward, infos[reward.trace_id], stored.get(assessment_id))
                for assessment_id, reward in sorted(latest.items())
                if reward.trace_id in infos
            ]
            upsert(connection, _ASSESSMENTS, [row for row in rows if row is not None])
            _rewrite_previews(connection, infos, latest, {row["assessment_id"] for row in rows if row is not None})
            return [reward for reward in rewards if reward.trace_id not in infos]

        return in_transaction(self._engine, work)

    def close(self) -> None:
        """Close the connection."""
        self._engine.dispose()

    def _read(self, connection: Any, rows: Mapping[str, Sequence[SpanRow]]) -> tuple[dict[str, TraceRows], set[str]]:
        """Lock and return the traces that are in the database, and the ids of those for MLflow's own store."""
        traces = {}
        for info in stored_rows(connection, _TABLES["trace_info"], list(rows), is_locking=True):
            nodes = self._trees.get((info["request_id"], info["db_payload_generation"]))
            traces[info["request_id"]] = TraceRows(info, {}, {}, {}, nodes)
        left: set[str] = set()
        if not traces:
            return traces, left
        for name, kind in (("trace_tags", "tags"), ("trace_request_metadata", "metadata")):
            table = _TABLES[name]
            for row in stored_rows(connection, table, list(traces), table.c.key.in_(_MARKS)):
                getattr(traces[row["request_id"]], kind)[row["key"]] = row["value"]
        unknown = []
        for trace_id, (info, tags, metadata, _, nodes) in traces.items():
            if info.get("session_id") is not None:
                metadata[TraceMetadataKey.TRACE_SESSION] = info["session_id"]
            is_here = (
                tags.get(TraceTagKey.SPANS_LOCATION, bulk_rows.LOCATION_IN_DATABASE) == bulk_rows.LOCATION_IN_DATABASE
            )
            is_same = info["experiment_id"] == rows[trace_id][0].columns["experiment_id"]
            if _FINALIZED in metadata or not (is_here and is_same):
                left.add(trace_id)
            elif nodes is None and is_counted(rows[trace_id]):
                unknown.append(trace_id)
        spans = _TABLES["spans"]
        for first in range(0, len(unknown), MAX_TRACES_READ):
            some: dict[str, list[tuple[Any, Any]]] = {id_: [] for id_ in unknown[first : first + MAX_TRACES_READ]}
            for row in stored_rows(connection, spans, list(some), spans.c.content != ""):
                with suppress(ValueError, AttributeError):
                    attributes = json.loads(row["content"]).get("attributes") or {}
                    some[row["trace_id"]].append(nodes_of(row["span_id"], row["parent_span_id"], attributes))
            traces |= {trace_id: traces[trace_id]._replace(nodes=nodes) for trace_id, nodes in some.items()}
        return traces, left


def _dispose(engine: Any, process: int) -> None:
    """Close an engine's connection, unless it is the parent's of this process."""
    if process == os.getpid():
        engine.dispose()


def _write(
    connection: Any,
    traces: Mapping[str, TraceRows],
    spans: Mapping[str, Sequence[SpanRow]],
    stored: Mapping[str, TraceRows],
) -> None:
    # A trace that another writer has made since it was looked for violates the key: everything again.
    new = [trace.info for trace_id, trace in traces.items() if trace_id not in stored]
    upsert(connection, _TABLES["trace_info"], new, are_new=True)
    upsert(connection, _TABLES["trace_info"], [traces[trace_id].info for trace_id in traces if trace_id in stored])
    # If a batch has a span twice, keep the later.
    rows = {(trace_id, row.columns["span_id"]): row for trace_id in traces for row in spans[trace_id]}
    upsert(connection, _TABLES["spans"], [row.columns for row in rows.values()])
    if not bulk_rows.HAS_COLUMNS:
        metrics = [
            {"trace_id": trace_id, "span_id": span_id, "key": key, "value": float(value)}
            for (trace_id, span_id), row in rows.items()
            for key, value in (row.nodes[1].data or {}).items()
        ]
        upsert(connection, _TABLES["span_metrics"], metrics)
    for name, kind in (("trace_request_metadata", "metadata"), ("trace_metrics", "metrics"), ("trace_tags", "tags")):
        pairs = [
            {"request_id": trace_id, "key": key, "value": value}
            for trace_id, trace in traces.items()
            for key, value in getattr(trace, kind).items()
        ]
        upsert(connection, _TABLES[name], pairs)
    for trace_id, trace in traces.items():
        start = trace.info["timestamp_ms"]
        if bulk_rows.HAS_COLUMNS and trace_id in stored and start < stored[trace_id].info["timestamp_ms"]:
            of_trace = _ASSESSMENTS.update().where(_ASSESSMENTS.c.trace_id == trace_id)
            connection.execute(of_trace.values(trace_timestamp_ms=start))


def _rewrite_previews(
    connection: Any, infos: Mapping[str, Mapping[str, Any]], rewards: Mapping[str, Feedback], written: set[str]
) -> None:
    """Have MLflow's list show the rewards that came after the ends of their trajectories."""
    for assessment_id in sorted(written):
        reward = rewards[assessment_id]
        if reward.is_late and reward.name == REWARD:
            old = infos[reward.trace_id]["response_preview"]
            new = preview_with_reward(old, float(reward.value))
            if new != old:
                of_trace = _TRACES.c.request_id == reward.trace_id
                connection.execute(_TRACES.update().where(of_trace).values(response_preview=new))


def _assessment(reward: Feedback, info: Mapping[str, Any], stored: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the row of a reward, merged with the stored one; None if that is newer."""
    record = SqlAssessments.from_mlflow_entity(assessment_of(reward))
    row = {column.name: getattr(record, column.name) for column in _ASSESSMENTS.columns}
    if bulk_rows.HAS_COLUMNS:
        row |= {"experiment_id": info["experiment_id"], "trace_timestamp_ms": info["timestamp_ms"]}
    if stored is None:
        return row
    metadata = json.loads(stored["assessment_metadata"] or "{}")
    if not reward.is_newer_than(metadata):
        return None
    changed = ("value", "aggregate_value", "is_numeric_value", *(("rationale",) if reward.rationale else ()))
    return {
        **stored,
        **{column: row[column] for column in changed if column in row},
        "last_updated_timestamp": time.time_ns() // 1_000_000,
        "assessment_metadata": json.dumps({**metadata, **reward.metadata}),
    }
