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
before them (`X-API-Key`, `OPENAI_API_KEY`), except before `token`: `eos_token` and `pad_token` are no secrets."""

_SEPARATORS: Final = str.maketrans("-.", "__")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Redactor:
    """Replaces text values under keys that name a secret, also in JSON that stands as a text in the payload.

    Only text is replaced: a number or a list of numbers under `token` is a token id, not a secret.

    Args:
        keys: The names of the keys, in any case; empty to replace nothing.
    """

    def __init__(self, keys: Iterable[str] = DEFAULT_REDACTED_KEYS) -> None:
        self._exact = frozenset(_normal(key) for key in keys)
        self._endings = tuple(f"_{key}" for key in self._exact if key != "token")
        words = sorted({re.escape(_last_word(key)) for key in self._exact})
        # From the quote that opens a key to the one that closes it, which is escaped in JSON within a text.
        self._key = re.compile(rb'"[\w\x80-\xff.-]{0,64}(?:%s)\\*":' % b"|".join(words)) if words else None
        self._suspect = _suspect_colon(words)

    def may_find(self, text: bytes) -> bool:
        """Return whether `text` may hold a secret: False is sure, True is worth a closer look.

        Args:
            text: JSON in UTF-8, or several such texts one after the other.
        """
        return self._key is not None and self._suspect.search(text) is not None

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
                replaced = item
                if isinstance(item, (dict, list)):
                    pending.append(item)
                    # Texts under `token` are a model's tokens; under `Authorization`, a header's values.
                    if is_secret and _normal(name) != "token" and all(isinstance(text, str) for text in item):
                        replaced = [REDACTED] * len(item)
                elif isinstance(item, str) and item:
                    if is_secret:
                        replaced = REDACTED
                    elif inner and item[0] in "{[":
                        replaced = self._redact_inner(item)
                if replaced is not item:
                    value[key] = replaced
                    found = True
        return found

    def _redact_inner(self, text: str) -> str:
        try:
            value = orjson.loads(text)
            return orjson.dumps(value).decode() if self._redact(value, inner=True) else text
        except (ValueError, TypeError, RecursionError):
            return text

    def _names_secret(self, key: str) -> bool:
        normal = _normal(key)
        return normal in self._exact or normal.endswith(self._endings)


def _normal(key: str) -> str:
    return _CAMEL.sub("_", key).lower().translate(_SEPARATORS)


def _last_word(key: str) -> bytes:
    # Finds every spelling (`API-Key`, `api_key`, `apiKey`).
    return key.rpartition("_")[2].encode()


def _suspect_colon(words: Iterable[bytes]) -> re.Pattern[bytes]:
    """Return a pattern for a colon behind a key that may end in one of `words`, or behind one in JSON within a text.

    It begins with the colon and looks back: `re` finds a single byte several times faster than it tries a pattern at
    each quote.

    Args:
        words: The last words of the keys, escaped for a pattern, in lower case.
    """
    endings = b"|".join(b'(?<=%s":)' % _any_case(word) for word in words)
    return re.compile(rb':(?<=":)(?:(?<=\\":)|%s)' % endings)


def _any_case(word: bytes) -> bytes:
    return b"".join(b"[%c%c]" % (code, code - 0x20) if 0x61 <= code <= 0x7A else b"%c" % code for code in word)
