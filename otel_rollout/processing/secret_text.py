"""Values after the names of secrets in a text: JSON, programs, YAML, TOML, shells, headers, URLs, options, XML.

A sign separates name and value: a colon, an equals sign, the end of a tag. The text is split at the signs; the name at
the end of a part decides, and the value at the start of the next is replaced, at any depth of escaping.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from otel_rollout.processing.known_forms import REDACTED, Span, looks_random
from otel_rollout.processing.secret_keys import KeyKind, SecretKeys, can_be_secret, words_of

__all__ = ["SecretTexts"]

NAME_FIELDS: Final = ("env", "field", "header", "key", "name", "param", "parameter", "variable")
VALUE_FIELDS: Final = frozenset({"field_value", "header_value", "val", "value"})
"""Keys of objects that are pairs: `{"name": "api_key", "value": …}`."""
TAIL: Final = 96
"""Characters before a sign that a name is looked for in."""
ENDING: Final = 16
"""Characters before a sign that show most names to be ordinary."""
MAX_VALUE: Final = 16_384
MAX_TOKENS: Final = 4096
MAX_DEPTH: Final = 16
"""Values are this long, and containers this large and deep; what is beyond is searched by itself."""
MAX_REMEMBERED: Final = 8192
_QUOTES: Final = "\"'`"
_AROUND_NAMES: Final = " \t*?])\\\"'`!"
_IN_QUERIES: Final = frozenset({"key", "sig", "signature", "code"})
"""Parameters of a URL's query that are ordinary words elsewhere."""
_BESIDE_WORDS: Final = re.compile(
    r"""\\{0,64}["']?,?\s{0,4}\\{0,64}["'](?:bytes|decoded_token|entity|id|label|lexeme|logprob|pos|prob|rank|score|tag|token_id|type)\\{0,64}["']:"""
)
"""Keys after `token` in rows of a tokenizer, a lexer or a tagger."""

