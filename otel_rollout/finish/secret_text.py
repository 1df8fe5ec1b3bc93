"""Values after the names of secrets in a text: JSON, programs, YAML, TOML, shells, headers, URLs, options, XML.

A sign separates name and value: a colon, an equals sign, the end of a tag. The text is split at the signs; the name at
the end of a part decides, and the value at the start of the next is replaced, at any depth of escaping.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

from otel_rollout.finish.known_forms import REDACTED, Span, looks_random
from otel_rollout.finish.secret_keys import (
    AROUND_NAMES,
    IN_QUERIES,
    SCHEME,
    VALUE_FIELDS,
    KeyKind,
    SecretKeys,
    can_be_secret,
)

NAME_FIELDS: Final = ("env", "field", "header", "key", "name", "param", "parameter", "variable")
TAIL: Final = 96
"""Characters before a sign that a name is looked for in."""
ENDING: Final = 16
"""Characters before a sign that show most names to be ordinary."""
MAX_VALUE: Final = 16_384
MAX_TOKENS: Final = 4096
MAX_DEPTH: Final = 16
"""Values are this long, and containers this large and deep; what is beyond is searched by itself."""
MAX_COMMAND: Final = 210
MAX_SLASHES: Final = 256
MAX_REMEMBERED: Final = 8192
_SIGNS: Final = (":", "=", "(", ">", " is ", " '", *"|│║\uff1a\uff1d是は→➜")
_BORDERS: Final = ("|", "│", "║")
_QUOTES: Final = "\"'`"
_BARE_NAME: Final = re.compile(r"[\w.$-]{1,64}(?: [A-Za-z]{2,20})?(?: [A-Za-z]{2,20})?")
"""A name without quotes, backwards."""
_BETWEEN: Final = re.compile(
    # A type, a call that only wraps, the first choice before a default.
    r"""(?:[\w.\[\]<>&'| ?]{1,40}=(?!=)[ \t]{0,8}"""
    r"""|[\w.:\[\]&-]{0,40}(?:[Ss]tr|[Ss]tring|[Bb]ytes?|Secret\w{0,10}|from|new|Some)(?:\(\d{1,4}\))?[( ]\s{0,8}"""
    r"""|\\{0,64}["'][A-Za-z]{3,10} \\{0,64}["'] ?[+.] ?"""
    r"""|[\w.:?$()\[\]"'\\-]{1,80} (?:\|\||\?\?|\?:|or) )"""
    r"""(?=[bBfFrRuUN@$]{0,2}#{0,2}\\{0,64}["'`])"""
    r"""|\$\{\w{1,64}:?-"""
)
"""Matches the text that may be between a sign and the value."""
_OPENING: Final = re.compile(r"""(?P<prefix>[bBfFrRuUN@$]{0,2}#{0,2})(?P<token>\\{0,64}(?:\"{3}|'{3}|["'`]))""")
_LITERAL: Final = re.compile(r"%[qQw]?[({\[](?P<value>[^(){}\[\]\n\\\"]{4,256})[)}\]]")
"""Ruby's other quotes."""
_BARE: Final = re.compile(r"""[^\s"'\\<>(){}\[\],;&|`]{1,2048}""")
_BARE_LINE: Final = re.compile(r"""[^\s"'\\`]{1,256}""")
_BARE_QUOTED: Final = re.compile(r"""[^\s"'\\`&;,|]{1,256}""")
_ANY_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9-]{1,30}[ ]{1,4}")
_COOKIES: Final = re.compile(r"""[^\s"'\\<;=]{1,256}=[^\n\r"'\\<]{1,4096}""")
_GAP: Final = re.compile(r"[ \t]{0,64}(?:\\{1,64}t|\*\*(?=[ `]))?[ \t]{0,64}")
_GAP_OR_LINE: Final = re.compile(r"\s{0,16}(?:\\{1,64}n)?\s{0,16}(?:\\{1,64}t)?\s{0,16}")
_NEWLINE: Final = re.compile(r"(?:\r?\n|\\{1,64}n|\\{1,64}r\\{1,64}n)")
_BLOCK: Final = re.compile(r"(?:![\w-]{1,20} )?[|>][+-]?[ \t]{0,8}(?=\r?\n|\\{1,64}n)")
_INDENTED: Final = re.compile(r"""(?:\r?\n|\\{1,64}n)[ \t]{1,64}(?:- )?(?P<value>[^\s"'\\#][^\n\r"\\]{0,4096})""")
_NEXT_LINE: Final = re.compile(r"""(?:\r?\n|\\{1,64}n)[ \t]{1,64}(?P<prefix>)(?P<token>\\{0,64}["'])""")
_STRUCTURE: Final = re.compile(r"""\\{0,64}["']|[(){}\[\]]""")
_AFTER_STRING: Final = re.compile(r"\s{0,64}(:?)")
_TAG_VALUE: Final = re.compile(r"\s{0,64}(?:<!\[CDATA\[)?(?P<value>[^<>\s\]][^<>\"\\\]]{0,4096})(?=<|\]\]>)")
_SPACE: Final = r"(?:\s{1,16}|\\{1,64}[nt][ \t]{0,16}(?:\\{1,64}t)?)"
_QUOTE: Final = r"""\\{0,64}["']?"""
_QUOTED: Final = r"""\\{0,64}["']"""
_IN_QUOTES: Final = r"""b?(?P<token>\\{0,64}["'])(?P<name>[\w.-]{1,64})(?P=token)\s?,\s{0,8}(?=b?\\{0,64}["'])"""
_NOTATIONS: Final = tuple(
    (needles[0], needles[1:], re.compile(pattern))
    for needles, pattern in (
        (
            "-",
            r"""-(?:-|(?<![\w-]-))(?P<name>[A-Za-z][\w-]{2,40})(?:[ \t]{1,8}|\\{0,64}["'],\s{0,8}(?=\\{0,64}["']))""",
        ),
        ("(", rf"\(\s{{0,8}}{_IN_QUOTES}"),
        ("[", rf"\[\s{{0,8}}{_IN_QUOTES}"),
        ("ENV", r"ENV[ \t]{1,8}(?P<name>[A-Za-z_]\w{2,64})[ \t]{1,8}"),
        ("set", r"set(?:env|x| -[a-zU]{1,3})?[ \t]{1,8}(?P<name>[A-Za-z_]\w{2,64})[ \t]{1,8}(?:--body )?"),
        (
            "(uth",
            rf"[Aa]uth(?:{_QUOTED})?[=:]? ?\((?:Some\()?{_QUOTED}[^\"'\\\n]{{1,64}}{_QUOTED},\s{{0,8}}(?:Some\()?",
        ),
        ("login", rf"(?:(?:machine|login|account){_SPACE}[^\s\\\"]{{1,200}}|default){_SPACE}password{_SPACE}"),
    )
)
"""A character and a word that have to be there, and what comes before a value: its name, or else it is a password."""
_FLAG: Final = re.compile(
    rf""" -(?:(?P<openssl>k |pass(?:in|out)? {_QUOTE}pass:)|(?P<ldap>w )|(?P<redis>a )|(?P<mongo_sshpass>p )"""
    rf"""|(?P<curl>-?u(?:ser)?[ =]{_QUOTE}[^\s:"'\\]{{1,64}}:|-?(?:b|cookie)[ =]{_QUOTE}[^\s"'\\=]{{1,256}}=)"""
    r"""|(?P<mysql_sshpass>p(?=[^\s-])))"""
)
"""Matches the options that pass a password, by the names of the commands."""
_COMMAND: Final = re.compile(r"(curl|sshpass|mysql|mongo|ldap|redis|openssl)[^\n|;&]{0,200}\Z")
_COLUMNS: Final = re.compile(
    r"(?:\A|[\n\"]|\\{1,64}n)(?P<name>[A-Za-z_][\w.-]{2,40})(?: {2,40}|\t|\\{1,64}t)"
    r"(?P<value>[^\s\"'=:,\\]{6,256})(?![^\s\\\"])"
)
"""A line of two columns: a name, and a value without spaces that ends with the line or before a space."""
_FIRST_COLUMN: Final = re.compile(r"(?:\A|[\n\"]|\\{1,64}n)[A-Za-z_][\w.-]{2,40}\Z")
MAX_FIRST_COLUMN: Final = 106
_GAPS: Final = (
    ("  ", re.compile(r"  (?<=[\w.-]{3}  )(?= {0,38}[^\s\"'=:,\\]{6})")),
    ("\t", re.compile(r"\t(?<=[\w.-]{3}\t)(?=[^\s\"'=:,\\]{6})")),
    ("\\t", re.compile(r"\\t(?<=[\w.\\-]{3}\\t)(?=[^\s\"'=:,\\]{6})")),
)
"""Matches the text between two columns: `re` finds a pattern that begins with a rare text fastest."""
_USERINFO: Final = re.compile(
    r"""://(?P<user>[^\s/@:"'<>\\?#]{0,256})(?::(?P<password>[^\s/"'<>\\?#]{1,256}))?@(?=[\w.\[-])"""
)


