"""Redaction: secrets are found by their form, by the name of their key, or by a user's pattern.

Each is replaced inside the text that contains it; the text around it stays as it is, byte for byte.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from json import JSONDecoder
from typing import Any, Final

import orjson

from otel_rollout.finish.known_forms import REDACTED, Span, form_spans
from otel_rollout.finish.secret_keys import DEFAULT_REDACTED_KEYS, SecretKeys, can_be_secret
from otel_rollout.finish.secret_text import SecretTexts
from otel_rollout.settings import BUILT_IN
from otel_rollout.text.pattern_check import compile_pattern

_DECODER: Final = JSONDecoder()
MAX_LABEL: Final = 200
MAX_LABELS: Final = 4096
"""At most this many short texts (names, kinds, models) are remembered as free of secrets."""
_NEXT_OBJECT: Final = re.compile(r'\},(?=\{"[a-z_]{1,32}":)')
"""Between two objects of a list: inside a JSON text's strings, quotes are escaped."""
MIN_PIECE: Final = 512
MAX_PIECES: Final = 65_536
"""At most twice this many pieces of JSON texts are remembered as free of secrets, by 16 bytes of a hash each."""
DIGEST_BYTES: Final = 16


class Redactor:
    """Replaces secrets in JSON, texts and attributes; each result comes with the number of values replaced in it.

    Args:
        keys: The names of keys whose values are secrets, in any spelling.
        patterns: Regular expressions; their matches are replaced too.
        has_forms: If True, tokens of known forms are replaced too.
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
        self._clean: set[bytes] = set()
        self._cleaner: set[bytes] = set()

    def may_find(self, json_bytes: bytes) -> bool:
        """Return False if `json_bytes` (one or more JSON texts) has no secret."""
        # A user's pattern may match characters that JSON escapes, or the ends of a text.
        return bool(self._patterns) or not self._is_clean(json_bytes.decode("utf-8", "replace"))

    def _is_clean(self, text: str) -> bool:
        """Return True if there is no secret; pieces that had none before, as earlier turns, are skipped."""
        starts = [0]
        for found in _NEXT_OBJECT.finditer(text):
            if found.end() - starts[-1] >= MIN_PIECE:
                starts.append(found.end())
        ends = [*starts[1:], len(text)]
        pieces = [
            blake2b(text[start:end].encode("utf-8", "replace"), digest_size=DIGEST_BYTES).digest()
            for start, end in zip(starts, ends, strict=True)
        ]
        new = [place for place, piece in enumerate(pieces) if piece not in self._clean and piece not in self._cleaner]
        if not new:
            return True
        begin, end = starts[new[0]], ends[new[-1]]
        ranges: list[tuple[int, int]] = []
        if next(self._spans(text[begin:end], is_json=True, ranges=ranges), None) is not None:
            return False
        torn: set[int] = set()
        for start, stop in ranges:
            first, last = (bisect_right(starts, begin + place) - 1 for place in (start, stop - 1))
            if (start < 0 < begin) or (begin + stop > end < len(text)):
                # The text before and after it counts too.
                return next(self._spans(text, is_json=True), None) is None
            if first != last or begin + stop > end:
                torn.update(range(first, last + 1))
        if len(self._clean) >= MAX_PIECES:
            self._cleaner, self._clean = self._clean, set()
        self._clean.update(pieces[place] for place in range(new[0], new[-1] + 1) if place not in torn)
        return True

    def __call__(self, json_bytes: bytes) -> tuple[bytes, int]:
        """Return a JSON text with its secrets replaced; it stays valid JSON."""
        text = json_bytes.decode()
        clean, count = _replace(text, self._spans(text, is_json=True))
        if self._patterns:
            clean, more = self._replace_in_strings(clean)
            count += more
        return json_bytes if clean is text else clean.encode(), count

    def text(self, text: str) -> tuple[str, int]:
        """Return any text (JSON, a message, a stack trace) with its secrets replaced."""
        clean, count = _replace(text, self._spans(text, is_json=text.lstrip()[:1] in ("{", "[", '"')))
        if self._patterns:
            clean, more = self._replace_matches(clean)
            count += more
        return clean, count

    def label(self, text: str, key: str = "") -> tuple[str, int]:
        """Return a text as `text` does, and remember short ones, which recur: names, kinds, identifiers.

        Args:
            text: The text.
            key: The attribute key that it is the value of, if any.
        """
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
        pairs = [self.label(item, key) if isinstance(item, str) else (item, 0) for item in value]
        items = tuple(item for item, _ in pairs)
        count = sum(replaced for _, replaced in pairs)
        name = ""
        for place, item in enumerate(items):
            # An option or a header, and its value.
            if name and isinstance(item, str) and can_be_secret(item, self._keys.kind(name)):
                count += 1
                items = (*items[:place], REDACTED, *items[place + 1 :])
            name = item.lstrip("-") if isinstance(item, str) else ""
        return items if any(item is not was for item, was in zip(items, value, strict=True)) else value, count

    def _spans(self, text: str, *, is_json: bool, ranges: list[tuple[int, int]] | None = None) -> Iterator[Span]:
        if self._has_forms:
            yield from form_spans(text)
        if self._texts is not None:
            yield from self._texts.spans(text, is_json=is_json, ranges=ranges)

    def _replace_matches(self, text: str) -> tuple[str, int]:
        count = 0
        for pattern in self._patterns:
            text, more = _replace(text, ((*found.span(), REDACTED) for found in pattern.finditer(text)))
            count += more
        return text, count

    def _replace_in_strings(self, text: str) -> tuple[str, int]:
        """Return a JSON text without what matches the user's patterns, which see its strings unescaped."""
        spans: list[Span] = []
        count = 0
        start = text.find('"')
        while start >= 0:
            value, end = _DECODER.raw_decode(text, start)
            clean, more = self._replace_matches(value)
            if more:
                spans.append((start, end, orjson.dumps(clean).decode()))
                count += more
            start = text.find('"', end)
        return _replace(text, spans)[0], count


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
    names = set(keys)
    if BUILT_IN in names:
        names = (names - {BUILT_IN}) | set(DEFAULT_REDACTED_KEYS)
    names = {name for name in names if name[:1] != "-" and f"-{name}" not in names}
    expressions = list(patterns)
    if not names and not expressions:
        return None
    own = [pattern for pattern in expressions if pattern != BUILT_IN]
    return Redactor(names, own, has_forms=BUILT_IN in expressions)
