"""The arguments and the result of a tool's call under the names of OpenTelemetry's GenAI conventions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.finish.payload_limits import cut_json
from otel_rollout.text.plain_text import cut_text
from otel_rollout.text.sanitize import replace_surrogates

MAX_TEXT_CHARACTERS: Final = 64 * 1024
"""A longer payload is whole in `input.value` and `output.value` alone: requests must not double in size."""
_SIDES: Final = (
    (semconv.TOOL_CALL_ARGUMENTS, semconv.INPUT_VALUE, semconv.INPUT_MIME_TYPE),
    (semconv.TOOL_CALL_RESULT, semconv.OUTPUT_VALUE, semconv.OUTPUT_MIME_TYPE),
)


def tool_call_attributes(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Return the arguments and the result of a tool's call, from its input and output; without those that it has.

    Args:
        attributes: Attributes of the call's span, with a finished payload.
    """
    found: dict[str, str] = {}
    for key, payload_key, mime_key in _SIDES:
        payload = attributes.get(payload_key)
        if isinstance(payload, str) and key not in attributes:
            found[key] = _shortened(payload, is_json=attributes.get(mime_key) == semconv.JSON_MIME_TYPE)
    return found


def _shortened(payload: str, *, is_json: bool) -> str:
    if len(payload) <= MAX_TEXT_CHARACTERS:
        return payload
    if is_json:
        return cut_json(payload.encode("utf-8", "replace"), MAX_TEXT_CHARACTERS).decode()
    return cut_text(replace_surrogates(payload), MAX_TEXT_CHARACTERS)
