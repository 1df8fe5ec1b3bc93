"""Redaction: secrets are found by their form, by the name of their key, or by a user's pattern.

Each is replaced inside the text that contains it; the text around it stays as it is, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from json import JSONDecoder
from typing import Any, Final

import orjson

from otel_rollout.finish.known_forms import FORMS_LOOK, REDACTED, Span, form_spans
from otel_rollout.finish.secret_keys import DEFAULT_REDACTED_KEYS, SecretKeys, can_be_secret
from otel_rollout.finish.secret_text import NOTATIONS_LOOK, secret_spans
from otel_rollout.settings import BUILT_IN
from otel_rollout.text.pattern_check import compile_pattern

MOST_MEMORY: Final = 2**24
"""Bytes of google-re2's automaton; with its default it would start anew in the middle of a text, again and again."""
MAX_LABEL: Final = 200
MAX_LABELS: Final = 4096
"""At most this many short texts (names, kinds, models) are remembered as free of secrets."""


class Redactor:
    """Replaces secrets in JSON, texts and attributes; each result comes with the number of values replaced in it.

    Args:
        keys: The names of keys whose values are secrets, in any spelling.
        patterns: Regular expressions; their matches are replaced too.
        has_forms: If True, tokens of known forms are replaced too.
    """

    def __init__(
        self, keys: Iterable[str] = DEFAULT_REDACTED_KEYS, patterns: Iterable[str] = (), *, has_forms: bool = True
    ) -> None:
        self._keys = SecretKeys(keys)
        self._patterns: list[re.Pattern[str]] = [compile_pattern(pattern) for pattern in patterns]
        self._has_forms = has_forms
        self._compile_looks()
        self._labels: set[tuple[str, str]] = set()

    def _compile_looks(self) -> None:
        self._forms = _compile(FORMS_LOOK) if self._has_forms else None
        self._names = _compile(f"{self._keys.look}|{NOTATIONS_LOOK}") if self._keys else None
        self._is_of_parent = False

    def after_fork(self) -> None:
        """Have a forked child compile its own patterns: a thread of the parent may hold a mutex in google-re2's."""
        self._is_of_parent = True

    def may_find(self, json_bytes: bytes) -> bool:
        """Return False if `json_bytes` (one or more JSON texts) has no secret."""
        # A user's pattern may match characters that JSON escapes, or the ends of a text.
        return (
            bool(self._patterns)
            or next(self._spans(json_bytes.decode("utf-8", "replace"), is_json=True), None) is not None
        )

    def __call__(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return a JSON text with its secrets replaced; it stays valid JSON."""
        text = json_bytes.decode()
        clean, count = _replace(text, self._spans(text, is_json=True))
        if self._patterns:
            # They see the strings unescaped.
            spans: list[Span] = []
            start = clean.find('"')
            while start >= 0:
                value, end = JSONDecoder().raw_decode(clean, start)
                changed, more = self._replace_matches(value)
                if more:
                    spans.append((start, end, orjson.dumps(changed).decode()))
                    count += more
                start = clean.find('"', end)
            clean = _replace(clean, spans)[0]
        return json_bytes if clean is text else clean.encode(), count

    def text(self, text: str) -> tuple[str, int]:
        """Return any text (JSON, a message, a stack trace) with its secrets replaced."""
        clean, count = _replace(text, self._spans(text, is_json=text.lstrip()[:1] in ("{", "[", '"')))
        clean, more = self._replace_matches(clean)
        return clean, count + more

    def label(self, text: str, key: str = "") -> tuple[str, int]:
        """Return a text, the value of an attribute's `key` if any, as `text` does, and remember short ones."""
        if type(text) is not str:
            # A subclass may override `__str__`.
            text = str.__str__(text)
        if (key, text) in self._labels:
            return text, 0
        if key and can_be_secret(text, self._keys.kind(key)):
            return REDACTED, 1
        clean, count = self.text(text)
        if clean is text and len(text) <= MAX_LABEL:
            if len(self._labels) >= MAX_LABELS:
                self._labels.clear()
            self._labels.add((key, text))
        return clean, count

    def attributes(self, attributes: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return a copy of `attributes` with their secrets replaced, in keys too; the same object if there are none."""
        clean: dict[str, Any] = {}
        is_same, count, labels = True, 0, self._labels
        for key, value in attributes.items():
            if type(key) is type(value) is str and ("", key) in labels and (key, value) in labels and key not in clean:
                # As on the span before.
                clean[key] = value
                continue
            name, in_name = self.label(key) if type(key) is str else (key, 0)
            while name in clean:
                # Two keys with a secret.
                name += "'"
            clean[name], in_value = self._value(value, key if type(key) is str else "")
            is_same = is_same and name is key and clean[name] is value
            count += in_name + in_value
        return attributes if is_same else clean, count  # type: ignore[return-value]  # as given

    def _value(self, value: Any, key: str) -> tuple[Any, int]:
        if isinstance(value, str):
            return self.label(value, key)
        if not isinstance(value, (list, tuple)):
            return value, 0
        items, count, name = [], 0, ""
        for given in value:
            item, more = self.label(given, key) if isinstance(given, str) else (given, 0)
            # An option or a header, and its value.
            if name and isinstance(item, str) and can_be_secret(item, self._keys.kind(name)):
                item, more = REDACTED, more + 1
            name = item.lstrip("-") if isinstance(item, str) else ""
            items.append(item)
            count += more
        return tuple(items) if any(item is not was for item, was in zip(items, value, strict=True)) else value, count

    def _spans(self, text: str, *, is_json: bool) -> Iterator[Span]:
        if self._is_of_parent:
            self._compile_looks()
        given = text.encode("utf-8", "replace")
        if self._forms is not None:
            yield from form_spans(text, _places(given, (found.start() for found in self._forms.finditer(given))))
        if self._names is not None:
            # A match includes one character more than the name.
            ends = (found.end() - 1 for found in self._names.finditer(given.lower()))
            yield from secret_spans(text, _places(given, ends), self._keys, is_json=is_json)

    def _replace_matches(self, text: str) -> tuple[str, int]:
        count = 0
        for pattern in self._patterns:
            text, more = _replace(text, ((*found.span(), REDACTED) for found in pattern.finditer(text)))
            count += more
        return text, count


def _compile(pattern: str) -> Any:
    """Return a pattern of bytes, of google-re2, which releases the GIL, or of `re` where that isn't installed."""
    if find_spec("re2") is None:
        return re.compile(pattern.encode())
    re2 = import_module("re2")
    # It keeps compiled patterns.
    re2.purge()
    options = re2.Options()
    options.max_mem, options.log_errors, options.encoding = MOST_MEMORY, False, re2.Options.Encoding.LATIN1
    return re2.compile(pattern.encode(), options)


def _places(given: bytes, offsets: Iterable[int]) -> Iterator[int]:
    """Yield the places in a text of offsets in its UTF-8, in their order."""
    last = place = 0
    for offset in offsets:
        place += len(given[last:offset].decode("utf-8", "ignore"))
        last = offset
        yield place


def _replace(text: str, spans: Iterable[Span]) -> tuple[str, int]:
    """Return the text with its spans replaced, of those that overlap the first to the last's end, and their number."""
    parts: list[str] = []
    count = end = 0
    for start, stop, replacement in sorted(spans):
        if start >= end:
            parts += (text[end:start], replacement)
            count += 1
        end = max(end, stop)
    return ("".join((*parts, text[end:])), count) if count else (text, 0)


def make_redactor(keys: Iterable[str], patterns: Iterable[str]) -> Redactor | None:
    """Return the Redactor of the settings; None if they switch redaction off.

    Args:
        keys: Names of keys; `-name` excludes one, `BUILT_IN` stands for the default names.
        patterns: Regular expressions; `BUILT_IN` stands for the known forms.
    """
    names, expressions = set(keys), list(patterns)
    if BUILT_IN in names:
        names = (names - {BUILT_IN}) | set(DEFAULT_REDACTED_KEYS)
    names = {name for name in names if name[:1] != "-" and f"-{name}" not in names}
    own = [pattern for pattern in expressions if pattern != BUILT_IN]
    return Redactor(names, own, has_forms=BUILT_IN in expressions) if names or expressions else None
