"""The small trajectory that a backend is tried with."""

from __future__ import annotations

import time
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from otel_rollout import semconv
from otel_rollout.record.ids import SystemIdGenerator
from otel_rollout.record.provider import SCOPE, make_resource

__all__ = ["EXPERIMENT", "make_trajectory"]

EXPERIMENT: Final = "doctor"
_SECOND: Final = 1_000_000_000
_ON_BOTH: Final[dict[str, Any]] = {
    semconv.SAMPLE_INDEX: 0,
    semconv.ROLLOUT_N: 0,
    semconv.VALIDATE: False,
    semconv.EXPERIMENT_NAME: EXPERIMENT,
    semconv.INPUT_VALUE: '"Does this arrive?"',
    semconv.INPUT_MIME_TYPE: semconv.JSON_MIME_TYPE,
    semconv.OUTPUT_VALUE: '"It does."',
    semconv.OUTPUT_MIME_TYPE: semconv.JSON_MIME_TYPE,
}


def make_trajectory(project: str, run_id: str | None = None) -> list[ReadableSpan]:
    """Return an op and its root, as the tracer would hand them over; without a step, so that no step counts them.

    Args:
        project: Its project, whatever the environment names.
        run_id: Its run; a fresh id if None.
    """
    ids = SystemIdGenerator()
    trace_id, root_id = ids.generate_trace_id(), ids.generate_span_id()
    named = {semconv.PROJECT_NAME: project, semconv.SERVICE_NAME: project, semconv.OPENINFERENCE_PROJECT: project}
    resource = make_resource(project, run_id).merge(Resource(named))
    now = time.time_ns()

    def span(name: str, span_id: int, parent: int | None, start: int, attributes: dict[str, Any]) -> ReadableSpan:
        return ReadableSpan(
            name,
            SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)),
            parent=None if parent is None else SpanContext(trace_id, parent, is_remote=False),
            resource=resource,
            attributes={**_ON_BOTH, **attributes},
            start_time=start,
            end_time=now,
            instrumentation_scope=SCOPE,
        )

    op = {semconv.SPAN_KIND: "LLM", semconv.OPERATION_NAME: "chat"}
    root = {
        semconv.SPAN_KIND: "AGENT",
        semconv.OPERATION_NAME: "invoke_agent",
        semconv.STATUS: "completed",
        semconv.TURNS: 1,
        semconv.SESSION_ID: f"{EXPERIMENT}/0",
        semconv.CONVERSATION_ID: f"{trace_id:032x}",
        semconv.METADATA: '{"experiment_name":"doctor"}',
    }
    return [
        span("generate", ids.generate_span_id(), root_id, now - _SECOND // 2, op),
        span("otel-rollout doctor", root_id, None, now - _SECOND, root),
    ]
