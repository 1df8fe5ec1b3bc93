"""A span's payload as the JSON of a Weave call, spliced in without parsing."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from otel_rollout import semconv
from otel_rollout.messages import Message, answer_json, ids_as_text, request_json

__all__ = ["as_inputs", "as_output", "is_json_of_ours"]


def as_inputs(
    text: str | None, *, is_trusted: bool, with_ids_as_text: bool = False, messages: Sequence[Message] = ()
) -> bytes:
    """Return a span's input as a JSON object; Weave refuses a batch with other inputs.

    Args:
        text: The input attribute: JSON, or any text of another instrumentation.
        is_trusted: The text is known to be JSON.
        with_ids_as_text: Replace each list of token ids by one text.
        messages: The messages on the span, which Weave draws as a conversation.
    """
    if messages:
        rest = None if text is None else _as_json(text, is_trusted=is_trusted, with_ids_as_text=with_ids_as_text)
        return request_json(messages, None if rest is None else rest.decode()).encode()
    if text is None:
        return b"{}"
    value = _as_json(text, is_trusted=is_trusted, with_ids_as_text=with_ids_as_text)
    return value if value.startswith(b"{") else b'{"input":' + value + b"}"


def as_output(
    text: str | None,
    *,
    is_trusted: bool,
    with_ids_as_text: bool = False,
    reward: float | None = None,
    messages: Sequence[Message] = (),
) -> bytes:
    """Return a span's output as JSON.

    Args:
        text: The output attribute: JSON, or any text of another instrumentation.
        is_trusted: The text is known to be JSON.
        with_ids_as_text: Replace each list of token ids by one text.
        reward: Added as the key `reward`; an output that is no object becomes the key `output` next to it.
        messages: The model's answers, which Weave draws as a conversation.
    """
    value = b"null" if text is None else _as_json(text, is_trusted=is_trusted, with_ids_as_text=with_ids_as_text)
    if messages:
        value = answer_json(messages, value.decode()).encode()
    if reward is None:
        return value
    number = orjson.dumps(reward)
    if value == b"null":
        return b'{"reward":' + number + b"}"
    if not value.startswith(b"{"):
        return b'{"output":' + value + b',"reward":' + number + b"}"
    body = value.rstrip()[:-1]
    separator = b"" if body.strip() == b"{" else b","
    return body + separator + b'"reward":' + number + b"}"


def is_json_of_ours(mime_type: object, scope_name: str) -> bool:
    """Return True if otel-rollout wrote a payload, which is valid JSON then.

    Args:
        mime_type: The payload's MIME type attribute.
        scope_name: The name of the span's instrumentation scope.
    """
    return mime_type == semconv.JSON_MIME_TYPE and scope_name.replace("-", "_").partition(".")[0] == "otel_rollout"


def _as_json(text: str, *, is_trusted: bool, with_ids_as_text: bool) -> bytes:
    payload = text.encode("utf-8", "replace")
    if not is_trusted and not _is_json(payload):
        return orjson.dumps(payload.decode())
    return ids_as_text(payload) if with_ids_as_text else payload


def _is_json(payload: bytes) -> bool:
    # One invalid payload has the whole batch refused. Only an object or a list counts as JSON: a text that is a JSON
    # number by chance is a text.
    if payload[:1] not in (b"{", b"["):
        return False
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError:
        return False
    return True
