"""Secrets after their names in a text: JSON, Python's repr, YAML, `.env`, URL queries, headers, options, XML.

A sign separates name and value: a colon, an equals sign, the end of a tag; in a pair a comma, in an option a space. The
sign is searched for, the name before it decides, and the value after it is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeAlias

from otel_rollout.processing.secret_keys import TRAILING_WORDS, KeyKind, SecretKeys
from otel_rollout.processing.secret_patterns import REDACTED, find_rare

__all__ = ["NAME_FIELDS", "VALUE_FIELDS", "SecretTexts", "is_model_token"]

NAME_FIELDS: Final = ("env", "field", "field_name", "header", "header_name", "key", "name", "param", "parameter")
VALUE_FIELDS: Final = ("field_value", "header_value", "val", "value")
"""Keys of objects that are pairs: `{"name": "api_key", "value": …}`."""

MIN_BARE: Final = 4
MIN_TOKEN: Final = 8
"""Shorter values without quotes, and shorter values of `token` in a text, are words."""
TAIL: Final = 32
"""Bytes before a sign that are searched and cached; they hold the last words of any name."""
MAX_REMEMBERED: Final = 8192

_PADDING: Final = b" " * TAIL
_DEEP: Final = b"\\" * 3
"""In JSON within JSON within JSON, backslashes may push the name out of the tail."""

_SIGNS: Final = (":", "=", ">")
_NAME_IN_URL: Final = frozenset({"key", "sig", "signature"})
"""Parameters of a URL's query that are ordinary words elsewhere."""
_NOT_A_VALUE: Final = frozenset(
    {
        "any", "bool", "boolean", "bytes", "default", "dict", "empty", "false", "float", "hidden", "int", "integer",
        "invalid", "list", "missing", "none", "null", "object", "optional", "required", "self", "str", "string", "text",
        "true", "type", "undefined", "unknown", "wrong",
    }
)  # fmt: skip
_BARE_NAME: Final = re.compile(r"(?<![\w.-])[\w.-]+\Z")
_WORD_BEFORE: Final = re.compile(r"(?<![\w.-])[\w.-]+ \Z")
_QUOTED: Final = re.compile(
    r"""\s{0,8}[bBfFrRuU]{0,2}(?P<quote>\\*["'])(?P<value>.*?)(?:(?<!\\)(?P=quote)|\Z)""", re.DOTALL
)
_QUOTED_IN_LINE: Final = re.compile(
    r"""[ \t]{0,8}[bBfFrRuU]{0,2}(?P<quote>\\*["'])"""
    r"""(?P<value>[^\n]{1,4096}?(?=(?<!\\)(?P=quote))|[^\s"']{4,4096}(?!\S))"""
)
_LIST: Final = re.compile(
    r"""\s{0,8}(?P<value>\[[^\]"'\\]{0,99}(?P<quote>\\*["'])"""
    r""".*?(?:(?<!\\)(?P=quote)|\Z)(?:(?P=quote).*?(?:(?<!\\)(?P=quote)|\Z)|[^\]])*\]?)""",
    re.DOTALL,
)
_HEADER: Final = re.compile(
    r"""[ \t]{0,8}(?P<value>(?:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)[ ][^\n\r"'\\<]{1,4096}"""
    r"""|[^\s"'\\<;=]{1,256}=[^\n\r"'\\<]{1,4096})""",
    re.IGNORECASE,
)
_BARE: Final = re.compile(r"""(?P<gap>[ \t]{0,8})(?P<value>[^\s"'\\<>(){}\[\],;&|`]{1,4096})(?P<next>.?)""", re.DOTALL)
_TAGGED: Final = re.compile(r"\s{0,8}(?P<value>[^<>\s][^<>]{0,4096})(?=<)")
_PAIR: Final = re.compile(r"""[(\[]\s?b?(?P<close>\\*["'])(?P<name>[\w.-]{1,64})(?P=close),(?=\s?[bru]?\\*["'])""")
_OPTION: Final = re.compile(
    r"""(?<![\w-])--?(?P<name>[A-Za-z][\w-]{2,40})(?:[ \t]{1,8}|\\*["'],\s?\\*["'])"""
    r"""(?P<value>[^\s"'\\,<>-][^\s"'\\,]{0,4096})"""
)
_NAME_FIELD: Final = rf"""(?:{"|".join(NAME_FIELDS)})\\*["']?\s?[:=]\s?\\*["']?"""
_FIELDS_OF_NAMES: Final = re.compile(rf"{_NAME_FIELD}(?=([\w .-]{{1,64}}))".encode(), re.IGNORECASE)
_FIELDS: Final = re.compile(
    rf"""\b{_NAME_FIELD}(?P<name>[\w.-]{{1,64}})\\*["']?,?(?:\s|\\n){{1,40}}\\*["']?(?:{"|".join(VALUE_FIELDS)})"""
    r"""(?P<quote>\\*["'])?\s?(?P<sign>[:=])""",
    re.IGNORECASE,
)
"""Pairs in unparsed text, such as YAML."""
_NAME_HINTS: Final = (
    *((sign, re.compile(rb"""\%cb?\\*["']([\w.-]{1,64})\\*["'],""" % sign)) for sign in b"(["),
    (ord("-"), re.compile(rb"""-(?:(?<!\w-)|(?<=\\[nrt]-))([A-Za-z][\w-]{2,40})(?:[ \t]|\\*["'],)""")),
)
"""The names of pairs and options."""


