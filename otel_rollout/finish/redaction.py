"""Redaction: secrets are found by their form, by the name of their key, or by a user's pattern.

Each is replaced inside the text that contains it; the text around it stays as it is, byte for byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import orjson

from otel_rollout.finish.known_forms import FORMS_LOOK, REDACTED, Span, form_spans
from otel_rollout.finish.secret_keys import DEFAULT_REDACTED_KEYS, SecretKeys
from otel_rollout.finish.secret_text import NOTATIONS_LOOK, secret_spans
from otel_rollout.settings import BUILT_IN
from otel_rollout.text.pattern_check import compile_pattern
from otel_rollout.text.plain_json import value_to_json, with_text_keys

MOST_MEMORY: Final = 2**24
"""Bytes of google-re2's automaton; with its default it would start anew in the middle of a text, again and again."""


class Redactor:
    """Replaces secrets in JSON and plain data; each result comes with the number of values replaced in it.

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

    def _compile_looks(self) -> None:
        names = f"{self._keys.look}|{NOTATIONS_LOOK}" if self._keys else ""
        self._forms = _compile(FORMS_LOOK) if self._has_forms else None
        self._names = _compile(names, ignores_case=True) if names else None
        # Most texts have neither, and one search is shorter than two; `re` takes longer for it.
        is_worth_it = self._has_forms and names and find_spec("re2") is not None
        self._either = _compile(f"(?i:{names})|{FORMS_LOOK}", memory=2 * MOST_MEMORY) if is_worth_it else None
        self._is_of_parent = False

    def after_fork(self) -> None:
        """Have a forked child compile its own patterns: a thread of the parent may hold a mutex in google-re2's."""
        self._is_of_parent = True

    def __call__(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return one or more JSON texts with their secrets replaced; each stays valid JSON."""
        forms, names = self._places(json_bytes)
        if not (forms or names or self._patterns):
            return json_bytes, 0
        text = json_bytes.decode()
        found = form_spans(text, _places_in_text(json_bytes, forms))
        clean, count = _replace(text, [*found, *secret_spans(text, _places_in_text(json_bytes, names), self._keys)])
        if self._patterns:
            # They see the strings unescaped.
            spans: list[Span] = []
            start = clean.find('"')
            while start >= 0:
                value, end = json.JSONDecoder().raw_decode(clean, start)
                changed, more = self._replace_matches(value)
                if more:
                    spans.append((start, end, orjson.dumps(changed).decode()))
                    count += more
                start = clean.find('"', end)
            clean = _replace(clean, spans)[0]
        return json_bytes if clean is text else clean.encode(), count

    def value(self, value: Any) -> tuple[Any, int]:
        """Return plain data, or a text, with its secrets replaced, in keys too; the same object if there are none."""
        clean, count = self(value_to_json(value))
        return (restored(value, clean), count) if count else (value, 0)

    def _places(self, given: bytes) -> tuple[list[int], list[int]]:
        """Return the offsets, in a text's UTF-8, at which a known form may begin, and at which a name ends."""
        if self._is_of_parent:
            self._compile_looks()
        if self._either is not None and next(self._either(given), None) is None:
            return [], []
        forms = [] if self._forms is None else [found.start() for found in self._forms(given)]
        # A match includes one character more than the name.
        names = [] if self._names is None else [found.end() - 1 for found in self._names(given)]
        return forms, names

    def _replace_matches(self, text: str) -> tuple[str, int]:
        count = 0
        for pattern in self._patterns:
            text, more = _replace(text, ((*found.span(), REDACTED) for found in pattern.finditer(text)))
            count += more
        return text, count


def _compile(
    pattern: str, *, ignores_case: bool = False, memory: int = MOST_MEMORY
) -> Callable[[bytes], Iterator[Any]]:
    """Return the search of a pattern, by google-re2, which releases the GIL, or by `re` where that isn't installed.

    Args:
        pattern: A pattern of bytes.
        ignores_case: The pattern has lower case, and matches letters of ASCII in upper case too.
        memory: The most bytes of google-re2's automaton.
    """
    if find_spec("re2") is None:
        search = re.compile(pattern.encode()).finditer
        return (lambda given: search(given.lower())) if ignores_case else search
    re2 = import_module("re2")
    # It keeps compiled patterns.
    re2.purge()
    options = re2.Options()
    options.max_mem, options.log_errors, options.encoding = memory, False, re2.Options.Encoding.LATIN1
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


def restored(value: Any, json_text: str | bytes) -> Any:
    """Return the clean form of a value by its clean JSON, with tuples and numbers as they are."""
    return _restored(value, json.loads(json_text, object_pairs_hook=with_text_keys))


def _restored(value: Any, clean: Any) -> Any:
    if type(value) is dict:
        pairs = zip(value.values(), clean.items(), strict=True)
        return {key: _restored(item, clean_item) for item, (key, clean_item) in pairs}
    if type(value) in (list, tuple):
        return type(value)(map(_restored, value, clean))
    return clean if type(clean) is str else value


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
