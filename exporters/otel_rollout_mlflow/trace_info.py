"""The trace infos that servers before 3.14 need, because they don't read them from the spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout.facts.span_facts import trace_id_of
from otel_rollout_mlflow.translate import (
    mlflow_trace_id,
    session_of,
    trace_name,
    trace_tags,
)

__all__ = ["TRACE_NAME_TAG", "timestamp", "trace_infos", "with_stored"]

TRACE_NAME_TAG: Final = "mlflow.traceName"
SESSION: Final = "mlflow.trace.session"


def trace_infos(experiment_id: str, spans: Sequence[ReadableSpan]) -> list[tuple[dict[str, Any], bool]]:
    """Return the trace infos of a batch, and True for each whose root is in the batch.

    Source: StartTraceV3 in https://github.com/mlflow/mlflow/blob/master/mlflow/protos/service.proto
    """
    traces: dict[int, list[ReadableSpan]] = {}
    for span in spans:
        traces.setdefault(trace_id_of(span), []).append(span)
    return [_trace_info(experiment_id, group) for group in traces.values()]


def with_stored(info: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return `info` merged with the trace info that the server has stored.

    These versions delete what is left out: 3.6 fails on a missing metadata entry, 3.10 on a missing assessment.
    """
    kept = {key: stored[key] for key in ("request_preview", "response_preview", "assessments") if key in stored}
    merged = {key: {**stored.get(key, {}), **info[key]} for key in ("tags", "trace_metadata")}
    return {**kept, **info, **merged}


def _trace_info(experiment_id: str, spans: Sequence[ReadableSpan]) -> tuple[dict[str, Any], bool]:
    root = next((span for span in spans if span.parent is None), None)
    start = (root or min(spans, key=lambda span: span.start_time or 0)).start_time or 0
    tags: dict[str, str] = {}
    for span in spans:
        tags.update(trace_tags(span))
    info: dict[str, Any] = {
        "trace_id": mlflow_trace_id(spans[0]),
        "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": experiment_id}},
        "request_time": timestamp(start),
        "state": "IN_PROGRESS",
        "tags": tags,
        "trace_metadata": {},
    }
    if root is None:
        return info, False
    info["state"] = "ERROR" if root.status.status_code is StatusCode.ERROR else "OK"
    info["execution_duration"] = f"{max(0, (root.end_time or start) - start) / 1e9:.3f}s"
    tags[TRACE_NAME_TAG] = trace_name(root)
    session = session_of(root)
    if session is not None:
        info["trace_metadata"][SESSION] = session
    return info, True


def timestamp(nanoseconds: int) -> str:
    """Return a time as MLflow's REST API writes it, in UTC with milliseconds."""
    milliseconds = nanoseconds // 1_000_000
    moment = datetime.fromtimestamp(milliseconds / 1000, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"
