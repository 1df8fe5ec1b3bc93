"""The small trajectory that a backend is tried with."""

from __future__ import annotations

import time
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout import semconv
from otel_rollout.spans.ids import SystemIdGenerator
from otel_rollout.spans.provider import SCOPE, make_resource

__all__ = ["EXPERIMENT", "make_trajectory"]

EXPERIMENT: Final = "doctor"
_SECOND: Final = 1_000_000_000


def make_trajectory(project: str, run_id: str | None = None) -> list[ReadableSpan]:
    """Return a trajectory as the tracer would hand it over: an op, then the root that it is in.

    It has no step, so that it is in the way of no step's statistics.

    Args:
        project: The project that it is filed under, whatever the environment names.
        run_id: The run; a fresh id where None.
    """
    ids = SystemIdGenerator()
    trace_id, root_id = ids.generate_trace_id(), ids.generate_span_id()
    named = {semconv.PROJECT_NAME: project, semconv.SERVICE_NAME: project, semconv.OPENINFERENCE_PROJECT: project}
    resource = make_resource(project, run_id).merge(Resource(named))
    now = time.time_ns()
    tags: dict[str, Any] = {
        semconv.SAMPLE_INDEX: 0,
        semconv.ROLLOUT_N: 0,
        semconv.VALIDATE: False,
        semconv.EXPERIMENT_NAME: EXPERIMENT,
    }

    def span(name: str, span_id: int, parent: int | None, start: int, attributes: dict[str, Any]) -> ReadableSpan:
        return ReadableSpan(
            name,
            SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)),
            parent=None if parent is None else SpanContext(trace_id, parent, is_remote=False),
            resource=resource,
            attributes={**tags, **attributes},
            status=Status(StatusCode.UNSET),
            start_time=start,
            end_time=now,
            instrumentation_scope=SCOPE,
        )

    question, answer = '"Does this arrive?"', '"It does."'
    op = {semconv.SPAN_KIND: "LLM", semconv.OPERATION_NAME: "chat", **_payload(question, answer)}
    root = {
        semconv.SPAN_KIND: "AGENT",
        semconv.OPERATION_NAME: "invoke_agent",
        semconv.STATUS: "completed",
        semconv.TURNS: 1,
        semconv.SESSION_ID: f"{EXPERIMENT}/0",
        semconv.CONVERSATION_ID: f"{trace_id:032x}",
        semconv.METADATA: '{"experiment_name":"doctor"}',
        **_payload(question, answer),
    }
    return [
        span("generate", ids.generate_span_id(), root_id, now - _SECOND // 2, op),
        span("otel-rollout doctor", root_id, None, now - _SECOND, root),
    ]


def _payload(given: str, result: str) -> dict[str, str]:
    return {
        semconv.INPUT_VALUE: given,
        semconv.INPUT_MIME_TYPE: semconv.JSON_MIME_TYPE,
        semconv.OUTPUT_VALUE: result,
        semconv.OUTPUT_MIME_TYPE: semconv.JSON_MIME_TYPE,
    }
