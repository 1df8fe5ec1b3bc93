"""GenAI attributes of a language model's call: provider, model, tokens, cached tokens, finish reason."""

from __future__ import annotations

from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.record.fields import module_of
from otel_rollout.record.readers import length_of_array
from otel_rollout.record.snapshot import first_fields

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


def describe_request(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the GenAI attributes that an LLM op's arguments give: provider, model, the number of prompt ids."""
    attributes = {
        semconv.PROVIDER_NAME: _first_text(arguments.get("provider")),
        semconv.REQUEST_MODEL: _first_text(arguments.get("model")),
        semconv.USAGE_INPUT_TOKENS: _length(arguments.get("prompt_ids")),
    }
    return {key: value for key, value in attributes.items() if value is not None}


def describe_response(request: dict[str, Any], answer: Any) -> dict[str, Any]:
    """Return the GenAI attributes of an LLM op's call, by a few look-ups in its result.

    The result is read as it is, since its snapshot may be cut.

    Args:
        request: The result of `describe_request`.
        answer: The result or the exception: an OpenAI-style response with `usage`, or one with token ids (`prompt_ids`;
            `response_ids` or `token_ids`, as in verl's outputs). Of an exception only its class is read.
    """
    kind = type(answer)
    answered = {} if issubclass(kind, BaseException) else first_fields(answer)
    used = first_fields(answered.get("usage"))
    input_tokens, cached, written = _input_tokens(used)
    output_tokens = _int(used.get("output_tokens"))
    if output_tokens is None:
        output_tokens = _int(used.get("completion_tokens"))
    if input_tokens is None:
        input_tokens = _length(answered.get("prompt_ids"))
    if output_tokens is None:
        output_tokens = _length(answered.get("response_ids"))
        output_tokens = _length(answered.get("token_ids")) if output_tokens is None else output_tokens
    choices = answered.get("choices")
    choice = first_fields([*choices[:1], None][0]) if type(choices) is list else {}
    reason = _first_text(answered.get("finish_reason"), answered.get("stop_reason"), choice.get("finish_reason"))
    attributes = {
        semconv.PROVIDER_NAME: None if kind is dict else _PROVIDERS.get(module_of(kind)),
        **request,
        semconv.RESPONSE_MODEL: _first_text(answered.get("model")),
        semconv.USAGE_CACHED_TOKENS: cached,
        semconv.USAGE_CACHE_WRITE_TOKENS: written,
        semconv.USAGE_OUTPUT_TOKENS: output_tokens,
        semconv.FINISH_REASONS: None if reason is None else (reason,),
    }
    if input_tokens is not None:
        attributes[semconv.USAGE_INPUT_TOKENS] = input_tokens
    return {key: value for key, value in attributes.items() if value is not None}


def _input_tokens(used: dict[str, Any]) -> tuple[int | None, int | None, int | None]:
    """Return the input tokens of a response's `usage`, and how many of them were read from and written to a cache.

    By the conventions, input tokens include the cached ones. OpenAI's do; next to Anthropic's `input_tokens` they are
    numbers of their own, and are added.
    """
    cached, written = _int(used.get("cache_read_input_tokens")), _int(used.get("cache_creation_input_tokens"))
    total = _int(used.get("input_tokens"))
    if total is None:
        total = _int(used.get("prompt_tokens"))
    else:
        total += (cached or 0) + (written or 0)
    if cached is None:
        details = used.get("prompt_tokens_details", used.get("input_tokens_details"))
        cached = None if details is None else _int(first_fields(details).get("cached_tokens"))
    return total, cached, written


def _first_text(*values: Any) -> str | None:
    return next((value for value in values if type(value) is str and value), None)


def _int(value: Any) -> int | None:
    return value if type(value) is int else None


def _length(ids: Any) -> int | None:
    """Return the number of token ids in a list, a tuple, or an array or tensor of one dimension."""
    kind = type(ids)
    if kind is list or kind is tuple:
        return len(ids)
    return None if ids is None else length_of_array(ids)
