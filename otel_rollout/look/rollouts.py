"""The prompt and the answer of a trajectory, whole, and the advantages of a group."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts.amounts import deviation_of, mean_of
from otel_rollout.facts.span_messages import input_messages, said_by
from otel_rollout.messages import parse_json


def prompt_of(spans: Sequence[ReadableSpan]) -> str:
    """Return a trajectory's prompt: the root's input, or the first question of the first generation."""
    root = _root_of(spans)
    if root is not None and (prompt := _text(root, semconv.INPUT_VALUE) or _question(root)):
        return prompt
    turns = sorted((span for span in spans if _is(span, "LLM")), key=lambda span: span.start_time or 0)
    return _question(turns[0]) if turns else ""


def answer_of(spans: Sequence[ReadableSpan]) -> str:
    """Return a trajectory's answer: the root's output; if that was not recorded, the last words of the model."""
    root = _root_of(spans)
    if root is not None:
        if semconv.OUTPUT_VALUE in (root.attributes or {}):
            return _text(root, semconv.OUTPUT_VALUE)
        if said := said_by(root):
            return said
    turns = sorted((span for span in spans if _is(span, "LLM")), key=lambda span: span.start_time or 0)
    return said_by(turns[-1]) if turns else ""


def advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Return each reward's advantage within its group, as GRPO takes it: (reward - mean) / deviation.

    Args:
        rewards: The rewards; one that is unknown has no advantage, and the others are compared without it.
    """
    known = [reward for reward in rewards if reward is not None]
    if not known:
        return [None] * len(rewards)
    mean, deviation = mean_of(known), deviation_of(known)
    return [None if reward is None else (reward - mean) / (deviation + 1e-6) for reward in rewards]


def _root_of(spans: Sequence[ReadableSpan]) -> ReadableSpan | None:
    return next((span for span in spans if span.parent is None), None)


def _is(span: ReadableSpan, kind: str) -> bool:
    return (span.attributes or {}).get(semconv.SPAN_KIND) == kind


def _question(span: ReadableSpan) -> str:
    users = [message.text for message in input_messages(span) if message.role == "user"]
    return users[0] if users else ""


def _text(span: ReadableSpan, key: str) -> str:
    """Return a payload as text: messages by their text, a JSON string without its quotes, nothing for null."""
    payload = (span.attributes or {}).get(key)
    parsed = parse_json(payload)
    if isinstance(parsed, str):
        return parsed
    if isinstance(parsed, (dict, list)):
        said = said_by(span) if key == semconv.OUTPUT_VALUE else _question(span)
        return said or str(payload)
    return "" if payload in (None, "null") else str(payload)
