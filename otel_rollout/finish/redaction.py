"""Redaction: secrets are found by their form, by the name of their key, or by a user's pattern.

Each is replaced inside the text that contains it; the text around it stays as it is, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
        self._names = _compile(f"{self._keys.look}|{NOTATIONS_LOOK}", ignores_case=True) if self._keys else None
        self._is_of_parent = False

    def after_fork(self) -> None:
        """Have a forked child compile its own patterns: a thread of the parent may hold a mutex in google-re2's."""
        self._is_of_parent = True

    def __call__(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return one or more JSON texts with their secrets replaced; each stays valid JSON."""
        places = self._places(json_bytes)
        if not any(places) and not self._patterns:
            return json_bytes, 0
        text = json_bytes.decode()
        clean, count = self._replace_found(text, json_bytes, places, is_json=True)
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
        given = text.encode("utf-8", "replace")
        is_json = text.lstrip()[:1] in ("{", "[", '"')
        clean, count = self._replace_found(text, given, self._places(given), is_json=is_json)
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

    def _places(self, given: bytes) -> tuple[list[int], list[int]]:
        """Return the offsets, in a text's UTF-8, at which a known form may begin, and at which a name ends."""
        if self._is_of_parent:
            self._compile_looks()
        forms = [] if self._forms is None else [found.start() for found in self._forms(given)]
        # A match includes one character more than the name.
        names = [] if self._names is None else [found.end() - 1 for found in self._names(given)]
        return forms, names

    def _replace_found(
        self, text: str, given: bytes, places: tuple[list[int], list[int]], *, is_json: bool
    ) -> tuple[str, int]:
        forms, names = places
        spans = [
            *form_spans(text, _places_in_text(given, forms)),
            *secret_spans(text, _places_in_text(given, names), self._keys, is_json=is_json),
        ]
        return _replace(text, spans)

    def _replace_matches(self, text: str) -> tuple[str, int]:
        count = 0
        for pattern in self._patterns:
            text, more = _replace(text, ((*found.span(), REDACTED) for found in pattern.finditer(text)))
            count += more
        return text, count


def _compile(pattern: str, *, ignores_case: bool = False) -> Callable[[bytes], Iterator[Any]]:
    """Return the search of a pattern, by google-re2, which releases the GIL, or by `re` where that isn't installed.

    Args:
        pattern: A pattern of bytes.
        ignores_case: The pattern has lower case, and matches letters of ASCII in upper case too.
    """
    if find_spec("re2") is None:
        search = re.compile(pattern.encode()).finditer
        return (lambda given: search(given.lower())) if ignores_case else search
    re2 = import_module("re2")
    # It keeps compiled patterns.
    re2.purge()
    options = re2.Options()
    options.max_mem, options.log_errors, options.encoding = MOST_MEMORY, False, re2.Options.Encoding.LATIN1
    options.case_sensitive = not ignores_case
    finditer: Callable[[bytes], Iterator[Any]] = re2.compile(pattern.encode(), options).finditer
    return finditer


def _places_in_text(given: bytes, offsets: Iterable[int]) -> Iterator[int]:
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
