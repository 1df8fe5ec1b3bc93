"""Values after the names of secrets: mappings, assignments, YAML, shells, headers, URLs, options, elements, .netrc.

One pattern finds the names. The notation depends on what follows a name: a sign, the next item of a list, a space. The
value is read at any depth of escaping.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from otel_rollout.finish.known_forms import REDACTED, Span, looks_random
from otel_rollout.finish.secret_keys import IN_QUERIES, SCHEME, KeyKind, SecretKeys, can_be_secret

TAIL: Final = 96
"""A name, and the part of an address before its host, have at most this many and four times as many characters."""
MAX_VALUE: Final = 16_384
MAX_TOKENS: Final = 4096
MAX_DEPTH: Final = 16
MAX_COMMAND: Final = 210

NOTATIONS_LOOK: Final = "|".join(
    (
        *(f"{name}=" for name in sorted(IN_QUERIES)),
        r"""://[^\t\n\r /"'<>\\?#]+@""",
        r"(?:curl|ldap[a-z]{1,8}|mongo|mongosh|mysql[a-z]{0,8}|openssl|redis-cli|sshpass) ",
    )
)
"""A pattern of what a secret may follow without a name: a parameter of a query, an address, a command."""
_NOTATIONS: Final = {
    "colon": r":(?!:|//)=?",
    "equals": r"=(?![=~])>?",
    "element": r">(?=[^<>\s\]]|<!)",
    "verb": r"""(?<=[ \t])is:?[ ](?=["'`]?\w)""",
    "call": r"""\((?=\\{0,64}["'])""",
    "cell": r"\|(?=[ ][`\w])",
    # `{"name": "api_key", "value": …}`; Terraform's variables; a property list.
    "pair": r"""(?:[,\s]|(?<=[ \t])|\\{1,64}n)\s{0,32}\\{0,64}["']?(?:(?:field_|header_)?value|val|string|default)"""
    r"""\\{0,64}["']?\s{0,4}[:=]\s{0,8}|[ ]?\{[^{}]{0,120}?default[ ]{1,8}=[ ]"""
    r"""|</\w{1,20}>(?:\s|\\{1,64}n){0,16}<(?:string|value)>""",
    "item": r""",\s{0,8}(?=b?\\{0,64}["'])""",
    "space": r"(?<=[ \t])",
}
_AFTER_NAME: Final = re.compile(
    r"""(?P<quote>\\{0,64}["'`])?[\])]?(?:[ \t*?]|!(?!=)|\\{1,64}t){0,64}"""
    rf"(?:{'|'.join(f'(?P<{notation}>{pattern})' for notation, pattern in _NOTATIONS.items())})"
    r"(?:(?(quote)\s{0,16}(?:\\{1,64}n)?\s{0,16})(?:[ \t]|\*\*(?=[ `])|\\{1,64}t){0,64})"
)
"""Matches the text between a name and its value; the group is named after the notation."""
_BARE_NAME: Final = re.compile(r"[\w.$-]{1,64}(?: [A-Za-z]{2,20})?(?: [A-Za-z]{2,20})?")
"""A name without quotes, backwards."""
_BETWEEN: Final = re.compile(
    r"""(?:[\w.\[\]<>&'| ?]{1,40}=(?!=)[ \t]{0,8}"""
    r"""|[\w.:\[\]&-]{0,40}(?:[Ss]tr|[Ss]tring|[Bb]ytes?|Secret\w{0,10}|from|new|Some)(?:\(\d{1,4}\))?[( ]\s{0,8}"""
    r"""|\\{0,64}["'][A-Za-z]{3,10} \\{0,64}["'] ?[+.] ?|[\w.:?$()\[\]"'\\-]{1,80} (?:\|\||\?\?|or) )"""
    r"""(?=[bBfFrRuUN@$]{0,2}#{0,2}(?:\\{1,64}"|\\{0,64}['`]))|\$\{\w{1,64}:?-"""
)
"""A type, a call that only wraps, a scheme, the first choice before a default."""
_OPENING: Final = re.compile(r"""[bBfFrRuUN@$]{0,2}#{0,2}(?P<token>\\{0,64}(?:\"{3}|'{3}|["'`]))""")
_BARE: Final = re.compile(r"""[^\s"'\\<>(){}\[\],;&|`]{1,2048}""")
_BARE_LINE: Final = re.compile(r"""[^\s"'\\`]{1,256}""")
_BARE_QUOTED: Final = re.compile(r"""[^\s"'\\`&;,|]{1,256}""")
_ANY_SCHEME: Final = re.compile("[A-Za-z][A-Za-z0-9-]{1,30}[ ]{1,4}")
_COOKIES: Final = re.compile(r"""[^\s"'\\<;=]{1,256}=[^\n\r"'\\<]{1,4096}""")
_NEWLINE: Final = re.compile(r"(?:\\{1,64}r)?\\{1,64}n")
_BLOCK: Final = re.compile(r"(?:![\w-]{1,20} )?[|>][+-]?[ \t]{0,8}(?=\\{1,64}n)")
_INDENTED: Final = re.compile(r"""\\{1,64}n[ \t]{1,64}(?:- )?(?P<value>[^\s"'\\#][^\n\r"\\]{0,4096})""")
_NEXT_LINE: Final = re.compile(r"""\\{1,64}n[ \t]{1,64}(?P<token>\\{0,64}["'])""")
_STRUCTURE: Final = re.compile(r"""\\{0,64}["']|[(){}\[\]]""")
_AFTER_STRING: Final = re.compile(r"\s{0,64}:")
_ELEMENT: Final = re.compile(r"(?:<!\[CDATA\[)?(?P<value>[^<>\s\]][^<>\"\\\]]{0,4096})(?=<|\]\]>)")
_SPACE: Final = r"(?:\s{1,16}|\\{1,64}[nt][ \t]{0,16}(?:\\{1,64}t)?)"
_NETRC: Final = re.compile(rf"(?:(?:machine|login|account){_SPACE}[^\s\\\"]{{1,200}}|default){_SPACE}\Z")
_QUOTE: Final = r"""\\{0,64}["']?"""
_FLAG: Final = re.compile(
    rf"""curl(?=[ ])[^\n|;&{{}}]{{0,200}}?[ ](?:--?u(?:ser)?[ =]{_QUOTE}[^\s:"'\\]{{1,64}}:"""
    rf"""|--?(?:b|cookie)[ =]{_QUOTE}[^\s"'\\=]{{1,256}}=)"""
    rf"""|openssl(?=[ ])[^\n|;&{{}}]{{0,200}}?[ ]-(?:k[ ]|pass(?:in|out)?[ ]{_QUOTE}pass:)"""
    r"""|mysql[a-z]{0,8}(?=[ ])[^\n|;&{}]{0,200}?[ ]-p(?=[^\s-])|(?:mongo|mongosh)(?=[ ])[^\n|;&{}]{0,200}?[ ]-p[ ]"""
    r"""|redis-cli(?=[ ])[^\n|;&{}]{0,200}?[ ]-a[ ]|ldap[a-z]{1,8}(?=[ ])[^\n|;&{}]{0,200}?[ ]-w[ ]|sshpass[ ]-p[ ]?"""
)
"""Matches a command up to the password in an option without a name."""
_USERINFO: Final = re.compile(
    r"""://(?P<user>[^\s/@:"'<>\\?#]{0,256})(?::(?P<password>[^\s/"'<>\\?#]{1,256}))?@(?=[\w.\[-])"""
)
_NO_SECRETS: Final = re.compile(
    "(?:const|description|domain|enum|examples?|format|host|name|path|pattern|title|type|url|user|username)\\Z"
)
"""Keys of an account, and of a JSON schema, which describes a value."""