_BARE_NAME: Final = re.compile(r"[\w.$-]{1,64}(?: [A-Za-z]{2,20})?(?: [A-Za-z]{2,20})?")
"""A name without quotes, backwards."""
_ANNOTATION: Final = re.compile(
    r"(?:Optional\[str\]|str(?:ing)?(?: \| None)?|String|SecretStr|bytes|&(?:'static )?str|Any)"
    r"[ \t]{0,8}=(?!=)[ \t]{0,8}"
)
_OPENING: Final = re.compile(r"""(?P<prefix>[bBfFrRuUN@$]{0,2})(?P<token>\\{0,64}(?:\"{3}|'{3}|["'`]))""")
_BARE: Final = re.compile(r"""[^\s"'\\<>(){}\[\],;&|`]{1,128}""")
_CALLED: Final = re.compile(r"[\w.:$]{0,128}")
"""What a bracket follows in a call or a subscript."""
_BARE_LINE: Final = re.compile(r"""[^\s"'\\`]{1,256}""")
_MORE: Final = re.compile(r"""[^\s"'\\<>(){}\[\],;&|`]*""")
_SCHEMES: Final = re.compile(
    r"(?:bearer|basic|token|bot|digest|negotiate|api-?key|aws4-hmac-sha256|sso-key)[ ]{1,4}", re.IGNORECASE
)
_ANY_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9-]{1,30}[ ]{1,4}")
_COOKIES: Final = re.compile(r"""[^\s"'\\<;=]{1,256}=[^\n\r"'\\<]{1,4096}""")
_NEWLINE: Final = re.compile(r"(?:\r?\n|\\{1,64}n|\\{1,64}r\\{1,64}n)")
_BLOCK: Final = re.compile(r"[|>][+-]?[ \t]{0,8}(?=\r?\n|\\{1,64}n)")
_INDENTED: Final = re.compile(r"""(?:\r?\n|\\{1,64}n)[ \t]{1,64}(?:- )?(?P<value>[^\s"'\\#][^\n\r"\\]{0,4096})""")
_NEXT_LINE: Final = re.compile(r"""(?:\r?\n|\\{1,64}n)[ \t]{1,64}(?P<prefix>)(?P<token>\\{0,64}["'])""")
_STRUCTURE: Final = re.compile(r"""\\{0,64}["']|[{}\[\]]""")
_AFTER_STRING: Final = re.compile(r"\s{0,64}(:?)")
_TAG_VALUE: Final = re.compile(r"\s{0,64}(?:<!\[CDATA\[)?(?P<value>[^<>\s\]][^<>\"\\\]]{0,4096})(?=<|\]\]>)")
_OPTION: Final = re.compile(
    r"""(?<![\w-])--?(?P<name>[A-Za-z][\w-]{2,40})(?:[ \t]{1,8}|\\{0,64}["'],\s{0,8}(?=\\{0,64}["']))"""
)
_PAIRS: Final = tuple(
    re.compile(
        rf"""\{sign}\s{{0,8}}b?(?P<token>\\{{0,64}}["'])(?P<name>[\w.-]{{1,64}})(?P=token)\s?,\s{{0,8}}(?=b?\\{{0,64}}["'])"""
    )
    for sign in "(["
)
_ENV: Final = re.compile(r"ENV[ \t]{1,8}(?P<name>[A-Za-z_]\w{2,64})[ \t]{1,8}")
_SET: Final = re.compile(r"set(?:env|x| -[a-zU]{1,3})[ \t]{1,8}(?P<name>[A-Za-z_]\w{2,64})[ \t]{1,8}")
_USERINFO: Final = re.compile(
    r"""://(?P<user>[^\s/@:"'<>\\?#]{0,256})(?::(?P<password>[^\s/"'<>\\?#]{1,256}))?@(?=[\w.\[-])"""
)
_NETRC: Final = re.compile(r"password(?:\s{1,16}|\\{1,64}[nt][ \t]{0,16})(?P<value>[^\s\"\\]{4,256})")
_COMMANDS: Final = (
    ("curl", re.compile(r"""-(?:u|-user)[ =]{1,2}\\{0,64}["']?[^\s:"'\\]{1,64}:(?P<value>[^\s"'\\$]{4,256})""")),
    ("curl", re.compile(r"""-(?:b|-cookie)[ =]{1,2}\\{0,64}["'](?P<value>[^\s"'\\=]{1,256}=[^\n"'\\$]{4,4096})""")),
    ("sshpass", re.compile(r"""-p ?\\{0,64}["']?(?P<value>[^\s"'\\$]{4,256})""")),
    ("mysql", re.compile(r"""-p\\{0,64}["']?(?P<value>[^\s"'\\$]{4,256})""")),
    ("openssl", re.compile(r"""-pass(?:in|out)? \\{0,64}["']?pass:(?P<value>[^\s"'\\$]{4,256})""")),
    ("IDENTIFIED", re.compile(r"""BY[ ]{1,4}\\{0,64}['"](?P<value>[^\n"'\\]{4,256})""")),
    ("PASSWORD", re.compile(r"""PASSWORD[ ]{1,4}\\{0,64}['"](?P<value>[^\n"'\\]{4,256})""")),
)
"""A word, and what passes a password after it."""
_TABLE: Final = re.compile(
    r"[|│] {0,4}[*`]{0,2}(?P<name>\w[\w.-]{1,30}(?: \w{2,20})?)[*`]{0,2} {0,16}[|│] {0,4}`?"
    r"(?P<value>[^|│\s`\"\\]{4,256})"
)
_COLUMNS: Final = re.compile(
    r"(?:\A|[\n\"]|\\{1,64}n)(?P<name>[A-Za-z_][\w.-]{2,40})(?: {2,40}|\t|\\{1,64}t| (?=[^\s]{16}))"
    r"(?P<value>[^\s\"'=:,\\]{6,256})(?![^\s\\\"])"
)
"""A line of two columns: a name, and a value without spaces that ends with the line or before a space."""


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


