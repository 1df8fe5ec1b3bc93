"""What a call of a language model says of itself: model, tokens, and why it stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
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
    argument, field = _fields(arguments), _fields(result)
    model = _first_text(argument("model"), field("model"))
    if model is not None:
        attributes[semconv.REQUEST_MODEL] = model
    used = _fields(field("usage"))
    input_tokens = _first_int(used("input_tokens"), used("prompt_tokens"))
    if input_tokens is None:
        input_tokens = _first_length(field("prompt_ids"), argument("prompt_ids"))
    if input_tokens is not None:
        attributes[semconv.USAGE_INPUT_TOKENS] = input_tokens
    output_tokens = _first_int(used("output_tokens"), used("completion_tokens"))
    if output_tokens is None:
        output_tokens = _first_length(field("response_ids"), field("token_ids"))
    if output_tokens is not None:
        attributes[semconv.USAGE_OUTPUT_TOKENS] = output_tokens
    choices = field("choices")
    choice = _fields(choices[0] if isinstance(choices, list) and choices else None)
    reason = _first_text(field("finish_reason"), field("stop_reason"), choice("finish_reason"))
    if reason is not None:
        attributes[semconv.FINISH_REASONS] = (reason,)
    return attributes


def _fields(value: Any) -> Callable[[str], Any]:
    """Return what looks up a key of a mapping, or an attribute of anything else; None where there is none."""
    if value is None:
        return _no_field
    cls = type(value)
    if cls is dict:
        get: Callable[[str], Any] = value.get
        return get
    try:
        if hasattr(cls, "__pydantic_fields_set__"):
            # Asked for a field that it has not, a model of pydantic takes microseconds to say so.
            extra = value.__pydantic_extra__
            held: dict[str, Any] = {**value.__dict__, **extra} if extra else value.__dict__
            return held.get
        is_mapping = isinstance(value, Mapping)
    except Exception:  # noqa: BLE001, RUF100 - a value may do anything when it is looked at
        return _no_field

    def field(name: str) -> Any:
        try:
            return value.get(name) if is_mapping else getattr(value, name, None)
        except Exception:  # noqa: BLE001, RUF100 - likewise
            return None

    return field


def _no_field(name: str) -> Any:
    return None


def _first_text(*values: Any) -> str | None:
    for value in values:
        if isinstance(value, str) and value:
            return value
    return None


def _first_int(*values: Any) -> int | None:
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def _first_length(*values: Any) -> int | None:
    for value in values:
        if type(value) is list or (isinstance(value, Sized) and not isinstance(value, (str, Mapping))):
            # An array without dimensions has no length.
            with suppress(Exception):
                return len(value)
    return None