_Span: TypeAlias = "tuple[int, int, str]"
"""The start and end of a value, and its replacement."""


class _Name(NamedTuple):
    """The name before a sign.

    Args:
        text: The name.
        quote: Its closing quote, with its backslashes; empty if it has none.
        before: The character before an unquoted name.
    """

    text: str
    quote: str
    before: str


class SecretTexts:
    """Finds and replaces the values after the names of secrets.

    Args:
        keys: Classifies names.
    """

    def __init__(self, keys: SecretKeys) -> None:
        self._keys = keys
        endings = keys.endings | TRAILING_WORDS | _NAME_IN_URL | {"val"}
        self._hints = tuple(
            (ord(sign), re.compile(_hint(sign, endings).encode("latin-1"), re.DOTALL)) for sign in _SIGNS
        )
        self._signs = tuple((sign, re.compile(_hint(sign, endings, tail=0))) for sign in _SIGNS)
        self._clean: set[bytes] = set()

    def may_find(self, json_bytes: bytes) -> bool:
        """Return False if `json_bytes` (one or more JSON texts) surely has no secret's name; True: look closer."""
        padded = _PADDING + json_bytes
        for sign, hint in self._hints:
            if sign in json_bytes:
                tails = hint.findall(padded)
                if tails and not self._clean.issuperset(tails) and self._names_any(sign, tails, json_bytes):
                    return True
        for sign, hint in _NAME_HINTS:  # noqa: SIM110 - a generator is slower than the loop
            if sign in json_bytes and self._names_secret(hint, sign, json_bytes):
                return True
        return False

    def redact(self, text: str) -> tuple[str, int]:
        """Return `text` with the values after secrets' names replaced, and their number."""
        parts: list[str] = []
        count = end = 0
        for start, stop, replacement in sorted(filter(None, self._spans(text))):
            if start >= end:
                parts += (text[end:start], replacement)
                count, end = count + 1, stop
        return ("".join((*parts, text[end:])), count) if count else (text, 0)

    def _names_any(self, sign: int, tails: list[bytes], json_bytes: bytes) -> bool:
        if len(self._clean) >= MAX_REMEMBERED:
            self._clean.clear()
        has_value_field = False
        for tail in tails:
            if tail in self._clean:
                continue
            if tail[-4:-1] == _DEEP:
                return True
            name = _name_before(tail.decode("utf-8", "ignore"))
            if name is not None:
                if self._kind(name):
                    return True
                if name.text in VALUE_FIELDS:
                    # The name field beside it decides.
                    has_value_field = True
                    continue
            if len(self._clean) < MAX_REMEMBERED:
                self._clean.add(tail)
        return has_value_field and any(
            self._keys.kind(name.decode("utf-8", "ignore")) for name in _FIELDS_OF_NAMES.findall(json_bytes)
        )

    def _names_secret(self, hint: re.Pattern[bytes], sign: int, json_bytes: bytes) -> bool:
        found = find_rare(hint, sign, json_bytes)
        return found is not None and any(
            self._keys.kind(name.decode()) for name in hint.findall(json_bytes, found.start())
        )

    def _kind(self, name: _Name) -> KeyKind:
        if name.before and name.before in "?&" and name.text.lower() in _NAME_IN_URL:
            return KeyKind.SECRET
        return self._keys.kind(name.text)

    def _spans(self, text: str) -> Iterator[_Span | None]:
        """Yield the span of each value; None for values that stay."""
        for sign, pattern in self._signs:
            end = 0
            for found in pattern.finditer(text) if sign in text else ():
                position = found.start()
                # Searching within a replaced value would take quadratic time.
                if position < end:
                    continue
                name = _name_before(text[max(0, position - 2 * TAIL) : position])
                kind = self._kind(name) if name is not None else KeyKind.ORDINARY
                if name is None or not kind:
                    continue
                span = _value(text, position, sign, name, kind)
                yield span
                end = end if span is None else span[1]
        for pair in _PAIR.finditer(text):
            if kind := self._keys.kind(pair["name"]):
                yield _span(_QUOTED_IN_LINE.match(text, pair.end()), kind)
        for fields in _FIELDS.finditer(text):
            if kind := self._keys.kind(fields["name"]):
                yield _value(text, fields.end() - 1, fields["sign"], _Name("value", fields["quote"] or "", ""), kind)
        for option in _OPTION.finditer(text):
            if (kind := self._keys.kind(option["name"])) and not _is_placeholder(option["value"]):
                yield _span(option, kind)


