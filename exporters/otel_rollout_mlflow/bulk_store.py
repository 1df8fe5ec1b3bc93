"""Batches of spans and rewards written into MLflow's tables, each in one transaction.

Traces are locked in the order of their ids before anything of theirs is written, so several writers wait for each
other in one direction. A batch that is written twice leaves the tables as they were, but for a counter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.recent import RecentDict
from otel_rollout.facts.span_facts import trace_id_of
from otel_rollout_mlflow.bulk_connection import BulkConnection
from otel_rollout_mlflow.bulk_sql import DRIVERS, Statements
from otel_rollout_mlflow.layouts import LAYOUTS, Layout
from otel_rollout_mlflow.mlflow_functions import MlflowFunctions
from otel_rollout_mlflow.reward_rows import write_rewards
from otel_rollout_mlflow.span_rows import COST, SpanRow, span_row
from otel_rollout_mlflow.store import Feedback
from otel_rollout_mlflow.trace_rows import (
    FINALIZED,
    LOCATION,
    LOCATION_IN_DATABASE,
    SESSION,
    USER,
    Node,
    StoredTrace,
    TraceRows,
    trace_rows,
)
from otel_rollout_mlflow.translate import TRACE_NAME, USAGE, stored_spans

__all__ = ["BulkStore"]

MAX_TREES: Final = 4096
"""The traces whose spans are remembered, so that they need not be read again."""

MAX_TRACES_READ: Final = 16
"""The traces whose stored payloads are in memory simultaneously."""

_TAG_PREFIX: Final = "mlflow.traceTag."


class BulkStore:
    """One connection to a tracking database whose layout is known.

    Args:
        engine: SQLAlchemy's engine, only for this store.
        layout: The database's layout.
        functions: MLflow's functions.
        unwraps_texts: MLflow parses a text that looks like JSON, as versions before 3.18 do.
    """

    def __init__(self, engine: Any, layout: Layout, functions: MlflowFunctions, *, unwraps_texts: bool) -> None:
        self._connection = BulkConnection(engine)
        self._layout = layout
        self._functions = functions
        self._unwraps_texts = unwraps_texts
        self._trees: RecentDict[str, tuple[int, list[Node]]] = RecentDict(MAX_TREES)

    @staticmethod
    def layout_of(engine: Any) -> Layout | None:
        """Return the layout of a database; None if its revision or its driver is not a known one."""
        import sqlalchemy

        if engine.dialect.driver not in DRIVERS:
            return None
        with engine.connect() as connection:
            revisions = connection.execute(sqlalchemy.text("SELECT version_num FROM alembic_version")).scalars().all()
        return LAYOUTS.get(revisions[0]) if len(revisions) == 1 else None

    def write(
        self,
        experiment_id: str,
        artifacts: str,
        spans: Sequence[ReadableSpan],
        tags: Mapping[int, Mapping[str, str]],
    ) -> list[ReadableSpan]:
        """Store spans with their traces; return the spans of traces that only MLflow's own store can write.

        Args:
            experiment_id: The experiment of new traces.
            artifacts: The experiment's artifact location.
            spans: The spans.
            tags: The tags to write, by trace id.
        """
        batch: dict[str, list[SpanRow]] = {}
        left: set[str] = set()
        # Tags are rows of their own here, so the spans need no resource.
        stored = stored_spans(spans, unwraps_texts=self._unwraps_texts, tags={trace_id: {} for trace_id in tags})
        for span in stored:
            trace_id = f"tr-{trace_id_of(span):032x}"
            row = span_row(span, trace_id, self._layout, self._functions, unwraps_texts=self._unwraps_texts)
            batch.setdefault(trace_id, []).append(row)
            if span.start_time is None or _has_tags(row):
                left.add(trace_id)
        by_trace = {f"tr-{trace_id:032x}": found for trace_id, found in tags.items()}
        rows = {trace_id: batch[trace_id] for trace_id in sorted(batch) if trace_id not in left}

        def work(statements: Statements) -> tuple[list[TraceRows], set[str]]:
            known, elsewhere = self._read(statements, experiment_id, rows)
            written = [
                trace_rows(
                    trace_id,
                    int(experiment_id),
                    self._functions.artifact_location(artifacts, "traces", trace_id, "artifacts"),
                    found,
                    by_trace.get(trace_id, {}),
                    known.get(trace_id),
                    self._layout,
                    self._functions,
                )
                for trace_id, found in rows.items()
                if trace_id not in elsewhere
            ]
            self._write(statements, written, rows)
            return written, elsewhere

        if rows:
            written, elsewhere = self._connection.in_transaction(work)
            left |= elsewhere
            for trace in written:
                self._remember(trace)
        return [span for span in spans if f"tr-{trace_id_of(span):032x}" in left]

    def record(self, rewards: Sequence[Feedback]) -> list[Feedback]:
        """Upsert rewards; return those whose traces are not in the database."""
        return self._connection.in_transaction(lambda statements: write_rewards(statements, rewards, self._layout))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # --- one transaction

    def _read(
        self, statements: Statements, experiment_id: str, rows: Mapping[str, Sequence[SpanRow]]
    ) -> tuple[dict[str, StoredTrace], set[str]]:
        """Lock and return the traces that are in the database, and the ids of those for MLflow's own store."""
        columns = self._layout.trace_columns
        key = statements.name("key")
        marks = [
            f"(SELECT {value} FROM {table} m WHERE m.request_id = trace_info.request_id AND m.{key} = '{name}')"
            for value, table, name in (
                ("value", "trace_tags", LOCATION),
                ("1", "trace_request_metadata", FINALIZED),
                ("1", "trace_request_metadata", SESSION),
                ("1", "trace_request_metadata", USER),
            )
        ]
        query = f"SELECT {', '.join((*columns, *marks))} FROM trace_info WHERE request_id IN"
        traces: dict[str, StoredTrace] = {}
        left: set[str] = set()
        for values in statements.rows(query, list(rows), is_locking=True):
            info = dict(zip(columns, values[: len(columns)], strict=True))
            location, is_final, has_session, has_user = values[len(columns) :]
            trace_id = info["request_id"]
            traces[trace_id] = StoredTrace(info, location is not None, bool(has_session), bool(has_user))
            if is_final or location not in (None, LOCATION_IN_DATABASE) or info["experiment_id"] != int(experiment_id):
                left.add(trace_id)
        counted = [
            trace_id
            for trace_id in traces
            if trace_id not in left and any(row.usage is not None or row.cost is not None for row in rows[trace_id])
        ]
        nodes = self._nodes(statements, {trace_id: traces[trace_id] for trace_id in counted})
        for trace_id, found in nodes.items():
            trace = traces[trace_id]
            traces[trace_id] = StoredTrace(trace.columns, trace.has_location, trace.has_session, trace.has_user, found)
        return traces, left

    def _nodes(self, statements: Statements, traces: Mapping[str, StoredTrace]) -> dict[str, list[Node]]:
        """Return the stored spans of traces, from memory if nobody else has written to them."""
        nodes: dict[str, list[Node]] = {}
        for trace_id, trace in traces.items():
            generation, found = self._trees.get(trace_id, (None, []))
            if generation == trace.columns["db_payload_generation"]:
                nodes[trace_id] = found
        unknown = [trace_id for trace_id in traces if trace_id not in nodes]
        query = "SELECT trace_id, span_id, parent_span_id, content FROM spans WHERE content <> '' AND trace_id IN"
        nodes |= {trace_id: [] for trace_id in unknown}
        for first in range(0, len(unknown), MAX_TRACES_READ):
            for trace_id, span_id, parent_id, content in statements.rows(
                query, unknown[first : first + MAX_TRACES_READ]
            ):
                with suppress(ValueError, AttributeError):
                    attributes = json.loads(content).get("attributes") or {}
                    usage, cost = _loaded(attributes, USAGE), _loaded(attributes, COST)
                    nodes[trace_id].append(Node(span_id, parent_id, usage, cost))
        return nodes

    def _write(
        self, statements: Statements, traces: Sequence[TraceRows], rows: Mapping[str, Sequence[SpanRow]]
    ) -> None:
        columns = self._layout.trace_columns
        new = [[trace.info[column] for column in columns] for trace in traces if trace.is_new]
        changed = [[trace.info[column] for column in columns] for trace in traces if not trace.is_new]
        # A trace that another writer has made since it was looked for violates the key: everything again.
        statements.insert("trace_info", columns, new)
        statements.upsert("trace_info", columns, 1, changed)
        spans: dict[tuple[str, str], tuple[Any, ...]] = {}
        metrics: dict[tuple[str, str, str], tuple[Any, ...]] = {}
        for trace in traces:
            trace_id, experiment_id = trace.info["request_id"], trace.info["experiment_id"]
            for row in rows[trace_id]:
                # If a batch has a span twice, keep the later.
                spans[trace_id, row.span_id] = (*row.columns[:2], experiment_id, *row.columns[3:])
                metrics |= {
                    (trace_id, row.span_id, name): (trace_id, row.span_id, name, value) for name, value in row.metrics
                }
        statements.upsert_many("spans", self._layout.span_columns, 2, [spans[key] for key in sorted(spans)])
        if metrics:
            metric_columns = ("trace_id", "span_id", "key", "value")
            statements.upsert("span_metrics", metric_columns, 3, [metrics[key] for key in sorted(metrics)])
        for table, kind in (
            ("trace_request_metadata", "metadata"),
            ("trace_metrics", "metrics"),
            ("trace_tags", "tags"),
        ):
            found = [
                (trace.info["request_id"], key, value)
                for trace in traces
                for key, value in sorted(getattr(trace, kind).items())
            ]
            statements.upsert(table, ("request_id", "key", "value"), 2, found)
        moved = [trace.info["request_id"] for trace in traces if trace.is_moved]
        if self._layout.has_columns and moved:
            for trace_id in moved:
                start = next(trace.info["timestamp_ms"] for trace in traces if trace.info["request_id"] == trace_id)
                statements.execute(
                    "UPDATE assessments SET trace_timestamp_ms = ? WHERE trace_id = ?", (start, trace_id)
                )

    def _remember(self, trace: TraceRows) -> None:
        trace_id, generation = trace.info["request_id"], trace.info["db_payload_generation"]
        known, nodes = self._trees.get(trace_id, (None, []))
        ids = {node.span_id for node in trace.nodes}
        if trace.is_new or known == generation - 1:
            self._trees[trace_id] = generation, [*trace.nodes, *(node for node in nodes if node.span_id not in ids)]
        else:
            self._trees.pop(trace_id, None)


def _has_tags(row: SpanRow) -> bool:
    """Return True if a span sets tags of its trace by attributes, besides the trace's name."""
    return row.parent_id is None and any(key.startswith(_TAG_PREFIX) and key != TRACE_NAME for key in row.attributes)


def _loaded(attributes: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    value = attributes.get(key)
    if isinstance(value, str):
        with suppress(ValueError):
            value = json.loads(value)
    return value if isinstance(value, dict) else None
