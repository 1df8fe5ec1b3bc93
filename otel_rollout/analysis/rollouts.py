"""The rollouts of one prompt, side by side: how each ended, what it answered, its reward and advantage."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from otel_rollout import semconv
from otel_rollout.analysis.conversation import input_messages, said_by
from otel_rollout.analysis.messages import parse_json

__all__ = ["NO_ROOT", "Rollout", "advantages", "prompt_of", "rollout_of"]

NO_ROOT: Final = "no root"


@dataclass(frozen=True)
class Rollout:
    """One rollout; None is unknown.

    Args:
        rollout_n: Its number in the group.
        status: `completed`, `error`, `cancelled`, `truncated`, or `no root`.
        duration: Its nanoseconds.
        reward: Its reward.
        turns: The number of generations.
        input_tokens: The sum of the generations' input tokens.
        output_tokens: The sum of the generations' output tokens.
        tool_errors: The number of failed tool calls.
        answer: The answer; empty if there is none.
        trace_id: Its trace id, 32 hexadecimal digits; empty if it was not traced.
    """

    rollout_n: Any
    status: str
    duration: int
    reward: float | None = None
    turns: int | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    tool_errors: int | None = None
    answer: str = ""
    trace_id: str = ""


def rollout_of(spans: Sequence[ReadableSpan]) -> Rollout:
    """Return the rollout that a trajectory's spans tell of."""
    root = _root_of(spans)
    main = root or min(spans, key=lambda span: span.start_time or 0)
    attributes = main.attributes or {}
    reward = attributes.get(semconv.REWARD)
    context = main.get_span_context()
    status = attributes.get(semconv.STATUS) or ("error" if main.status.status_code is StatusCode.ERROR else "-")
    start = min(span.start_time or 0 for span in spans)
    return Rollout(
        attributes.get(semconv.ROLLOUT_N),
        NO_ROOT if root is None else str(status),
        max(span.end_time or 0 for span in spans) - start,
        float(reward) if isinstance(reward, (int, float)) else None,
        turns=_count(attributes.get(semconv.TURNS)),
        input_tokens=_count(attributes.get(semconv.INPUT_TOKENS)),
        output_tokens=_count(attributes.get(semconv.OUTPUT_TOKENS)),
        tool_errors=_tool_errors(attributes, spans),
        answer=_answer(root, spans),
        trace_id=f"{context.trace_id:032x}" if context else "",
    )


def prompt_of(spans: Sequence[ReadableSpan]) -> str:
    """Return a trajectory's prompt: the root's input, or the first question of the first generation."""
    root = _root_of(spans)
    if root is not None and (prompt := _text(root, semconv.INPUT_VALUE) or _question(root)):
        return prompt
    turns = sorted((span for span in spans if _is(span, "LLM")), key=lambda span: span.start_time or 0)
    return _question(turns[0]) if turns else ""


def advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Return each reward's advantage within its group, as GRPO takes it: (reward - mean) / deviation.

    Args:
        rewards: The rewards; one that is unknown has no advantage, and the others are compared without it.
    """
    known = [reward for reward in rewards if reward is not None]
    if not known:
        return [None] * len(rewards)
    mean = sum(known) / len(known)
    deviation = math.sqrt(sum((reward - mean) ** 2 for reward in known) / len(known))
    return [None if reward is None else (reward - mean) / (deviation + 1e-6) for reward in rewards]


def _root_of(spans: Sequence[ReadableSpan]) -> ReadableSpan | None:
    return next((span for span in spans if span.parent is None), None)


def _is(span: ReadableSpan, kind: str) -> bool:
    return (span.attributes or {}).get(semconv.SPAN_KIND) == kind


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _tool_errors(attributes: Mapping[str, Any], spans: Sequence[ReadableSpan]) -> int:
    known = _count(attributes.get(semconv.TOOL_ERRORS))
    failed = sum(_is(span, "TOOL") and span.status.status_code is StatusCode.ERROR for span in spans)
    return failed if known is None else known


def _answer(root: ReadableSpan | None, spans: Sequence[ReadableSpan]) -> str:
    """Return the root's output; if it was not recorded, the last words of the model."""
    if root is not None:
        if semconv.OUTPUT_VALUE in (root.attributes or {}):
            return _text(root, semconv.OUTPUT_VALUE)
        if said := said_by(root):
            return said
    turns = sorted((span for span in spans if _is(span, "LLM")), key=lambda span: span.start_time or 0)
    return said_by(turns[-1]) if turns else ""


def _question(span: ReadableSpan) -> str:
    users = [message.text for message in input_messages(span) if message.role == "user"]
    return users[0] if users else ""


def _text(span: ReadableSpan, key: str) -> str:
    """Return a payload as text: messages by what they say, a JSON string without its quotes, nothing for null."""
    payload = (span.attributes or {}).get(key)
    parsed = parse_json(payload)
    if isinstance(parsed, str):
        return parsed
    if isinstance(parsed, (dict, list)):
        said = said_by(span) if key == semconv.OUTPUT_VALUE else _question(span)
        return said or str(payload)
    return "" if payload in (None, "null") else str(payload)