class SecretTexts:
    """Finds the values after the names of secrets.

    Args:
        keys: Classifies names.
    """

    def __init__(self, keys: SecretKeys) -> None:
        self._keys = keys
        self._endings: dict[str, bool] = {}
        """True for the last characters before a sign, which recur, if they may end a secret's name."""

    def spans(self, text: str, *, is_json: bool) -> Iterator[Span]:
        """Yield the span of each value.

        Args:
            text: The text.
            is_json: True for a JSON text: no span crosses the ends of its strings.
        """
        for sign in (":", "=", "(", " is "):
            if sign in text:
                yield from self._after(text, sign, is_json=is_json)
        if "<" in text and ("</" in text or "]]>" in text):
            yield from self._tagged(text)
        yield from self._options(text, is_json=is_json)
        yield from self._addresses(text)

    def _after(self, text: str, sign: str, *, is_json: bool) -> Iterator[Span]:
        parts = text.split(sign)
        endings = {part[-ENDING:] for part in parts[:-1]}
        known = self._endings
        named = {ending for ending in endings if (known[ending] if ending in known else self._may_end(ending))}
        if not named:
            return
        end, walked = -len(sign), 0
        value = _Value(text, is_json=is_json)
        for part in parts[:-1]:
            end += len(part) + len(sign)
            if part[-ENDING:] not in named or end < walked:
                continue
            name = _name_before(part[-TAIL:])
            kind = self._kind(name, text, end, sign) if name is not None else KeyKind.ORDINARY
            if name is None or not kind:
                continue
            for span in value.after(end, sign, name, kind):
                walked = span[1]
                yield span
            walked = max(walked, value.walked)

    def _may_end(self, ending: str) -> bool:
        """Return False if no name of a secret ends like this."""
        name = _name_before(ending)
        if name is None:
            may_end = not ending.strip(_AROUND_NAMES)
        elif name.token and ending.count(name.token[-1]) > 1:
            # Both quotes are there.
            may_end = name.text in VALUE_FIELDS or bool(self._keys.kind(name.text))
        else:
            words = words_of(name.text)
            is_whole = len(words) > 1 or not ending.startswith(name.text)
            may_end = bool(words) and (self._keys.may_end(words[-1], is_whole=is_whole) or words[-1] in _IN_QUERIES)
        if len(self._endings) >= MAX_REMEMBERED:
            self._endings.clear()
        self._endings[ending] = may_end
        return may_end

    def _kind(self, name: _Name, text: str, position: int, sign: str) -> KeyKind:
        lower = name.text.lower()
        if lower in VALUE_FIELDS:
            found = _NAME_FIELD.search(text, max(0, position - TAIL - 64), position)
            return self._keys.kind(found["name"]) if found is not None else KeyKind.ORDINARY
        if sign == "=" and name.before[-1:] in ("?", "&") and lower in _IN_QUERIES:
            return KeyKind.KEY
        return self._keys.kind(name.text)

    def _tagged(self, text: str) -> Iterator[Span]:
        """Yield the values of XML's elements, and of parameters in calls: `<parameter=api_key>…`."""
        end = -1
        for part in text.split(">")[:-1]:
            end += len(part) + 1
            name = _name_before(part[-TAIL:])
            if name is None or "<" not in part[-TAIL:] or not (name.token or name.before[-1:] in ("<", "=", ":")):
                continue
            kind = self._keys.kind(name.text)
            value = _TAG_VALUE.match(text, end + 1)
            if kind and value is not None and can_be_secret(value["value"], kind):
                yield *value.span("value"), REDACTED

    def _options(self, text: str, *, is_json: bool) -> Iterator[Span]:
        """Yield the values of options, pairs, and commands that set a variable."""
        value = _Value(text, is_json=is_json)
        for sign, pattern in (("-", _OPTION), ("(", _PAIRS[0]), ("[", _PAIRS[1]), ("E", _ENV), (" ", _SET)):
            if sign not in text:
                continue
            for found in pattern.finditer(text):
                kind = self._keys.kind(found["name"])
                if kind is KeyKind.PASSWORD and text[found.start()] == "[":
                    # A list of names: `["password", "login"]`.
                    kind = KeyKind.KEY
                if kind:
                    yield from value.at(found.end(), kind, "")
        for sign, pattern in (("|", _TABLE), ("│", _TABLE), ("  ", _COLUMNS), ("\t", _COLUMNS), ("\\t", _COLUMNS)):
            for found in pattern.finditer(text) if sign in text else ():
                if (kind := self._keys.kind(found["name"])) and can_be_secret(found["value"], kind, is_bare=True):
                    yield *found.span("value"), REDACTED

    def _addresses(self, text: str) -> Iterator[Span]:
        """Yield the passwords and tokens before the host of a URL, in `.netrc`, and after `curl -u`."""
        for found in _USERINFO.finditer(text) if "@" in text and "/" in text else ():
            if found["password"] is not None:
                if not found["password"].isdigit() and can_be_secret(found["password"], KeyKind.PASSWORD):
                    yield *found.span("password"), REDACTED
            elif looks_random(found["user"]):
                yield *found.span("user"), REDACTED
        if "password" in text:
            for found in _NETRC.finditer(text):
                if _MACHINE.search(_ESCAPED_SPACE.sub(" ", text[max(0, found.start() - 300) : found.start()])):
                    yield *found.span("value"), REDACTED
        for word, pattern in _COMMANDS:
            for found in pattern.finditer(text) if pattern.pattern[0] in text and word in text else ():
                if can_be_secret(found["value"], KeyKind.PASSWORD):
                    yield *found.span("value"), REDACTED


