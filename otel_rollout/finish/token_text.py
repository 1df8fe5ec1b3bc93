"""Token ids to text, on the delivery thread, and the order of a payload: texts first, long lists of numbers last.

As in verl's token2text, the prompt's ids are `prompt_ids` of the output, else of the arguments; the response's are
`response_ids` of the output, else its `token_ids`. The ids are read from the snapshot: later changes to the program's
lists don't matter. Each text is in the payload that has its ids.
"""

from __future__ import annotations

from typing import Any, Final

from otel_rollout.guard.log_once import warn_once
from otel_rollout.messages.names import PROMPT_TEXT, RESPONSE_TEXT
from otel_rollout.text.sanitize import replace_surrogates

_PROMPT_IDS: Final = "prompt_ids"
_RESPONSE_IDS: Final = ("response_ids", "token_ids")
MIN_NUMBERS: Final = 16
"""The length from which a list of numbers is put at the end."""


def add_token_text(tokenizer: Any, arguments: Any, result: Any) -> tuple[Any, Any]:
    """Return both payloads with `prompt_text` and `response_text` before the ids; unchanged if decoding fails.

    Tokenizers in Rust fail if two threads use one simultaneously: the caller holds a lock.

    Args:
        tokenizer: Any object with `decode(ids) -> str`.
        arguments: The arguments, if they were captured.
        result: The result, if there is one.
    """
    if type(result) is dict:
        ids = result.get(_RESPONSE_IDS[0])
        result = _with_text(tokenizer, result, RESPONSE_TEXT, result.get(_RESPONSE_IDS[1]) if ids is None else ids)
        if result.get(_PROMPT_IDS) is not None:
            return arguments, _with_text(tokenizer, result, PROMPT_TEXT, result[_PROMPT_IDS])
    if type(arguments) is dict and PROMPT_TEXT not in (result if type(result) is dict else ()):
        arguments = _with_text(tokenizer, arguments, PROMPT_TEXT, arguments.get(_PROMPT_IDS))
    return arguments, result


def numbers_last(value: Any) -> Any:
    """Return a payload with long lists of numbers after its other items, at the top and one level below.

    Args:
        value: Any value; it stays as it is.
    """
    if type(value) is not dict:
        return value
    changed = {
        key: ordered for key, item in value.items() if type(item) is dict and (ordered := _ordered(item)) is not item
    }
    return _ordered({**value, **changed} if changed else value)


def _ordered(value: dict[str, Any]) -> dict[str, Any]:
    last = {key: item for key, item in value.items() if _is_numbers(item)}
    if not last or [*value][-len(last) :] == [*last]:
        return value
    return {key: item for key, item in value.items() if key not in last} | last


def _is_numbers(value: Any) -> bool:
    if type(value) is list:
        return len(value) >= MIN_NUMBERS and type(value[0]) in (int, float)
    # A private array of numpy.
    return getattr(value, "size", 0) >= MIN_NUMBERS


def _with_text(tokenizer: Any, value: dict[str, Any], name: str, ids: Any) -> dict[str, Any]:
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    if name in value or type(ids) is not list or not all(type(number) is int for number in ids):
        return value
    text = _decode(tokenizer, ids)
    return value if text is None else {name: text, **value}


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
