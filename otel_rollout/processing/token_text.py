"""Token ids to text, on the delivery thread.

As in verl's token2text, the prompt's ids are `prompt_ids` of the output, else of the arguments; the response's are
`response_ids` of the output, else its `token_ids`. The ids are read from the payload's JSON: later changes to the
program's lists don't matter.
"""

from __future__ import annotations

from typing import Any

import orjson

from otel_rollout.safety.log_once import warn_once
from otel_rollout.values.sanitize import replace_surrogates

__all__ = ["add_token_text"]


def add_token_text(tokenizer: Any, input_text: bytes | None, output_text: bytes) -> bytes:
    """Return `output_text` with `prompt_text` and `response_text` beside the ids; unchanged if decoding fails.

    Tokenizers in Rust fail if two threads use one at once: the caller holds a lock.

    Args:
        tokenizer: Any object with `decode(ids) -> str`.
        input_text: The arguments as JSON text, if they were captured.
        output_text: The result as JSON text.
    """
    if not output_text.startswith(b"{") or b"_ids" not in output_text + (input_text or b""):
        return output_text
    output = orjson.loads(output_text)
    prompt_ids = output.get("prompt_ids")
    if prompt_ids is None and input_text is not None and b'"prompt_ids"' in input_text:
        prompt_ids = orjson.loads(input_text).get("prompt_ids")
    response_ids = output.get("response_ids")
    if response_ids is None:
        response_ids = output.get("token_ids")
    texts = {
        name: text
        for name, ids in (("prompt_text", prompt_ids), ("response_text", response_ids))
        if isinstance(ids, list) and name not in output and all(type(number) is int for number in ids)
        if (text := _decode(tokenizer, ids)) is not None
    }
    return orjson.dumps({**output, **texts}) if texts else output_text


def _decode(tokenizer: Any, ids: list[int]) -> str | None:
    try:
        text = tokenizer.decode(ids)
    except BaseException as error:  # a panic in Rust is not an Exception
        warn_once(
            "token2text",
            "token2text: the tokenizer failed (%s: %s); payloads keep their ids only",
            type(error).__name__,
            error,
        )
        return None
    return replace_surrogates(text) if isinstance(text, str) else None
