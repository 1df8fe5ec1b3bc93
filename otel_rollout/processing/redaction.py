"""Redaction: secrets are found by the name of their key, or by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from otel_rollout.pattern_check import compile_pattern
from otel_rollout.processing.secret_keys import DEFAULT_REDACTED_KEYS, KeyKind, SecretKeys
from otel_rollout.processing.secret_patterns import REDACTED, find_forms, redact_forms
from otel_rollout.processing.secret_text import NAME_FIELDS, VALUE_FIELDS, SecretTexts, is_model_token
from otel_rollout.safety.signal_handlers import is_from_signal_handler
from otel_rollout.settings import BUILT_IN

__all__ = ["Redactor", "make_redactor"]

BESIDE_A_MODELS_TOKEN: Final = frozenset({"bytes", "decoded_token", "logprob", "logprobs", "rank", "token_id"})
"""Keys beside `token` in a model API's log probabilities."""
_SCHEMA_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")
_SCHEMA_KEYS: Final = frozenset({"$ref", "allOf", "anyOf", "oneOf"})
MAX_LABEL: Final = 200
MAX_INNER_LABEL: Final = 24
MAX_LABELS: Final = 4096
"""At most this many short texts (names, kinds, models) are remembered as free of secrets."""
MIN_KEY: Final = 16
"""Shorter keys are no secrets themselves."""
PAIR: Final = 2