class _Name(NamedTuple):
    """A name in a text: its closing quote with backslashes, and what is before it."""

    text: str = ""
    quote: str = ""
    before: str = ""


_NO_NAME: Final = _Name()


def _name_before(text: str, end: int, quote: str) -> _Name:
    """Return the name that ends there, before a quote that may be empty."""
    # The start of the text begins a line too.
    tail = text[end - TAIL : end] if end > TAIL else f"\n{text[:end]}"
    if quote:
        start = tail.rfind(quote[-1]) + 1
        return _Name(tail[start:].strip(), quote, tail[: max(0, start - len(quote))])
    bare = _BARE_NAME.match(tail[::-1])
    name = bare[0][::-1] if bare is not None else ""
    before = tail[: len(tail) - len(name)]
    # An escaped newline ends in a letter.
    is_escape = before[-1:] == "\\" and name[:1] in ("n", "r", "t")
    return _Name(name[is_escape:], "", before + name[:is_escape])


def _option_of(text: str, place: int) -> re.Match[str] | None:
    """Return the match of a command, whose name ends at a space, up to its password; None if it is another's."""
    flag = _FLAG.search(text, max(0, place - 12), place + MAX_COMMAND)
    return flag if flag is not None and flag.start() < place else None


def secret_spans(text: str, places: Iterable[int], keys: SecretKeys) -> Iterator[Span]:
    """Yield the span of each value after a name that ends at one of these places; none crosses the end of a string.

    Args:
        text: JSON.
        places: The last characters of the matches of `keys.look` and `NOTATIONS_LOOK`, in ascending order.
        keys: Classifies the names.
    """
    value = _Value(text)
    for place in places:
        if text[place] == "@":
            start = text.rfind("://", max(0, place - 4 * TAIL), place)
            if start >= 0 and (found := _USERINFO.match(text, start)) is not None:
                password = found["password"] or ""
                if can_be_secret(password, KeyKind.PASSWORD):
                    yield *found.span("password"), REDACTED
                if looks_random(found["user"]):
                    yield *found.span("user"), REDACTED
        elif text[place] == " " and (flag := _option_of(text, place)) is not None:
            yield from value.at(flag.end(), KeyKind.PASSWORD, is_whole=True)
        elif (after := _AFTER_NAME.match(text, place)) is not None:
            yield from _after_name(value, keys, text, after)


