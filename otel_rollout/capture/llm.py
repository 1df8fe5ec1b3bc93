"""GenAI attributes of a language model's call: provider, model, tokens, finish reason."""

from __future__ import annotations

from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.values.object_reading import module_of

__all__ = ["describe_llm_call"]

_PROVIDERS: Final = {
    "anthropic": "anthropic",
    "cohere": "cohere",
    "groq": "groq",
    "ibm_watsonx_ai": "ibm.watsonx.ai",
    "mistralai": "mistral_ai",
    "openai": "openai",
    "vertexai": "gcp.vertex_ai",
    "xai_sdk": "x_ai",
}
"""A provider's name in the semantic conventions, by the package of its client library.

For a server that is called through another provider's client, the conventions take the client's name too.
"""


def describe_llm_call(request: Any, response: Any, answer: Any = None) -> dict[str, Any]:
    """Return the GenAI attributes of an LLM op's call, by a few look-ups in its arguments and result.

    Args:
        request: The snapshot's value of the arguments by name, if it was taken.
        response: The snapshot's value of the result: an OpenAI-style response with `usage`, or one with token ids
            (`prompt_ids`; `response_ids` or `token_ids`, as in verl's outputs).
        answer: The result or exception itself; only its class is read.
    """
    attributes: dict[str, Any] = {}
    asked, answered = _fields(request), _fields(response)
    kind = type(answer)
    named = asked.get("provider")
    if type(named) is str and named:
        attributes[semconv.PROVIDER_NAME] = named
    elif kind is not dict:
        attributes[semconv.PROVIDER_NAME] = _PROVIDERS.get(module_of(kind))
    attributes[semconv.REQUEST_MODEL] = _first_text(asked.get("model"))
    attributes[semconv.RESPONSE_MODEL] = _first_text(answered.get("model"))
    used = _fields(answered.get("usage"))
    input_tokens = _first_int(used.get("input_tokens"), used.get("prompt_tokens"))
    if input_tokens is None:
        input_tokens = _first_length(answered.get("prompt_ids"), asked.get("prompt_ids"))
    attributes[semconv.USAGE_INPUT_TOKENS] = input_tokens
    output_tokens = _first_int(used.get("output_tokens"), used.get("completion_tokens"))
    if output_tokens is None:
        output_tokens = _first_length(answered.get("response_ids"), answered.get("token_ids"))
    attributes[semconv.USAGE_OUTPUT_TOKENS] = output_tokens
    choices = answered.get("choices")
    choice = _fields(choices[0] if type(choices) is list and choices else None)
    reason = _first_text(answered.get("finish_reason"), answered.get("stop_reason"), choice.get("finish_reason"))
    attributes[semconv.FINISH_REASONS] = (reason,) if reason is not None else None
    return {key: value for key, value in attributes.items() if value is not None}


def _fields(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _first_text(*values: Any) -> str | None:
    for value in values:
        if type(value) is str and value:
            return value
    return None


def _first_int(*values: Any) -> int | None:
    for value in values:
        if type(value) is int:
            return value
    return None


def _first_length(*values: Any) -> int | None:
    for value in values:
        if type(value) is list:
            return len(value)
        # A private array of numpy.
        shape = getattr(value, "shape", None)
        if shape:
            return int(shape[0])
    return None
