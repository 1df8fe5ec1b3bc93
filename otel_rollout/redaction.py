"""Secrets in a payload, found by the name of the key that holds them, on the delivery thread."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import orjson

__all__ = ["DEFAULT_REDACTED_KEYS", "Redactor"]

REDACTED: Final = "[redacted]"

DEFAULT_REDACTED_KEYS: Final = (
    "access_key",
    "access_token",
    "api_key",
    "api_token",
    "apikey",
    "auth_token",
    "authorization",
    "bearer_token",
    "client_secret",
    "cookie",
    "hf_token",
    "id_token",
    "passwd",
    "password",
    "private_key",
    "proxy_authorization",
    "refresh_token",
    "secret",
    "secret_key",
    "session_token",
    "set_cookie",
    "token",
)
"""Keys whose text values are replaced; upper case, camelCase, `-` and `_` make no difference, and so does anything
before them (`X-API-Key`, `OPENAI_API_KEY`), except before `token`: `eos_token` and `pad_token` are no secrets. In upper
case, as environment variables are named, `…_TOKEN` is one (`GITHUB_TOKEN`), except a tokenizer's special tokens."""

SPECIAL_TOKENS: Final = frozenset(
    {"bos_token", "cls_token", "eos_token", "mask_token", "pad_token", "sep_token", "unk_token"}
)
"""Source: https://huggingface.co/docs/transformers/main_classes/tokenizer"""

_SEPARATORS: Final = str.maketrans("-.", "__")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Redactor:
    """Replaces text values under keys that name a secret, also in JSON that stands as a text in the payload.

    Only text is replaced, alone or in a list: a number or a list of numbers under `token` is a token id, not a secret.
    In a text that holds broken JSON, or JSON among other things, the quoted values behind the keys are replaced.

    Args:
        keys: The names of the keys, in any case; empty to replace nothing.
    """

    def __init__(self, keys: Iterable[str] = DEFAULT_REDACTED_KEYS) -> None:
        self._exact = frozenset(_normal(key) for key in keys)
        self._endings = tuple(f"_{key}" for key in self._exact if key != "token")
        last_words = {_last_word(key) for key in self._exact}
        words = sorted(re.escape(word) for word in last_words)
        # From the quote that opens a key to the one that closes it, which is escaped in JSON within a text.
        self._key = re.compile(rb'"[\w\x80-\xff.-]{0,64}(?:%s)\\*":' % b"|".join(words)) if words else None
        self._suspect = _suspect_colon(last_words) if words else None
        self._pair = _pair_in_text(words) if words else None

    def may_find(self, text: bytes) -> bool:
        """Return whether `text` may hold a secret: False is sure, True is worth a closer look.

        Args:
            text: JSON in UTF-8, or several such texts one after the other.
        """
        return self._suspect is not None and self._suspect.search(text) is not None

    def __call__(self, text: bytes) -> bytes:
        """Return the JSON `text` with the secrets in it replaced.

        Args:
            text: JSON in UTF-8.
        """
        lowered = text.lower()
        if self._key is None or self._key.search(lowered) is None:
            return text
        inner = b'\\":' in lowered
        try:
            # In a list, so that a payload that is nothing but a text has a place to be replaced in.
            root = [orjson.loads(text)]
            return orjson.dumps(root[0]) if self._redact(root, inner=inner) else text
        except (ValueError, TypeError, RecursionError):
            # Nested deeper than orjson writes; what can't be searched must not leave.
            return orjson.dumps(REDACTED)

    def _redact(self, root: Any, *, inner: bool) -> bool:
        found = False
        pending = [root]
        while pending:
            value = pending.pop()
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                name = key if isinstance(key, str) else ""
                is_secret = bool(name) and isinstance(item, (str, list)) and self._names_secret(name)
                if isinstance(item, (dict, list)):
                    # Texts under `token` are a model's tokens; under `Authorization`, a header's values.
                    if is_secret and isinstance(item, list) and _normal(name) != "token":
                        found = _hide_texts(item) or found
                    pending.append(item)
                elif isinstance(item, str) and item:
                    replaced = REDACTED if is_secret else self._redact_inner(item) if inner else item
                    if replaced is not item:
                        value[key] = replaced
                        found = True
        return found

    def _redact_inner(self, text: str) -> str:
        if '":' not in text:
            return text
        if text.lstrip()[:1] in ("{", "["):
            try:
                value = orjson.loads(text)
                return orjson.dumps(value).decode() if self._redact(value, inner=True) else text
            except (ValueError, TypeError, RecursionError):
                # What Python's `json` writes and orjson doesn't read (NaN, lone surrogates), JSON lines, a cut text.
                pass
        return self._pair.sub(self._hide_pair, text) if self._pair is not None else text

    def _hide_pair(self, match: re.Match[str]) -> str:
        key, quote, between, value = match.group("key", "quote", "between", "value")
        is_list = value.startswith("[")
        if not self._names_secret(key) or value == quote * 2 or (is_list and _normal(key) == "token"):
            return match[0]
        hidden = f"{quote}{REDACTED}{quote}"
        return f'"{key}{quote}{between}{f"[{hidden}]" if is_list else hidden}'

    def _names_secret(self, key: str) -> bool:
        normal = _normal(key)
        return (
            normal in self._exact
            or normal.endswith(self._endings)
            or (key.isupper() and normal.endswith("_token") and "token" in self._exact and normal not in SPECIAL_TOKENS)
        )