class _Name(NamedTuple):
    """The name before a sign.

    Args:
        text: The name.
        token: Its closing quote, with its backslashes; empty if it has none.
        before: The text before an unquoted name.
    """

    text: str
    token: str
    before: str

    @property
    def begins_line(self) -> bool:
        """True if nothing but spaces, a quote or `export` is before the name on its line."""
        return not self.token and self.before.rstrip(" \t").endswith(("\n", "\\n", "export"))


class SecretTexts:
    """Finds the values after the names of secrets.

    Args:
        keys: Classifies names.
    """

    def __init__(self, keys: SecretKeys) -> None:
        self._keys = keys
        self._may_end = lru_cache(MAX_REMEMBERED)(self._may_end_in_a_name)
        self._may_be_last = lru_cache(MAX_REMEMBERED)(self._may_be_a_last_word)

    def spans(self, text: str, *, is_json: bool, ranges: list[tuple[int, int]] | None = None) -> Iterator[Span]:
        """Yield the span of each value.

        Args:
            text: The text.
            is_json: True for a JSON text: no span crosses the ends of its strings.
            ranges: Gets what was read together beyond the objects of a JSON list: containers below a secret's name,
                and the commands before options. A range that the text's ends cut goes beyond them.
        """
        ranges = [] if ranges is None else ranges
        for sign in _SIGNS:
            if sign[-1] in text and sign in text and (sign != ">" or "</" in text or "]]>" in text):
                yield from self._after(text, sign, ranges, is_json=is_json)
        value = _Value(text, ranges, is_json=is_json)
        for sign, word, pattern in _NOTATIONS:
            for found in pattern.finditer(text) if sign in text and word in text else ():
                has_name = "name" in pattern.groupindex
                kind = self._keys.kind(found["name"]) if has_name else KeyKind.PASSWORD
                if kind is KeyKind.PASSWORD and sign == "[":
                    # A list of names: `["password", "login"]`.
                    kind = KeyKind.KEY
                if kind:
                    yield from value.at(found.end(), kind, "", is_whole=not has_name)
        for found in _FLAG.finditer(text) if "-" in text and " -" in text else ():
            ranges.append((found.start() - MAX_COMMAND, found.start()))
            command = _COMMAND.search(text, max(0, found.start() - MAX_COMMAND), found.start())
            if command is not None and command[1] in str(found.lastgroup):
                yield from value.at(found.end(), KeyKind.PASSWORD, "", is_whole=True)
        for gap, pattern in _GAPS:
            for found in pattern.finditer(text) if gap in text else ():
                # An escaped tab may have more backslashes.
                before = text[max(0, found.start() - MAX_FIRST_COLUMN) : found.start()]
                end = found.start() - len(before) + len(before.rstrip("\\"))
                name = _FIRST_COLUMN.search(text, max(0, end - MAX_FIRST_COLUMN), end)
                line = _COLUMNS.match(text, name.start()) if name is not None else None
                if (
                    line is not None
                    and (kind := self._keys.kind(line["name"]))
                    and can_be_secret(line["value"], kind, is_bare=True)
                ):
                    yield *line.span("value"), REDACTED
        for found in _USERINFO.finditer(text) if "@" in text and "/" in text else ():
            password = found["password"] or ""
            if not password.isdigit() and can_be_secret(password, KeyKind.PASSWORD):
                yield *found.span("password"), REDACTED
            if looks_random(found["user"]):
                yield *found.span("user"), REDACTED

    def _after(self, text: str, sign: str, ranges: list[tuple[int, int]], *, is_json: bool) -> Iterator[Span]:
        parts = text.split(sign)[:-1]
        endings = [part[-ENDING:] for part in parts]
        named = set(filter(self._may_end, set(endings)))
        if not named:
            return
        ends = [*accumulate(map(len, parts))]
        walked, walked_kind = 0, KeyKind.ORDINARY
        value = _Value(text, ranges, is_json=is_json)
        for number in [number for number, ending in enumerate(endings) if ending in named]:
            part, end = parts[number], ends[number] + number * len(sign)
            # The start of the text begins a line too.
            name = _name_before(part[-TAIL:] if end > TAIL else f"\n{part}"[-TAIL:] if end == len(part) else part)
            kind = self._kind(name, text, end, sign) if name is not None else KeyKind.ORDINARY
            if name is None or not kind or (end < walked and kind <= walked_kind):
                continue
            walked_kind = kind
            for span in value.after(end, sign, name, kind):
                walked = span[1]
                yield span
            walked = max(walked, value.walked)

    def _may_end_in_a_name(self, ending: str) -> bool:
        """Return False if no name of a secret ends like this."""
        if ending.isascii() and "\\" not in ending:
            # Most texts repeat words, not endings.
            last = _LAST_WORD.match(ending[::-1])
            if last is not None and not self._may_be_last(last[1]):
                return False
        name = _name_before(ending)
        if name is None:
            return not ending.strip(AROUND_NAMES)
        if name.before or (name.token and ending.count(name.token[-1]) > 1):
            return name.text.lower() in VALUE_FIELDS | IN_QUERIES or bool(self._keys.kind(name.text))
        return self._keys.may_be(name.text)

    def _may_be_a_last_word(self, backwards: str) -> bool:
        word = backwards[::-1]
        return word.lower() in VALUE_FIELDS | IN_QUERIES or self._keys.may_be(word)

    def _kind(self, name: _Name, text: str, position: int, sign: str) -> KeyKind:
        lower = name.text.lower()
        if lower in VALUE_FIELDS:
            found = _NAME_FIELD.search(text, max(0, position - TAIL - 64), position)
            return self._keys.kind(found[found.lastgroup or 0]) if found is not None else KeyKind.ORDINARY
        if sign == "=" and name.before[-1:] in ("?", "&") and lower in IN_QUERIES:
            return KeyKind.KEY
        return self._keys.kind(name.text)