_ESCAPED_SPACE: Final = re.compile(r"\\[nt]")
_MACHINE: Final = re.compile(r"(?:machine|login|account)\s\S{1,200}\s{1,16}\Z|default\s\Z")
_NAME_FIELD: Final = re.compile(
    rf"""(?:{"|".join(NAME_FIELDS)})["'\\ ]{{0,9}}[:=]["'\\ ]{{0,9}}(?P<name>[\w.-]{{1,64}})"""
    r"""["'\\,\s][^{}\[\]<>:=]{0,40}\Z""",
    re.IGNORECASE,
)


def _name_before(tail: str) -> _Name | None:
    """Return the name at the end of `tail`."""
    body = _trimmed(tail)
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
    return _Name(name[1:] if before[-1:] == "\\" and name[0] in "nrt" else name, "", before)


def _trimmed(text: str) -> str:
    """Return the text without the spaces, the tabs (escaped too) and the asterisks of Markdown at its end."""
    text = text.rstrip(" \t*?!")
    while text.endswith("\\t"):
        text = text[:-2].rstrip(" \t\\")
    return text


def _skip_space(text: str, start: int, *, with_lines: bool) -> int:
    """Return the position after spaces, tabs (escaped too) and Markdown's asterisks; and after lines, if asked."""
    for _ in range(MAX_VALUE):
        sign, escaped = text[start : start + 1], text[start : start + 2]
        if (
            escaped == "\\t"
            or (escaped == "**" and text[start + 2 : start + 3] in (" ", "`"))
            or (escaped == "\\n" and with_lines)
        ):
            start += 2
        elif sign in (" ", "\t") or (with_lines and sign in ("\n", "\r")):
            start += 1
        else:
            break
    return start


