"""What a call of a language model says of itself: model, tokens, and why it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sized
from contextlib import suppress
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
    attributes: dict[str, Any] = {}
    model = _first_text((arguments, "model"), (result, "model"))
    if model is not None:
        attributes[semconv.REQUEST_MODEL] = model
    usage = _field(result, "usage")
    input_tokens = _first_int(usage, "input_tokens", "prompt_tokens")
    if input_tokens is None:
        input_tokens = _first_length((result, "prompt_ids"), (arguments, "prompt_ids"))
    if input_tokens is not None:
        attributes[semconv.USAGE_INPUT_TOKENS] = input_tokens
    output_tokens = _first_int(usage, "output_tokens", "completion_tokens")
    if output_tokens is None:
        output_tokens = _first_length((result, "response_ids"), (result, "token_ids"))
    if output_tokens is not None:
        attributes[semconv.USAGE_OUTPUT_TOKENS] = output_tokens
    choices = _field(result, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    reason = _first_text((result, "finish_reason"), (result, "stop_reason"), (choice, "finish_reason"))
    if reason is not None:
        attributes[semconv.FINISH_REASONS] = (reason,)
    return attributes


def _field(value: Any, name: str) -> Any:
    try:
        return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    except Exception:  # noqa: BLE001, RUF100 - a value may do anything when it is looked at
        return None


def _first_text(*places: tuple[Any, str]) -> str | None:
    for value, name in places:
        text = _field(value, name)
        if isinstance(text, str) and text:
            return text
    return None


def _first_int(value: Any, *names: str) -> int | None:
    for name in names:
        number = _field(value, name)
        if isinstance(number, int) and not isinstance(number, bool):
            return number
    return None


def _first_length(*places: tuple[Any, str]) -> int | None:
    for value, name in places:
        ids = _field(value, name)
        if isinstance(ids, Sized) and not isinstance(ids, (str, Mapping)):
            # An array without dimensions has no length.
            with suppress(Exception):
                return len(ids)
    return None
