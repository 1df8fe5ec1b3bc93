"""What a call of a language model says of itself: model, tokens, and why it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from typing import Any

from otel_rollout import semconv

__all__ = ["describe_llm_call"]


def describe_llm_call(arguments: Mapping[str, Any] | None, result: Any) -> dict[str, Any]:
    """Return the GenAI attributes that the arguments and the result of an LLM op show; a few look-ups, no walk.

    Args:
        arguments: The arguments by name, if they were bound.
        result: What the call returned: an OpenAI-style response with `usage`, or one with token ids (`prompt_ids`;
            `response_ids` or `token_ids`, as in verl's outputs).
    """
    arguments = arguments or {}
    attributes: dict[str, Any] = {}
    model = arguments.get("model") or _field(result, "model")
    if isinstance(model, str):
        attributes[semconv.REQUEST_MODEL] = model
    usage = _field(result, "usage")
    input_tokens = _first_int(usage, "input_tokens", "prompt_tokens")
    if input_tokens is None:
        input_tokens = _length(_field(result, "prompt_ids"), arguments.get("prompt_ids"))
    if input_tokens is not None:
        attributes[semconv.USAGE_INPUT_TOKENS] = input_tokens
    output_tokens = _first_int(usage, "output_tokens", "completion_tokens")
    if output_tokens is None:
        output_tokens = _length(_field(result, "response_ids"), _field(result, "token_ids"))
    if output_tokens is not None:
        attributes[semconv.USAGE_OUTPUT_TOKENS] = output_tokens
    reason = _field(result, "finish_reason") or _field(result, "stop_reason")
    choices = _field(result, "choices")
    if reason is None and isinstance(choices, list) and choices:
        reason = _field(choices[0], "finish_reason")
    if isinstance(reason, str):
        attributes[semconv.FINISH_REASONS] = (reason,)
    return attributes


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    return getattr(value, name, None)


def _first_int(value: Any, *names: str) -> int | None:
    for name in names:
        number = _field(value, name)
        if isinstance(number, int) and not isinstance(number, bool):
            return number
    return None


def _length(*values: Any) -> int | None:
    for value in values:
        if value is not None and isinstance(value, Sized) and not isinstance(value, str):
            return len(value)
    return None