def _hint(sign: str, endings: set[str], tail: int = TAIL) -> str:
    """Return a pattern for `sign` after a name that may end in one of `endings`; it captures `tail` bytes before it.

    It begins with the sign and looks back: `re` finds a single character several times faster than a pattern. The last
    three letters rule out most names; the captured tail decides on the rest.
    """
    ascii_endings = [word for word in endings if word.isascii()]
    either = "".join(_letters(ascii_endings, place) for place in (3, 2, 1))
    wide = "[0-9\\\\\\x80-\\xff]" if tail else "[0-9\\\\]|[^\\x00-\\x7f]"
    behind = f"(?<={either}[\"' ]{sign})|(?<={either}{sign})|(?<=[A-Za-z_][0-9]{sign})|(?<=[\"'] {sign})" + "".join(
        f"|(?<={one}[\"']{sign})" for one in wide.split("|")
    )
    # Keys of every message.
    usual = "".join(f'(?<!"{key}"{sign})' for key in ("role", "content")) if sign == ":" else ""
    unequal = "(?<![=!<>]=)(?!=)" if sign == "=" else ""
    return f"{sign}{usual}{unequal}(?:{behind})" + (f"(?<=(.{{{tail}}}){sign})" if tail else "")


def _letters(words: Iterable[str], place: int) -> str:
    """Return a pattern for the letters, in any case, that the words have at this place from their end."""
    letters = "".join(sorted({word[-place] for word in words if len(word) >= place}))
    return f"[{re.escape(letters)}{re.escape(letters.upper())}]"


def _name_before(tail: str) -> _Name | None:
    """Return the name at the end of `tail`."""
    body = tail.rstrip(" \t")
    if body[-1:] in ('"', "'"):
        inner = body[:-1].rstrip("\\")
        name = inner[inner.rfind(body[-1]) + 1 :]
        return _Name(name, body[len(inner) :], "") if name.strip() else None
    bare = _BARE_NAME.search(body)
    if bare is None:
        return None
    before = _WORD_BEFORE.search(body[: bare.start()])
    return _Name(f"{before[0]}{bare[0]}" if before else bare[0], "", body[: bare.start()][-1:])


def _value(text: str, position: int, sign: str, name: _Name, kind: KeyKind) -> _Span | None:
    """Return the span of the value after the sign at `position`; None if it stays."""
    start = position + 1
    if sign == ">":
        is_tag = name.before in ("<", "=", ":", "/") or bool(name.quote)
        value = _TAGGED.match(text, start) if is_tag and "<" in text[max(0, position - 2 * TAIL) : position] else None
        return _span(value, kind)
    if name.quote:
        quoted = _QUOTED.match(text, start)
        if quoted is not None:
            span = _span(quoted, kind, is_quoted=True)
            is_cut = quoted.end() == quoted.end("value")
            return span if span is None or not is_cut else (*quoted.span("value"), REDACTED + quoted["quote"])
        items = _LIST.match(text, start)
        if items is not None and items["quote"] and kind is KeyKind.SECRET:
            return *items.span("value"), f"[{items['quote']}{REDACTED}{items['quote']}]"
        return None
    quoted = _QUOTED_IN_LINE.match(text, start)
    if quoted is not None:
        return _span(quoted, kind)
    if name.text.lower().endswith(("authorization", "cookie")):
        header = _HEADER.match(text, start)
        if header is not None:
            return _span(header, KeyKind.SECRET)
    bare = _BARE.match(text, start)
    if bare is None or len(bare["value"]) < MIN_BARE or _is_placeholder(bare["value"]):
        return None
    is_spaced = bool(bare["gap"]) or text[position - 1].isspace()
    return None if _is_program(bare["value"], bare["next"], sign, is_spaced=is_spaced) else _span(bare, kind)


def _span(found: re.Match[str] | None, kind: KeyKind, *, is_quoted: bool = False) -> _Span | None:
    """Return the span of a value that may be a secret; an unquoted value of `token` must look like one."""
    value = found["value"] if found is not None else ""
    if found is None or not value.strip() or value.strip() == REDACTED:
        return None
    span = *found.span("value"), REDACTED
    if kind is KeyKind.SECRET:
        return span
    if is_quoted:
        return None if is_model_token(value) else span
    has_form = len(value) >= MIN_TOKEN and any(map(str.isdigit, value)) and not any(map(str.isspace, value))
    return span if has_form else None


def is_model_token(value: str) -> bool:
    """Return True if a text under `…token` is a tokenizer's special token: `<|im_end|>`, `</s>`, `[PAD]`."""
    stripped = value.strip()
    return (stripped[:1], stripped[-1:]) in (("<", ">"), ("[", "]"))


def _is_placeholder(value: str) -> bool:
    return value[0] in "$%*" or value.lower().rstrip(".:") in _NOT_A_VALUE or value.rstrip(".").isdecimal()


def _is_program(value: str, following: str, sign: str, *, is_spaced: bool) -> bool:
    """Return True if an unquoted value is an expression, an annotation or a word of a sentence."""
    if following and following in "([{":
        return True
    if not value.replace("_", "").replace(".", "").isalpha():
        return False
    if sign == "=":
        return is_spaced or (bool(following) and following in ",)")
    return bool(following) and following not in "\n\r\"'\\,;"
