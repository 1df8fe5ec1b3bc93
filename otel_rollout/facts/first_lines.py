"""The first line of a prompt and of an answer.

A payload is parsed piece by piece, up to the piece with the line: prompts are at the beginning, and texts before
token ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from otel_rollout import semconv
from otel_rollout.messages import convert_messages, is_message, read_template, text_message, unfolded
from otel_rollout.text.plain_text import shorten
from otel_rollout.text.sanitize import replace_surrogates

MAX_LINE_CHARACTERS: Final = 200
"""Longer lines are cut, and end in an ellipsis."""
MAX_SEARCHED_CHARACTERS: Final = 256 * 1024
"""Pieces that begin after so many characters are not read."""
MAX_STRING_CHARACTERS: Final = 4096
_MAX_KEPT: Final = 600
_MAX_PIECES: Final = 1000
_LONGEST_ESCAPE: Final = 6
_MAX_DEPTH: Final = 6
_MAX_ITEMS: Final = 64
_DECODER: Final = json.JSONDecoder(strict=False)
"""It takes control characters and half a surrogate pair."""
_USERS: Final = ("user", "human")
_TEMPLATES: Final = ("<|", "<s>", "<bos>", "<start_of_turn>", "[INST]", "<\uff5c")
_THOUGHTS: Final = ("<think", "<|channel|>")
"""The beginnings of texts in a chat template's form, and of answers with a thought."""
_ASKED: Final = re.compile(r'\{\s*"role"\s*:\s*"(?:user|human)"')
_SAID: Final = re.compile(r'\{\s*"type"\s*:\s*"text"\s*,\s*"content"\s*:\s*(?=")')
"""Most messages begin with their role, most texts with their type; others are found by parsing, which takes longer."""
_KEYS_OF_TEXTS: Final = ('"text"', '"content"')
_BETWEEN: Final = re.compile(r"[\s,:]*")
_NUMBERS: Final = re.compile(r"\[\s*[-\d]")
_PROMPT_KEYS: Final = frozenset(
    {"prompt", "question", "query", "problem", "instruction", "task", "user_prompt", "input", "prompt_text", "text"}
    | {"content", "message"}
)
_ANSWER_KEYS: Final = frozenset(
    {"response_text", "output_text", "answer", "response", "completion", "content", "text", "output", "result"}
)
_ANSWERED: Final = re.compile(
    rf'\{{\s*(?:"role"\s*:\s*"\w+"\s*,\s*)?"(?:{"|".join(sorted(_ANSWER_KEYS))})"\s*:\s*(?=")'
)
"""Most payloads of a generation begin with its text, or have it after the role."""


def find_prompt(attributes: Mapping[str, Any], *, is_root: bool) -> str:
    """Return the beginning of what the user asked; empty if the span has none.

    Args:
        attributes: The span's.
        is_root: The span is a trajectory's root, whose whole input is the prompt.
    """
    text, messages = _text(attributes, semconv.INPUT_VALUE), _text(attributes, semconv.INPUT_MESSAGES)
    plain = _plain(text, attributes.get(semconv.INPUT_MIME_TYPE))
    if is_root and plain:
        return _kept(plain)
    named = ""
    # The program annotated a root's payload; its messages come from generations.
    for payload in (text, messages) if is_root else (messages, text):
        found = _ASKED.search(payload, 0, MAX_SEARCHED_CHARACTERS)
        if found is not None and (asked := _asked_at(payload, found.start())):
            return _kept(asked)
        for key, piece in _pieces(payload):
            if asked := _asked(piece):
                return _kept(asked)
            if payload is text and not named:
                named = _named(key, piece, _PROMPT_KEYS)
        if is_root and named:
            break
    return _kept(plain or named or (text if is_root and text[:1] in "{[" else ""))


def find_answer(attributes: Mapping[str, Any], *, is_root: bool) -> str:
    """Return the beginning of what was answered; empty if the span has no text: tool calls are no answer.

    Args:
        attributes: The span's.
        is_root: The span is a trajectory's root, whose whole output is the answer.
    """
    text, messages = _text(attributes, semconv.OUTPUT_VALUE), _text(attributes, semconv.OUTPUT_MESSAGES)
    plain = _plain(text, attributes.get(semconv.OUTPUT_MIME_TYPE))
    if is_root and plain:
        return _said_first(plain)
    if is_root and (named := _named_answer(text)):
        # The program annotated the payload; the messages come from a generation.
        return _said_first(named)
    found = _SAID.search(messages, 0, MAX_SEARCHED_CHARACTERS)
    if found is not None and (said := _string_at(messages, found.end()).strip()):
        return _said_first(said)
    for _, piece in _pieces(messages) if any(key in messages for key in _KEYS_OF_TEXTS) else ():
        if is_message(piece) and (said := _said(piece)):
            return _said_first(said)
    if messages and not is_root:
        return ""
    if is_root:
        return _said_first(text if text[:1] in "{[" else "")
    return _said_first(plain or _named_answer(text))