def _after_name(value: _Value, keys: SecretKeys, text: str, after: re.Match[str]) -> Iterator[Span]:
    """Yield the spans of the value that follows a name."""
    quote, sign, end = after["quote"] or "", after.lastgroup or "", after.end()
    if quote[-1:] == '"' and len(quote) % 2:
        # The backslashes are the key's.
        quote = '"'
    name = _name_before(text, after.start(), quote)
    is_in_query = sign == "equals" and name.before[-1:] in ("?", "&") and name.text.lower() in IN_QUERIES
    kind = KeyKind.KEY if is_in_query else keys.kind(name.text)
    if not kind or after.start() < value.walked[kind]:
        return
    start = end - len(after[0]) - len("password")
    is_netrc = (
        sign == "space" and name.text[-8:] == "password" and _NETRC.search(text, max(0, start - MAX_COMMAND), start)
    )
    if not is_netrc and not _is_name(text, after, name, kind):
        return
    if sign == "element" or (sign == "pair" and after["pair"][-1] == ">"):
        element = _ELEMENT.match(text, end)
        if element is not None and can_be_secret(element["value"], kind):
            yield *element.span("value"), REDACTED
        return
    if sign == "call" and kind is KeyKind.KEY:
        # It may be a name: `get_secret("client-secret")`.
        kind = KeyKind.WORD
    elif sign == "item" and name.before[-1:] == "[" and kind is KeyKind.PASSWORD:
        # A list of names: `["password", "login"]`.
        kind = KeyKind.KEY
    for span in value.at(end, kind, name, is_whole=bool(is_netrc)):
        value.walked[: kind + 1] = [max(each, span[1]) for each in value.walked[: kind + 1]]
        yield span


def _is_name(text: str, after: re.Match[str], name: _Name, kind: KeyKind) -> bool:
    """Return True if the text around a name fits its notation: a value follows a space only after an option."""
    sign, place = after.lastgroup, after.start(after.lastgroup or 0)
    is_option = name.text.rpartition(" ")[2][:1] == "-"
    if sign == "cell":
        return name.before.rstrip(" *`|")[-1:] in ("\n", "n", '"', "")
    if sign == "item":
        return (
            bool(name.quote)
            and "/" not in name.text
            and (is_option or name.before.rstrip(" \n\t\\nb")[-1:] in ("(", "["))
        )
    if sign == "space":
        # Options, `ENV NAME x` in a Dockerfile, `PASSWORD 'x'` in SQL.
        is_quoted = kind is KeyKind.PASSWORD and text[place : place + TAIL].lstrip("\\")[:1] == "'"
        return is_option or is_quoted or name.text.rpartition(" ")[0][-3:] == "ENV"
    return True


