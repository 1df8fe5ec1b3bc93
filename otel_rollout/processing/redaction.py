"""Secrets in what leaves the process: found by the name of the key that holds them, or by their own form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from otel_rollout.pattern_check import compile_pattern
from otel_rollout.processing.secret_keys import DEFAULT_REDACTED_KEYS, KeyKind, SecretKeys
from otel_rollout.processing.secret_patterns import REDACTED, find_forms, hide_forms
from otel_rollout.processing.secret_text import NAME_FIELDS, VALUE_FIELDS, SecretTexts, is_model_token
from otel_rollout.safety.signal_handlers import is_from_signal_handler
from otel_rollout.settings import BUILT_IN

__all__ = ["Redactor", "make_redactor"]

BESIDE_A_MODELS_TOKEN: Final = frozenset({"bytes", "decoded_token", "logprob", "logprobs", "rank", "token_id"})
"""Keys beside `token` in what a model's API says of the tokens that it sampled."""
_SCHEMA_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_SCHEMA_KEYS: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
MAX_LABEL: Final = 200
MAX_INNER_LABEL: Final = 24
MAX_LABELS: Final = 4096
"""How many short texts (names, kinds, models) are remembered as having no secret."""
MIN_KEY: Final = 16
"""Shorter keys are no secrets themselves."""
PAIR: Final = 2