def _hide_texts(items: list[Any]) -> bool:
    found = False
    for position, item in enumerate(items):
        if isinstance(item, str) and item:
            items[position] = REDACTED
            found = True
        elif isinstance(item, list):
            found = _hide_texts(item) or found
    return found


def _normal(key: str) -> str:
    return _CAMEL.sub("_", key).lower().translate(_SEPARATORS)


def _last_word(key: str) -> bytes:
    # Finds every spelling (`API-Key`, `api_key`, `apiKey`).
    return key.rpartition("_")[2].encode()


def _suspect_colon(words: set[bytes]) -> re.Pattern[bytes]:
    """Return a pattern for a colon behind a key that may end in one of `words`, or behind one in JSON within a text.

    It begins with the colon and looks back: `re` finds a single byte several times faster than it tries a pattern at
    each quote. Most keys are done with at their last letters.

    Args:
        words: The last words of the keys, in lower case.
    """
    endings = b"|".join(b'(?<=%s":)' % _any_case(re.escape(word)) for word in sorted(words))
    last_letters = b"".join(_any_of({word[-place:][: len(word) >= place] for word in words}) for place in (3, 2, 1))
    return re.compile(rb':(?<=":)(?:(?<=\\":)|(?<=%s":)(?:%s))' % (last_letters, endings))


def _pair_in_text(words: Iterable[bytes]) -> re.Pattern[str]:
    """Return a pattern for a key that may end in one of `words` with the text or list behind it, in any text.

    A quote is escaped once or more in JSON within JSON. A text or list that has no end goes to the end of all, so that
    each match succeeds at the first try, whatever the text.

    Args:
        words: The last words of the keys, escaped for a pattern, in lower case.
    """
    names = "|".join(word.decode() for word in words)
    key = rf'"(?P<key>[\w.-]{{0,64}}(?:{names}))(?P<quote>\\*")(?P<between>\s*:\s*)'
    text = r"(?P=quote).*?(?:(?<!\\)(?P=quote)|\Z)"
    return re.compile(rf"{key}(?P<value>{text}|\[(?:{text}|[^\]])*\]?)", re.IGNORECASE | re.DOTALL)


def _any_case(word: bytes) -> bytes:
    return b"".join(b"[%c%c]" % (code, code - 0x20) if 0x61 <= code <= 0x7A else b"%c" % code for code in word)


def _any_of(letters: set[bytes]) -> bytes:
    """Return a pattern for one byte: one of `letters` in any case; any byte where a word has none in this place."""
    if not all(letters):
        return rb"[\x00-\xff]"
    return b"[%s]" % b"".join(b"\\x%02x" % code for code in sorted(b"".join(letters) + b"".join(letters).upper()))
