"""Spans of a trajectory, as the tracer hands them over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode

__all__ = ["NANOSECONDS", "START", "make_span", "make_trajectory"]

START = 1_760_000_000_000_000_000
NANOSECONDS = 1_000_000_000
TRACE_ID = 0xABC
ROOT_ID = 1


def make_span(
    name: str,
    span_id: int,
    *,
    parent: int | None = ROOT_ID,
    trace_id: int = TRACE_ID,
    seconds: tuple[float, float] = (0.0, 1.0),
    attributes: Mapping[str, Any] | None = None,
    project: str = "math",
    error: tuple[str, str] | None = None,
    events: Sequence[Event] = (),
    is_parent_remote: bool = False,
) -> ReadableSpan:
    """Return a finished span with the tags of step 7, sample 12, rollout 1."""
    tags = {
        "rollout.step": 7,
        "rollout.sample_index": 12,
        "rollout.rollout_n": 1,
        "rollout.validate": False,
        "rollout.experiment_name": "exp-1",
    }
    start, end = (START + int(offset * NANOSECONDS) for offset in seconds)
    if error is not None:
        kind, message = error
        events = [*events, Event("exception", {"exception.type": kind, "exception.message": message}, end)]
    return ReadableSpan(
        name,
        SpanContext(trace_id, span_id, is_remote=False),
        parent=None if parent is None else SpanContext(trace_id, parent, is_remote=is_parent_remote),
        resource=Resource({"rollout.project_name": project}),
        attributes={**tags, **(attributes or {})},
        events=events,
        status=Status(StatusCode.ERROR, error[1]) if error else Status(),
        start_time=start,
        end_time=end,
        instrumentation_scope=InstrumentationScope("otel_rollout"),
    )


def as_json(value: Any) -> str:
    return orjson.dumps(value).decode()


def text_message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def make_trajectory(
    *, trace_id: int = TRACE_ID, project: str = "math", reward: float = 0.5, words: str = "What is 17 * 3?"
) -> list[ReadableSpan]:
    """Return a turn, a tool call inside it, a second turn and the root, in the order in which they end."""
    asked = [text_message("user", words)]
    call = {"type": "tool_call", "id": "call_1", "name": "calculator", "arguments": {"expression": "17 * 3"}}
    wanted = {"role": "assistant", "parts": [call]}
    result = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "51"}]}
    answer = text_message("assistant", "It is 51.")
    llm = {"openinference.span.kind": "LLM", "gen_ai.request.model": "policy"}
    common: dict[str, Any] = {"trace_id": trace_id, "project": project}
    return [
        make_span(
            "generate",
            2,
            seconds=(0.0, 1.0),
            attributes={
                **llm,
                "gen_ai.usage.input_tokens": 10,
                "gen_ai.usage.output_tokens": 5,
                "gen_ai.input.messages": as_json(asked),
                "gen_ai.output.messages": as_json([wanted]),
                "input.value": '{"temperature":1.0}',
                "input.mime_type": "application/json",
            },
            **common,
        ),
        make_span(
            "calculator",
            3,
            seconds=(1.0, 1.5),
            attributes={
                "openinference.span.kind": "TOOL",
                "gen_ai.tool.name": "calculator",
                "input.value": '{"expression":"17 * 3"}',
                "input.mime_type": "application/json",
                "output.value": "51",
                "output.mime_type": "text/plain",
            },
            **common,
        ),
        make_span(
            "generate",
            4,
            seconds=(1.5, 2.5),
            attributes={
                **llm,
                "gen_ai.input.messages": as_json([*asked, wanted, result]),
                "gen_ai.output.messages": as_json([answer]),
            },
            **common,
        ),
        make_span(
            "agent_loop",
            ROOT_ID,
            parent=None,
            seconds=(0.0, 3.0),
            attributes={
                "openinference.span.kind": "AGENT",
                "gen_ai.operation.name": "invoke_agent",
                "rollout.status": "completed",
                "rollout.reward": reward,
                "rollout.reward_parts": '{"correct":true,"style":{"value":0.25,"explanation":"terse"}}',
                "rollout.turns": 2,
                "rollout.input_tokens": 10,
                "rollout.output_tokens": 5,
                "rollout.data_source": "gsm8k",
                "session.id": "s12 · step 7 · exp-1",
                "gen_ai.conversation.id": f"{trace_id:032x}",
                "metadata": "{}",
                "input.value": words,
                "input.mime_type": "text/plain",
                "output.value": "It is 51.",
                "output.mime_type": "text/plain",
            },
            **common,
        ),
    ]