class _Value:
    """Reads the values of one text.

    Args:
        text: The text.
        is_json: True for a JSON text.
    """

    def __init__(self, text: str, *, is_json: bool) -> None:
        self._text = text
        self._is_json = is_json
        self.walked = 0
        """The end of the last container, whose values are found."""

    def after(self, position: int, sign: str, name: _Name, kind: KeyKind) -> Iterator[Span]:
        """Yield the spans of the value after the sign at `position`."""
        text, start = self._text, position + len(sign)
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
        start = _skip_space(text, start, with_lines=bool(name.token))
        if sign == ":" and not name.token and (annotation := _ANNOTATION.match(text, start)):
            start = annotation.end()
        is_row = kind is KeyKind.WORD
        for span in self.at(start, kind, name.token, name):
            if not (is_row and _BESIDE_WORDS.match(text, span[1])):
                yield span

    def at(self, start: int, kind: KeyKind, token: str, name: _Name | None = None) -> Iterator[Span]:
        """Yield the spans of the value that starts there.

        Args:
            start: The position of the value.
            kind: The kind of its key.
            token: The closing quote of the key, if it has one.
            name: The key, if it is before a sign.
        """
        text = self._text
        opening = _OPENING.match(text, start)
        if opening is not None:
            yield from self._quoted(opening, kind)
        elif text[start : start + 1] in ("[", "{") and text[start : start + 1]:
            # Only names in double quotes are outside the strings of a JSON text.
            yield from self._walk(start, kind, token.count("\\") if token[-1:] == '"' else 1)
        elif name is not None and (_NEWLINE.match(text, start) or _BLOCK.match(text, start)):
            yield from self._indented(start, kind)
        else:
            yield from self._bare(start, kind, token, name)

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
            scheme = _SCHEMES.match(value)
            yield start + (scheme.end() if scheme is not None else 0), stop, REDACTED

    def _bare(self, start: int, kind: KeyKind, token: str, name: _Name | None) -> Iterator[Span]:
        text = self._text
        lower = name.text.lower() if name is not None else ""
        if "cookie" in lower and (cookies := _COOKIES.match(text, start)):
            if looks_random(cookies[0]):
                yield *cookies.span(), REDACTED
            return
        scheme = (_ANY_SCHEME if "authorization" in lower else _SCHEMES).match(text, start)
        start = scheme.end() if scheme is not None else start
        begins_line = (
            name is not None and not name.token and name.before.rstrip(" \t").endswith(("\n", "export", "\\n"))
        )
        found = (_BARE_LINE if begins_line and kind is KeyKind.PASSWORD else _BARE).match(text, start)
        if found is None or (text[found.end() : found.end() + 1] in ("(", "[", "{") and _CALLED.fullmatch(found[0])):
            return
        value = found[0].rstrip(".,;:")
        is_set = name is not None and text[start - 1] in "=:" and name.text.isupper()
        if not can_be_secret(value, kind, is_bare=not is_set):
            return
        if token and name is not None:
            # A number in JSON; the text in its place needs quotes.
            yield start, start + len(value), f"{token}{REDACTED}{token}"
            return
        more = _MORE.match(text, found.end()) if len(found[0]) == len(value) else None
        yield start, more.end() if more is not None else start + len(value), REDACTED

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
        """Yield the texts of a list or an object; a JSON schema, which describes a value, has none.

        Args:
            start: The opening bracket.
            kind: The kind of its key.
            slashes: The backslashes of its double quotes; one with fewer ends the JSON string around it.
        """
        text, depth, position, key = self._text, 0, start, ""
        spans: list[Span] = []
        is_schema, has_value = False, False
        for _ in range(MAX_TOKENS):
            found = _STRUCTURE.search(text, position)
            if found is None:
                break
            sign = found[0][-1]
            if self._is_json and sign == '"' and len(found[0]) <= slashes:
                break
            position = found.end()
            if sign in "[{":
                depth += 1
                if depth > MAX_DEPTH:
                    break
            elif sign in "]}":
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
                    has_value = has_value or key == "value"
                    is_schema = is_schema or key in ("$ref", "anyOf", "oneOf", "allOf", "properties")
                    continue
                is_schema = is_schema or (key == "type" and value in _SCHEMA_TYPES)
                if key not in _NO_SECRETS and can_be_secret(value, kind):
                    spans.append((found.end(), stop, REDACTED))
        self.walked = max(self.walked, min(position, len(text)))
        if has_value or not is_schema:
            yield from spans

    def _closing(self, token: str, start: int) -> int:
        """Return the start of the closing quote: it has as many backslashes as the opening one, or fewer.

        Inside the value, escaped quotes have more.
        """
        text, sign, slashes = self._text, token[-1], token.count("\\")
        triple = token.lstrip("\\") if len(token) - slashes > 1 else ""
        last = min(len(text), start + MAX_VALUE)
        position = start
        while True:
            position = text.find(triple or sign, position, last)
            if position < 0:
                stop = last
                break
            before = position
            while before > start and text[before - 1] == "\\":
                before -= 1
            run = position - before
            if run < slashes or run % (2 * (slashes + 1)) == slashes:
                stop = position - min(run, slashes)
                break
            position += 1
        if self._is_json and sign != '"':
            # The JSON string around it ends before.
            limit = self._string_end(start, stop)
            stop = min(stop, limit)
        return stop

    def _string_end(self, start: int, stop: int) -> int:
        position = self._text.find('"', start, stop)
        while position >= 0:
            before = position
            while before > start and self._text[before - 1] == "\\":
                before -= 1
            if (position - before) % 2 == 0:
                return position
            position = self._text.find('"', position + 1, stop)
        return stop


_SCHEMA_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NO_SECRETS: Final = frozenset(
    {"type", "name", "user", "username", "description", "title", "domain", "path", "url", "host"}
)