class Redactor:
    """Replaces secrets in JSON, texts and attributes.

    Only text is replaced: a number, and a list of numbers, is never a secret.

    Args:
        keys: The names of keys whose values are secrets, in any spelling.
        patterns: Regular expressions; their matches are replaced too.
        has_forms: If True, the built-in patterns of `secret_patterns` are searched for too.
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
        """The number of values replaced so far."""

    def may_find(self, json_bytes: bytes) -> bool:
        """Return False if `json_bytes` (one or more JSON texts) surely has no secret; True needs a closer look."""
        # A user's pattern may match characters that JSON escapes, or the ends of a text.
        return (
            bool(self._patterns)
            or (self._texts is not None and self._texts.may_find(json_bytes))
            or (self._has_forms and find_forms(json_bytes))
        )

    def __call__(self, json_bytes: bytes) -> bytes:
        """Return `json_bytes` with its secrets replaced; it stays valid JSON."""
        if not self.may_find(json_bytes):
            return json_bytes
        try:
            # In a list, so that a text at the top can be replaced too.
            root = [orjson.loads(json_bytes)]
            return orjson.dumps(root[0]) if self._redact_in_place(root) else json_bytes
        except (ValueError, TypeError, RecursionError) as error:
            if is_from_signal_handler(error):
                raise
            # Nested deeper than orjson can write: a text that can't be searched must not be exported.
            self.redacted += 1
            return orjson.dumps(REDACTED)

    def text(self, text: str) -> str:
        """Return any text (JSON, a message, a stack trace) with its secrets replaced."""
        encoded = text.encode("utf-8", "surrogatepass")
        # Between quotes, as it would stand in JSON.
        if not text or not self.may_find(b'"%b"' % encoded):
            return text
        if text.lstrip()[:1] in ("{", "["):
            try:
                root = orjson.loads(encoded)
                return orjson.dumps(root).decode() if self._redact_in_place(root) else text
            except (ValueError, TypeError, RecursionError) as error:
                if is_from_signal_handler(error):
                    raise
                # NaN or lone surrogates from Python's `json`, JSON lines, or a cut text.
        if self._has_forms:
            text, count = redact_forms(text, encoded)
            self.redacted += count
        if self._texts is not None:
            text, count = self._texts.redact(text)
            self.redacted += count
        for pattern in self._patterns:
            text, count = pattern.subn(REDACTED, text)
            self.redacted += count
        return text

    def label(self, text: str, key: str = "") -> str:
        """Return a text as `text` does, and remember short ones, which recur: names, kinds, identifiers.

        Args:
            text: The text.
            key: The attribute key that it is the value of, if any.
        """
        if type(text) is not str:
            # A subclass may override `__str__`.
            text = str.__str__(text)
        if (key, text) in self._labels:
            return text
        kind = self._keys.kind(key) if key else KeyKind.ORDINARY
        if kind and self._is_secret(text, kind, {}):
            self.redacted += 1
            return REDACTED
        clean = self.text(text)
        if clean is text and len(text) <= MAX_LABEL:
            if len(self._labels) >= MAX_LABELS:
                self._labels.clear()
            self._labels.add((key, text))
        return clean

    def attributes(self, attributes: Mapping[str, Any]) -> dict[str, Any]:
        """Return a copy of `attributes` with their secrets replaced; the same object if there are none."""
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
        return {**attributes, **changed} if changed else attributes  # type: ignore[return-value]  # as given

    def _redact_in_place(self, root: Any) -> bool:
        """Replace the secrets in an object or a list; return False if there are none."""
        before = self.redacted
        pending: list[Any] = [root]
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                self._redact_object(value, pending)
            else:
                self._redact_list(value, pending)
        return self.redacted != before

    def _redact_inner(self, text: str) -> str:
        # Roles, types and names recur in each message.
        return self.label(text) if len(text) <= MAX_INNER_LABEL else self.text(text)

    def _redact_object(self, value: dict[str, Any], pending: list[Any]) -> None:
        """Replace the texts of an object in place, and add its containers to `pending`."""
        is_pair = self._names_pair(value)
        for key, item in list(value.items()):
            kind = KeyKind.SECRET if is_pair and key in VALUE_FIELDS else self._keys.kind(key)
            if isinstance(item, str):
                if kind and self._is_secret(item, kind, value):
                    self.redacted += 1
                    value[key] = REDACTED
                else:
                    value[key] = self._redact_inner(item)
            elif isinstance(item, (dict, list)):
                if kind is KeyKind.SECRET:
                    self._redact_all(item, pending)
                else:
                    pending.append(item)
        for key in [key for key in value if len(key) >= MIN_KEY]:
            clean = self.text(key)
            if clean != key:
                while clean in value:
                    clean += "'"
                value[clean] = value.pop(key)

    def _redact_list(self, value: list[Any], pending: list[Any]) -> None:
        """Replace the texts of a list in place, and add its containers to `pending`."""
        # Lists of pairs are HTTP headers; `["password", "name"]` alone may be a list of names.
        is_option = False
        for position, item in enumerate(value):
            if isinstance(item, str):
                name = item.lstrip("-") if item.startswith("-") else ""
                if is_option and not name and item:
                    self.redacted += 1
                    value[position] = REDACTED
                else:
                    value[position] = self._redact_inner(item)
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

    @staticmethod
    def _is_secret(item: str, kind: KeyKind, beside: dict[str, Any]) -> bool:
        if not item or item == REDACTED:
            return False
        return kind is KeyKind.SECRET or (not is_model_token(item) and BESIDE_A_MODELS_TOKEN.isdisjoint(beside))

    def _redact_all(self, root: Any, pending: list[Any]) -> None:
        """Replace every text below a secret's key in place; a JSON schema, which describes one, is only searched."""
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
    """Return the Redactor of the settings; None if they switch redaction off.

    Args:
        keys: Names of keys; `-name` excludes one, `BUILT_IN` stands for the default names.
        patterns: Regular expressions; `BUILT_IN` stands for the built-in ones.
    """
    names = set(keys)
    if BUILT_IN in names:
        names = (names - {BUILT_IN}) | set(DEFAULT_REDACTED_KEYS)
    names = {name for name in names if name[:1] != "-" and f"-{name}" not in names}
    expressions = list(patterns)
    if not names and not expressions:
        return None
    own = [pattern for pattern in expressions if pattern != BUILT_IN]
    return Redactor(names, own, has_forms=BUILT_IN in expressions)