_LAST_WORD: Final = re.compile(r"[^A-Za-z]{0,16}([A-Za-z]{1,16})")
_NAME_FIELD: Final = re.compile(
    rf"""(?:(?:{"|".join(NAME_FIELDS)})["'\\ ]{{0,9}}[:=>]["'\\ ]{{0,9}}(?P<name>[\w.-]{{1,64}})"""
    r"""["'\\,\s<][^{}\[\]:]{0,40}|<(?P<element>[\w.-]{1,64})>\s{0,40}<\w{1,20}"""
    r"""|(?:variable |argument\()\\{0,64}["']-{0,2}(?P<label>[\w-]{1,64})\\{0,64}["'][^()}]{0,120})\Z""",
    re.IGNORECASE,
)


def _name_before(tail: str) -> _Name | None:
    """Return the name at the end of `tail`, before spaces, tabs (escaped too) and Markdown's asterisks."""
    body = tail.rstrip(" \t*?!")
    while body.endswith("\\t"):
        body = body[:-2].rstrip(" \t\\")
    if body[-1:] in ("]", ")"):
        body = body[:-1]
    if body[-1:] and body[-1] in _QUOTES:
        inner = body[:-1].rstrip("\\")
        name = inner[inner.rfind(body[-1]) + 1 :]
        return _Name(name, body[len(inner) :], "") if name.strip() else None
    bare = _BARE_NAME.match(body[::-1])
    if bare is None:
        return None
    name, before = bare[0][::-1], body[: len(body) - bare.end()]
    # An escaped newline ends in a letter.
    if before[-1:] == "\\" and name[0] in "nrt":
        return _Name(name[1:], "", before + name[0])
    return _Name(name, "", before)


