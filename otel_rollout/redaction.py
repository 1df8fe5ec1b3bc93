"""Secrets in a payload, found by the name of the key that holds them, on the delivery thread."""

from __future__ import annotations

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
"""Keys whose text values are replaced; case, `-` and `_` make no difference, and so does anything before a `_`,
except for names that end in `token`: `eos_token` and `pad_token` are no secrets."""


class Redactor:
    """Replaces text values under keys that name a secret.

    Only text is replaced: a number or a list under `token` is a token id, not a secret.

    Args:
        keys: The names of the keys, in any case; empty to replace nothing.
    """

    def __init__(self, keys: Iterable[str] = DEFAULT_REDACTED_KEYS) -> None:
        self._exact = frozenset(_normal(key) for key in keys)
        self._endings = tuple(f"_{key}" for key in self._exact if not key.endswith("token"))
        self._needles = tuple(sorted({_needle(key) for key in self._exact}))

    def __call__(self, text: bytes) -> bytes:
        """Return the JSON `text` with the secrets in it replaced.

        Args:
            text: JSON in UTF-8.
        """
        lowered = text.lower()
        if not any(needle in lowered for needle in self._needles):
            return text
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
        return orjson.dumps(value) if self._redact(value) else text

    def _redact(self, root: Any) -> bool:
        found = False
        pending = [root]
        while pending:
            value = pending.pop()
            if isinstance(value, list):
                pending.extend(item for item in value if isinstance(item, (dict, list)))
                continue
            for key, item in value.items() if isinstance(value, dict) else ():
                if isinstance(item, str):
                    if item and self._names_secret(key):
                        value[key] = REDACTED
                        found = True
                elif isinstance(item, (dict, list)):
                    pending.append(item)
        return found

    def _names_secret(self, key: str) -> bool:
        normal = _normal(key)
        return normal in self._exact or normal.endswith(self._endings)


def _normal(key: str) -> str:
    return key.strip().lower().replace("-", "_")


def _needle(key: str) -> bytes:
    # The last word finds every spelling (`API-Key`, `api_key`); with quote and colon it is found in keys only.
    return f'{key.rpartition("_")[2]}":'.encode()
