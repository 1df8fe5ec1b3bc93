"""Finished spans of a made-up trajectory, with times that don't vary."""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout import semconv


def make_span(
    number: int,
    name: str,
    kind: str,
    milliseconds: tuple[float, float],
    *,
    parent: int | None = 1,
    error: str | None = None,
    value: tuple[Any, Any] = (None, None),
    **attributes: Any,
) -> ReadableSpan:
    """Return a span of trace 1 that ran from and to the given milliseconds."""
    events = []
    if error:
        raised = {semconv.EXCEPTION_TYPE: "package.ToolError", semconv.EXCEPTION_MESSAGE: error}
        events.append(Event(semconv.EXCEPTION_EVENT, raised, timestamp=1))
    return ReadableSpan(
        name,
        context=_context(number),
        parent=None if parent is None else _context(parent),
        attributes={
            semconv.SPAN_KIND: kind,
            semconv.STEP: 1,
            semconv.SAMPLE_INDEX: 7,
            semconv.ROLLOUT_N: 2,
            semconv.VALIDATE: False,
            semconv.INPUT_VALUE: json.dumps(value[0]),
            semconv.OUTPUT_VALUE: json.dumps(value[1]),
            **attributes,
        },
        events=events,
        status=Status(StatusCode.ERROR, "ToolError") if error else Status(),
        start_time=int(milliseconds[0] * 1e6),
        end_time=int(milliseconds[1] * 1e6),
    )


def _context(number: int) -> SpanContext:
    return SpanContext(1, number, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def make_trajectory() -> list[ReadableSpan]:
    """Return a trajectory with two tools side by side, one of which failed."""
    return [
        make_span(
            1, "agent_loop", "AGENT", (0, 100), parent=None, **{semconv.STATUS: "completed", semconv.REWARD: 1.0}
        ),
        make_span(2, "AgentLoop.run", "CHAIN", (0, 90)),
        make_span(
            3,
            "Policy.generate",
            "LLM",
            (0, 50),
            parent=2,
            value=({}, {"token_ids": [1, 2], "response_text": "I add.\nThen I see."}),
            **{semconv.USAGE_INPUT_TOKENS: 90, semconv.USAGE_OUTPUT_TOKENS: 2},
        ),
        make_span(4, "Lookup.execute", "TOOL", (50, 90), parent=2, error="no entry 'teas'"),
        make_span(5, "Calculator.execute", "TOOL", (50, 60), parent=2, value=({"argument": "1 + 1"}, "2")),
        make_span(6, "Verifier.score", "EVALUATOR", (95, 100), value=({"answer": "2"}, 1.0)),
    ]