class _Value:
    """Reads the values of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.walked = [0] * len(KeyKind)
        """The end of the last container of each kind or a stronger one, whose values are found."""

    def at(self, start: int, kind: KeyKind, name: _Name = _NO_NAME, *, is_whole: bool = False) -> Iterator[Span]:
        """Yield the spans of the value that starts there; only a space or a quote ends one that is whole."""
        text, token = self._text, name.quote
        between = _BETWEEN.match(text, start)
        start = between.end() if between is not None else start
        opening = _OPENING.match(text, start)
        if opening is not None:
            yield from self._quoted(opening, kind, token)
        elif text[start : start + 1] in ("[", "{", "("):
            # Only names in double quotes are outside the strings of a JSON text.
            yield from self._walk(start, kind, token.count("\\") if token[-1:] == '"' else 1)
        elif name.text and (_NEWLINE.match(text, start) or _BLOCK.match(text, start)):
            yield from self._indented(start, kind, token)
        else:
            yield from self._bare(start, kind, name, is_whole=is_whole)

    def _quoted(self, opening: re.Match[str], kind: KeyKind, token: str) -> Iterator[Span]:
        start, stop = opening.end(), self._closing(opening["token"], opening.end())
        value = self._text[start:stop]
        if opening["token"] != token and (value[:1].isspace() or value[:1] in tuple(",;:)]}+")):
            # The quote closes a string that ends with the name.
            return
        if not can_be_secret(value, kind):
            # A quote that does not end on its line.
            value = _NEWLINE.split(value, 1)[0]
            stop = start + len(value)
        if can_be_secret(value, kind):
            scheme = SCHEME.match(value)
            yield start + (scheme.end() if scheme is not None else 0), stop, REDACTED

    def _bare(self, start: int, kind: KeyKind, named: _Name, *, is_whole: bool) -> Iterator[Span]:
        text, (name, token, before) = self._text, named
        if "cookie" in name.lower() and (cookies := _COOKIES.match(text, start)):
            if looks_random(cookies[0]):
                yield *cookies.span(), REDACTED
            return
        scheme = (_ANY_SCHEME if "authorization" in name.lower() else SCHEME).match(text, start)
        start = scheme.end() if scheme is not None else start
        # A line of a file of variables.
        is_line = kind is KeyKind.PASSWORD and not token and before.rstrip(" \t").endswith(("\\n", "export"))
        is_line = is_line or is_whole
        found = (_BARE_LINE if is_line else _BARE_QUOTED if before[-1:] in ('"', "'") else _BARE).match(text, start)
        if found is None or text[found.end() : found.end() + 1] in ("(", "[", "{"):
            return
        value = found[0].rstrip(".,;:")
        is_set = bool(name) and text[start - 1] in "=:" and name.isupper()
        if can_be_secret(value, kind, is_bare=not (is_set or is_whole)):
            # A number in JSON has no quotes; the text in its place needs them.
            yield start, start + len(value), f"{token}{REDACTED}{token}"

    def _indented(self, start: int, kind: KeyKind, token: str) -> Iterator[Span]:
        """Yield the lines below a key of YAML: a block, a list, or the value on the next line."""
        block, quoted = _BLOCK.match(self._text, start), _NEXT_LINE.match(self._text, start)
        if quoted is not None:
            yield from self._quoted(quoted, kind, token)
        position = block.end() if block is not None else start
        for _ in range(MAX_DEPTH):
            line = _INDENTED.match(self._text, position)
            if line is None or (block is None and ": " in line["value"]):
                return
            value, position = line["value"].rstrip(), line.end()
            if can_be_secret(value, kind):
                yield line.start("value"), line.start("value") + len(value), REDACTED
            elif block is None:
                return

    def _walk(self, start: int, kind: KeyKind, slashes: int) -> Iterator[Span]:
        """Yield the texts of a list or an object, without those that describe one, as a JSON schema does.

        `slashes` is the number of backslashes of its double quotes; one with fewer ends the JSON string around it.
        """
        text, depth, position, key = self._text, 0, start, ""
        for _ in range(MAX_TOKENS):
            found = _STRUCTURE.search(text, position)
            if found is None:
                break
            sign, position, run = found[0][-1], found.end(), len(found[0]) - 1
            if sign == '"' and slashes and (run < slashes or run % 2 == 0):
                break
            if sign in "\"'":
                stop = self._closing(found[0], position)
                value = text[position : min(stop, position + MAX_VALUE)]
                position = stop + len(found[0])
                if _AFTER_STRING.match(text, position):
                    key = value
                elif not _NO_SECRETS.match(key) and can_be_secret(value, kind):
                    yield found.end(), stop, REDACTED
            depth += (sign in "[{(") - (sign in "]})")
            if not 0 < depth <= MAX_DEPTH:
                break
        for weaker in range(kind + 1):
            self.walked[weaker] = max(self.walked[weaker], min(position, len(text)))

    def _closing(self, token: str, start: int, last: int | None = None) -> int:
        """Return the start of the closing quote, at `last` at most: it has as many backslashes as the opening one.

        Inside the value, escaped quotes have more, and SQL writes a quote twice; fewer end the text around it.
        """
        text, sign, slashes = self._text, token[-1], token.count("\\")
        wanted = token.lstrip("\\")
        stop = min(len(text), start + MAX_VALUE) if last is None else last
        position = text.find(wanted, start, stop)
        while position >= 0:
            run = 0
            while position - run > start and text[position - run - 1] == "\\":
                run += 1
            if wanted == "'" and not run and position > start and text[position + 1 : position + 2] == "'":
                position += 1
            elif sign == '"' and run % 2 == 0:
                # Escaped backslashes, and the end of the JSON string.
                return position
            elif run < slashes or run % (2 * (slashes + 1)) == slashes:
                stop = position - min(run, slashes)
                break
            position = text.find(wanted, position + 1, stop)
        # The JSON string around it may end before.
        return self._closing('"', start, stop) if sign != '"' else stop