def _named_answer(text: str) -> str:
    if (found := _ANSWERED.match(text)) and (answer := _string_at(text, found.end())):
        return answer
    return next(filter(None, (_named(key, piece, _ANSWER_KEYS) for key, piece in _pieces(text))), "")


def line_of(text: str) -> str:
    """Return the first line of a text that was found."""
    return replace_surrogates(shorten(text.partition("\n")[0], MAX_LINE_CHARACTERS)) if text else ""


def _kept(text: str) -> str:
    """Return the beginning of a prompt; of one in a chat template's form, of what the user said first."""
    text = "" if text == "null" else text.strip()
    if text.startswith(_TEMPLATES):
        said = read_template(text[:MAX_SEARCHED_CHARACTERS])
        text = next((message.text for message in said if message.role == "user"), text).strip()
    return text[:_MAX_KEPT]


def _said_first(text: str) -> str:
    """Return the beginning of an answer, without the thought before its words and the marks of a template."""
    text = "" if text == "null" else text.strip()
    if text.startswith(_THOUGHTS) or "<|" in text[:MAX_STRING_CHARACTERS]:
        said = unfolded(text_message("assistant", text[:MAX_SEARCHED_CHARACTERS]))
        text = next(filter(None, (message.text.strip() for message in said)), text)
    return text[:_MAX_KEPT]


def _text(attributes: Mapping[str, Any], key: str) -> str:
    value = attributes.get(key)
    return value if isinstance(value, str) else ""


def _plain(text: str, mime_type: Any) -> str:
    """Return a payload that is a text or a JSON string as its text; empty for another."""
    if not text or text == "null":
        return ""
    if mime_type == semconv.TEXT_MIME_TYPE or text[0] not in '{["':
        return text
    if text[0] != '"':
        return ""
    return _string_at(text, 0)


def _string_at(text: str, at: int) -> str:
    """Return the beginning of a JSON string, which may be cut."""
    head = text[at : at + MAX_STRING_CHARACTERS]
    with suppress(ValueError):
        return str(_DECODER.raw_decode(head)[0])
    for less in range(_LONGEST_ESCAPE + 1):
        with suppress(ValueError):
            return str(_DECODER.raw_decode(f'{head[: len(head) - less]}"')[0])
    return ""


def _pieces(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a JSON list, or the members of an object and itself if it is a message; each parsed in turn.

    It ends quietly where the text is no JSON, or cut. Lists of numbers are passed over.
    """
    if not text or text[0] not in "{[" or _NUMBERS.match(text):
        return
    whole: dict[str, Any] = {}
    key, at = "", 1
    try:
        while at < MAX_SEARCHED_CHARACTERS and len(whole) < _MAX_PIECES:
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            if text[at] in "]}":
                break
            if text[0] == "{":
                key, at = _DECODER.raw_decode(text, at)
                at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
            if text[at] == "[" and _NUMBERS.match(text, at):
                at = text.index("]", at) + 1
                continue
            piece, at = _DECODER.raw_decode(text, at)
            whole[key or str(at)] = piece
            yield key, piece
    except (ValueError, TypeError, IndexError, RecursionError):
        pass
    if is_message(whole):
        yield "", whole


def _asked_at(text: str, at: int) -> str:
    try:
        return _asked(_DECODER.raw_decode(text, at)[0])
    except (ValueError, RecursionError):
        return ""


def _asked(value: Any, depth: int = 0) -> str:
    """Return the first text of the first message of a user in a value; empty if it has none."""
    if depth > _MAX_DEPTH or type(value) not in (dict, list):
        return ""
    if type(value) is dict and (value.get("role") in _USERS or value.get("type") in _USERS) and is_message(value):
        return _said(value)
    items = value.values() if type(value) is dict else value
    return next(filter(None, (_asked(item, depth + 1) for item in items)), "")


def _said(message: dict[str, Any]) -> str:
    """Return the first text in a message."""
    for each in convert_messages(message):
        for part in each.parts:
            if part["type"] == "text" and (text := str(part["content"])).strip():
                return text
    return ""


def _named(key: str, value: Any, keys: frozenset[str], depth: int = 0) -> str:
    """Return the first text under one of some keys; empty if there is none."""
    if type(value) is str:
        return value if key in keys else ""
    if depth > _MAX_DEPTH:
        return ""
    if type(value) is dict:
        return next(filter(None, (_named(name, item, keys, depth + 1) for name, item in value.items())), "")
    if type(value) is list:
        return next(filter(None, (_named("", item, keys, depth + 1) for item in value[:_MAX_ITEMS])), "")
    return ""