class Redactor:
    """Replaces secrets, in JSON and in texts.

    Only text is replaced: a number, and a list of numbers, is never a secret.

    Args:
        keys: The names of keys whose values are secrets, in any spelling; empty for none.
        patterns: Regular expressions for more secrets: what they match is replaced.
        has_forms: Whether secrets are also found by their own form.
    """

    def __init__(
        self,
        keys: Iterable[str] = DEFAULT_REDACTED_KEYS,
        patterns: Iterable[str] = (),
        *,
        has_forms: bool = True,
    ) -> None:
        self._keys = SecretKeys(keys)
        self._texts = SecretTexts(self._keys) if self._keys else None
        self._patterns: list[re.Pattern[str]] = [compile_pattern(pattern) for pattern in patterns]
        self._has_forms = has_forms
        self._labels: set[tuple[str, str]] = set()
        self.redacted = 0
        """How many values were replaced."""

    def may_find(self, text: bytes) -> bool:
        """Return whether `text` may hold a secret: False is sure, True is worth a closer look.

        Args:
            text: JSON in UTF-8, or several such texts one after the other.
        """
        # A pattern of a user's may look at signs that JSON escapes, or at the ends of a text.
        return (
            bool(self._patterns)
            or (self._texts is not None and self._texts.may_find(text))
            or (self._has_forms and find_forms(text))
        )

    def __call__(self, text: bytes) -> bytes:
        """Return the JSON `text` with the secrets in it replaced; it stays valid JSON.

        Args:
            text: JSON in UTF-8.
        """
        if not self.may_find(text):
            return text
        try:
            # In a list, so that a payload that is nothing but a text has a place to be replaced in.
            root = [orjson.loads(text)]
            before = self.redacted
            self._walk(root)
            return orjson.dumps(root[0]) if self.redacted != before else text
        except (ValueError, TypeError, RecursionError) as error:
            if is_from_signal_handler(error):
                raise
            # Nested deeper than orjson writes; what can't be searched must not leave.
            self.redacted += 1
            return orjson.dumps(REDACTED)

    def text(self, text: str) -> str:
        """Return any text with the secrets in it replaced: JSON, a message, a stack trace.

        Args:
            text: The text.
        """
        encoded = text.encode("utf-8", "surrogatepass")
        # Between quotes, as it would stand in JSON.
        if not text or not self.may_find(b'"%b"' % encoded):
            return text
        if text.lstrip()[:1] in ("{", "["):
            try:
                before = self.redacted
                root = orjson.loads(encoded)
                self._walk(root)
                return orjson.dumps(root).decode() if self.redacted != before else text
            except (ValueError, TypeError, RecursionError) as error:
                if is_from_signal_handler(error):
                    raise
                # What Python's `json` writes and orjson doesn't read (NaN, lone surrogates), JSON lines, a cut text.
        if self._has_forms:
            text, count = hide_forms(text, encoded)
            self.redacted += count
        if self._texts is not None:
            text, count = self._texts.hide(text)
            self.redacted += count
        for pattern in self._patterns:
            text, count = pattern.subn(REDACTED, text)
            self.redacted += count
        return text

    def label(self, text: str, key: str = "") -> str:
        """Return a text as `text` does; short ones that come again and again are looked at once.

        Args:
            text: A name, a kind, an identifier.
            key: The key that it stands under, if there is one.
        """
        if type(text) is not str:
            # Of a subclass, what its methods say does not count.
            text = str.__str__(text)
        if (key, text) in self._labels:
            return text
        kind = self._keys.kind(key) if key else KeyKind.ORDINARY
        if kind and text and text != REDACTED and not (kind is KeyKind.TOKEN and is_model_token(text)):
            self.redacted += 1
            return REDACTED
        clean = self.text(text)
        if clean is text and len(text) <= MAX_LABEL:
            if len(self._labels) >= MAX_LABELS:
                self._labels.clear()
            self._labels.add((key, text))
        return clean

    def attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return attributes with the secrets in them replaced; the same object where there is none.

        Args:
            attributes: Texts, lists of texts and other values by key.
        """
        changed: dict[str, Any] = {}
        for key, value in attributes.items():
            name = key if type(key) is str else ""
            if isinstance(value, str):
                clean: Any = self.label(value, name)
                if clean is not value:
                    changed[key] = clean
            elif isinstance(value, (list, tuple)):
                items = tuple(self.label(item, name) if isinstance(item, str) else item for item in value)
                if any(item is not before for item, before in zip(items, value, strict=True)):
                    changed[key] = items
        return {**attributes, **changed} if changed else attributes  # type: ignore[return-value]  # as it came

    def _inner(self, text: str) -> str:
        # Roles, types and names come again in each message.
        return self.label(text) if len(text) <= MAX_INNER_LABEL else self.text(text)

    def _walk(self, root: Any) -> None:
        pending = [root]
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                self._walk_object(value, pending)
            else:
                self._walk_list(value, pending)

    def _walk_object(self, value: dict[str, Any], pending: list[Any]) -> None:
        is_pair = self._names_pair(value)
        for key, item in list(value.items()):
            kind = KeyKind.SECRET if is_pair and key in VALUE_FIELDS else self._keys.kind(key)
            if isinstance(item, str):
                if kind and self._is_secret(item, kind, value):
                    self.redacted += 1
                    value[key] = REDACTED
                else:
                    value[key] = self._inner(item)
            elif isinstance(item, (dict, list)):
                if kind is KeyKind.SECRET:
                    self._hide_texts(item, pending)
                else:
                    pending.append(item)
        for key in [key for key in value if len(key) >= MIN_KEY]:
            clean = self.text(key)
            if clean != key:
                while clean in value:
                    clean += "'"
                value[clean] = value.pop(key)

    def _walk_list(self, value: list[Any], pending: list[Any]) -> None:
        # A list of pairs, as HTTP clients write headers; `["password", "name"]` alone may be a list of names.
        is_option = False
        for position, item in enumerate(value):
            if isinstance(item, str):
                name = item.lstrip("-") if item.startswith("-") else ""
                if is_option and not name and item:
                    self.redacted += 1
                    value[position] = REDACTED
                else:
                    value[position] = self._inner(item)
                is_option = bool(name) and self._keys.kind(name) > KeyKind.ORDINARY
            elif isinstance(item, list) and len(item) == PAIR and all(isinstance(one, str) for one in item):
                if self._keys.kind(item[0]) and item[1] and item[1] != REDACTED:
                    self.redacted += 1
                    item[1] = REDACTED
                pending.append(item)
            elif isinstance(item, (dict, list)):
                pending.append(item)

    def _names_pair(self, value: dict[str, Any]) -> bool:
        return any(field in value for field in VALUE_FIELDS) and any(
            isinstance(name := value.get(field), str) and self._keys.kind(name) > KeyKind.ORDINARY
            for field in NAME_FIELDS
        )

    def _is_secret(self, item: str, kind: KeyKind, beside: dict[str, Any]) -> bool:
        if not item or item == REDACTED:
            return False
        return kind is KeyKind.SECRET or not (is_model_token(item) or not BESIDE_A_MODELS_TOKEN.isdisjoint(beside))

    def _hide_texts(self, root: Any, pending: list[Any]) -> None:
        """Replace every text below a key of a secret, but for a JSON schema's, which describes one."""
        if isinstance(root, dict) and (
            root.get("type") in _SCHEMA_TYPES or isinstance(root.get("type"), list) or not _SCHEMA_KEYS.isdisjoint(root)
        ):
            pending.append(root)
            return
        inner = [root]
        while inner:
            value = inner.pop()
            for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
                if isinstance(item, (dict, list)):
                    inner.append(item)
                elif isinstance(item, str) and item and item != REDACTED:
                    self.redacted += 1
                    value[key] = REDACTED


def make_redactor(keys: Iterable[str], patterns: Iterable[str]) -> Redactor | None:
    """Return what replaces secrets as the settings say; None where they say that nothing is replaced.

    Args:
        keys: Names of keys, `-name` for one that is left out, and `BUILT_IN`.
        patterns: Regular expressions, and `BUILT_IN`.
    """
    names = set(keys)
    if BUILT_IN in names:
        names = (names - {BUILT_IN}) | set(DEFAULT_REDACTED_KEYS)
    left_out = {name[1:] for name in names if name.startswith("-")}
    expressions = list(patterns)
    names = {name for name in names if not name.startswith("-")} - left_out
    if not names and not expressions:
        return None
    return Redactor(
        names, [pattern for pattern in expressions if pattern != BUILT_IN], has_forms=BUILT_IN in expressions
    )