class _Value:
    """Reads the values of one text.

    Args:
        text: The text.
        ranges: Gets the containers.
        is_json: True for a JSON text.
    """

    def __init__(self, text: str, ranges: list[tuple[int, int]], *, is_json: bool) -> None:
        self._text = text
        self._ranges = ranges
        self._is_json = is_json
        self.walked = 0
        """The end of the last container, whose values are found."""

    def after(self, position: int, sign: str, name: _Name, kind: KeyKind) -> Iterator[Span]:
        """Yield the spans of the value after the sign at `position`."""
        text, start = self._text, position + len(sign)
        if sign == ">":
            tag = text[max(0, position - TAIL) : position].rpartition(">")[2]
            if "<" in tag and (name.token or name.before[-1:] in ("<", "=", ":")):
                element = _TAG_VALUE.match(text, start)
                if element is not None and can_be_secret(element["value"], kind):
                    yield *element.span("value"), REDACTED
            return
        if sign == " '":
            # A name and a quoted value side by side.
            start -= 1
        elif sign in _BORDERS and name.before.strip(" *`"):
            return
        if sign == "(" and (name.token or text[start : start + 1] not in ('"', "'", "\\")):
            # Only calls with one text: `.apiKey("…")`.
            return
        if sign == "(" and kind is KeyKind.KEY:
            # It may be a name: `get_secret("client-secret")`.
            kind = KeyKind.WORD
        following = text[start : start + 1]
        if sign == "=" and (following in ("=", "~") or text[position - 1] in "!<>=~+|"):
            return
        if following == ":" or (following == "/" and sign == ":" and text[start + 1 : start + 2] == "/"):
            return
        if following == "=" or (following == ">" and sign == "="):
            start += 1
        gap = (_GAP_OR_LINE if name.token else _GAP).match(text, start)
        start = gap.end() if gap is not None else start
        yield from self.at(start, kind, name.token, name)

    def at(
        self, start: int, kind: KeyKind, token: str, name: _Name | None = None, *, is_whole: bool = False
    ) -> Iterator[Span]:
        """Yield the spans of the value that starts there.

        Args:
            start: The position of the value.
            kind: The kind of its key.
            token: The closing quote of the key, if it has one.
            name: The key, if it is before a sign.
            is_whole: True if only a space or a quote ends a value without quotes.
        """
        text = self._text
        between = _BETWEEN.match(text, start)
        start = between.end() if between is not None else start
        opening = _OPENING.match(text, start)
        if opening is not None:
            yield from self._quoted(opening, kind)
        elif literal := _LITERAL.match(text, start):
            if can_be_secret(literal["value"], kind):
                yield *literal.span("value"), REDACTED
        elif text[start : start + 1] in ("[", "{", "("):
            # Only names in double quotes are outside the strings of a JSON text.
            yield from self._walk(start, kind, token.count("\\") if token[-1:] == '"' else 1)
        elif name is not None and (_NEWLINE.match(text, start) or _BLOCK.match(text, start)):
            yield from self._indented(start, kind)
        else:
            yield from self._bare(start, kind, token, name, is_whole=is_whole)

    def _quoted(self, opening: re.Match[str], kind: KeyKind) -> Iterator[Span]:
        start, stop = opening.end(), self._closing(opening["token"], opening.end())
        value = self._text[start : min(stop, start + MAX_VALUE)]
        if value[:1].isspace() or value[:1] in (",", ";", ":", ")", "]", "}", "+"):
            # Between two values.
            return
        if "f" in opening["prefix"].lower() and "{" in value:
            return
        if self._text.startswith(":", stop + len(opening["token"])):
            # The next key.
            return
        if not can_be_secret(value, kind):
            # A quote that does not end on its line.
            value = _NEWLINE.split(value, 1)[0]
            stop = start + len(value)
        if can_be_secret(value, kind):
            scheme = SCHEME.match(value)
            yield start + (scheme.end() if scheme is not None else 0), stop, REDACTED

    def _bare(self, start: int, kind: KeyKind, token: str, name: _Name | None, *, is_whole: bool) -> Iterator[Span]:
        text = self._text
        lower = name.text.lower() if name is not None else ""
        if "cookie" in lower and (cookies := _COOKIES.match(text, start)):
            if looks_random(cookies[0]):
                yield *cookies.span(), REDACTED
            return
        scheme = (_ANY_SCHEME if "authorization" in lower else SCHEME).match(text, start)
        start = scheme.end() if scheme is not None else start
        is_quoted = name is not None and not name.token and name.before[-1:] in ('"', "'")
        is_line = kind is KeyKind.PASSWORD and name is not None and name.begins_line
        found = (_BARE_LINE if is_line or is_whole else _BARE_QUOTED if is_quoted else _BARE).match(text, start)
        if found is None or text[found.end() : found.end() + 1] in ("(", "[", "{"):
            return
        value = found[0].rstrip(".,;:")
        is_set = name is not None and text[start - 1] in "=:" and name.text.isupper()
        if not can_be_secret(value, kind, is_bare=not (is_set or is_whole)):
            return
        # A number in JSON has no quotes; the text in its place needs them.
        yield start, start + len(value), f"{token}{REDACTED}{token}"

    def _indented(self, start: int, kind: KeyKind) -> Iterator[Span]:
        """Yield the lines below a key of YAML: a block, a list, or the value on the next line."""
        block = _BLOCK.match(self._text, start)
        position = block.end() if block is not None else start
        for _ in range(MAX_DEPTH):
            line = _INDENTED.match(self._text, position)
            if line is None and position == start and (quoted := _NEXT_LINE.match(self._text, start)):
                yield from self._quoted(quoted, kind)
            if line is None or (block is None and ": " in line["value"]) or "=" in line["value"][:1]:
                return
            value = line["value"].rstrip()
            position = line.end()
            if can_be_secret(value, kind):
                yield line.start("value"), line.start("value") + len(value), REDACTED
            elif block is None:
                return

    def _walk(self, start: int, kind: KeyKind, slashes: int) -> Iterator[Span]:
        """Yield the texts of a list or an object, without those that describe one, as a JSON schema does.

        Args:
            start: The opening bracket.
            kind: The kind of its key.
            slashes: The backslashes of its double quotes; one with fewer ends the JSON string around it.
        """
        text, depth, position, key = self._text, 0, start, ""
        for _ in range(MAX_TOKENS):
            found = _STRUCTURE.search(text, position)
            if found is None:
                self._ranges.append((start, len(text) + 1))
                break
            sign = found[0][-1]
            if self._is_json and sign == '"' and len(found[0]) <= slashes:
                break
            position = found.end()
            if sign in "[{(":
                depth += 1
                if depth > MAX_DEPTH:
                    break
            elif sign in "]})":
                depth -= 1
                if depth <= 0:
                    break
            else:
                stop = self._closing(found[0], position)
                value = text[position : min(stop, position + MAX_VALUE)]
                position = stop + len(found[0])
                after = _AFTER_STRING.match(text, position)
                if after is not None and after[1]:
                    key = value
                elif not _NO_SECRETS.match(key) and can_be_secret(value, kind):
                    yield found.end(), stop, REDACTED
        self._ranges.append((start, position))
        self.walked = max(self.walked, min(position, len(text)))

    def _closing(self, token: str, start: int, last: int | None = None) -> int:
        """Return the start of the closing quote: it has as many backslashes as the opening one, or fewer.

        Inside the value, escaped quotes have more, and SQL writes a quote twice.

        Args:
            token: The opening quote, with its backslashes.
            start: The start of the value.
            last: The end of the value if no quote closes it.
        """
        text, sign, slashes = self._text, token[-1], token.count("\\")
        wanted = token.lstrip("\\")
        stop = min(len(text), start + MAX_VALUE) if last is None else last
        position = text.find(wanted, start, stop)
        while position >= 0:
            before = text[max(start, position - MAX_SLASHES) : position]
            run = len(before) - len(before.rstrip("\\"))
            if wanted == "'" and not run and position > start and text[position + 1 : position + 2] == "'":
                position += 1
            elif self._is_json and sign == '"' and run % 2 == 0:
                # Escaped backslashes, and the end of the JSON string.
                return position
            elif run < slashes or run % (2 * (slashes + 1)) == slashes:
                stop = position - min(run, slashes)
                break
            position = text.find(wanted, position + 1, stop)
        # The JSON string around it may end before.
        return self._closing('"', start, stop) if self._is_json and sign != '"' else stop


_NO_SECRETS: Final = re.compile(
    "(?:const|description|domain|enum|examples?|format|host|name|path|pattern|title|type|url|user|username)\\Z"
)
"""Keys of an account, and of a JSON schema, which describes a value."""
