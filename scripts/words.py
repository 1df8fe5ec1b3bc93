"""Find words in comments, docstrings and pages that read as translated; their recorded numbers may only fall.

    python scripts/words.py                       # exit code 1 where a number rose
    python scripts/words.py --list otel_rollout   # each place, with the plain word
    python scripts/words.py --record              # record lower numbers

Code in backticks and code blocks are left out, as are strings that aren't docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT = Path(__file__).resolve().parent.parent

# Lower numbers are recorded here by the change that lowers them (--record).
RECORDED: Final = {
    "otel_rollout": 2,
    "exporters": 0,
    "docs": 7,
    "benchmarks": 121,
    "scripts": 0,
}
PAGES: Final = {"docs": ("docs", "README.md", "CONTRIBUTING.md", "SECURITY.md")}
"""The folders and files of a group, if it isn't the folder of that name."""

OPENER: Final = re.compile(
    r"(?:What|Whether|Where|Which|Who|Whom|Whose|How|Of|Beside|Behind)\b(?!.*\?$)"
    r"|(?:Return|Yield|Give)s? (?:what|whether|where|how)\b"
)
_TEXTS: Final = r"(?:warnings?|log|lines?|messages?|errors?|pages?|README\)?)"
_PEOPLE: Final = r"(?:users?|readers?|people|who|whoever|you|we|nobody|somebody|someone|newcomers?|models?)"
RULES: Final = (
    (re.compile(r"\b(?:those of|that of|the ones? (?:that|of|which|who))\b", re.I), "name the thing"),
    (
        re.compile(r"(?<!\bto )\b(?:tells?|told|says?|said|knows?|knew)\b|\bstands?\b(?! for\b|-in)|\bstood\b", re.I),
        "report, contain, distinguish, be, for example",
    ),
    (re.compile(r"\bbeside\b", re.I), "besides, next to, with, and"),
    (re.compile(r"\bbehind\b(?! (?:an? |the )?(?:\w+ )?(?:proxy|proxies|load balancer|gateway|link))", re.I), "after"),
    (re.compile(r"\bat once\b(?! an? )", re.I), "immediately, simultaneously"),
    (
        re.compile(
            r"\b(?:leaves?|left|is|are|was|it|them|sent|goes|comes|others|refused|failed)(?: [\w`']+){0,5}? alone\b"
            r"|(?P<wrong>\balone\b)",
            re.I,
        ),
        "only",
    ),
)
_SPEAKERS: Final = re.compile(rf"\b(?:{_PEOPLE}(?: \w+)?|{_TEXTS}) $", re.I)

ALLOWED: Final[dict[tuple[str, str], str]] = {}
"""Texts that are good as they are, by file and words; the values are reasons."""

NAMES: Final = frozenset(
    {"amounts", "end_times", "open_notes", "side_lane", "recent", "span_rows", "span_shapes", "span_figures", "_Hurry"}
)
"""Names of modules and classes that explain nothing."""

_ARGUMENT: Final = re.compile(r"^\s*\*{0,2}\w+: ", re.M)
_CODE: Final = re.compile(r"`[^`]*`")
_FENCED: Final = re.compile(r"^ *(```|~~~).*?^ *\1", re.M | re.S)
_COMMENT: Final = re.compile(r"<!--.*?-->", re.S)


class Place(NamedTuple):
    """A place with a word to replace."""

    path: str
    line: int
    words: str
    plain: str


def main() -> int:
    """Compare the numbers with the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="GROUP|FILE|FOLDER", help="print the places")
    parser.add_argument("--record", action="store_true", help="record lower numbers")
    options = parser.parse_args()
    found = {group: list(places(group, ROOT)) for group in RECORDED}
    if options.list:
        for place in (place for group in found.values() for place in group):
            if place.path.startswith(options.list) or place in found.get(options.list, ()):
                print(f"{place.path}:{place.line}: {place.words}  ({place.plain})")
        return 0
    counts = {group: len(found[group]) for group in RECORDED}
    if options.record:
        record({group: min(count, RECORDED[group]) for group, count in counts.items()})
        return 0
    risen = [group for group, count in counts.items() if count > RECORDED[group]]
    for group in risen:
        print(
            f"{group}: {counts[group]} places have words that read as translated, {RECORDED[group]} before: "
            f"see them with scripts/words.py --list {group}"
        )
    return 1 if risen else 0


def record(counts: dict[str, int]) -> None:
    """Write the numbers into this file."""
    path = Path(__file__)
    text = path.read_text(encoding="utf-8")
    for group, count in counts.items():
        text = re.sub(rf'^    "{group}": \d+,$', f'    "{group}": {count},', text, count=1, flags=re.M)
    path.write_text(text, encoding="utf-8")


def places(group: str, root: Path) -> Iterator[Place]:
    """Yield the places of a group of files."""
    tops = [root / name for name in PAGES.get(group, (group,))]
    suffix = ".md" if group in PAGES else ".py"
    files = [file for top in tops for file in (sorted(top.rglob(f"*{suffix}")) if top.is_dir() else [top])]
    for file in files:
        name = file.relative_to(root).as_posix()
        source = file.read_text(encoding="utf-8")
        texts = _of_page(source) if suffix == ".md" else _of_module(source)
        for line, text, has_opener in texts:
            yield from _in_text(name, line, text, has_opener=has_opener)
        if suffix == ".py" and file.stem in NAMES and (name, file.stem) not in ALLOWED:
            yield Place(name, 1, file.stem, "a name that explains")


def _in_text(path: str, line: int, text: str, *, has_opener: bool) -> Iterator[Place]:
    """Yield the places of one docstring, comment or paragraph."""
    plain = _CODE.sub(lambda found: "`x`" + "\n" * found.group().count("\n"), text)
    if has_opener:
        begins = [0, *(found.end() for found in _ARGUMENT.finditer(plain))]
        for begin in begins:
            rest = plain[begin:].lstrip()
            if found := OPENER.match(rest.split("\n", 1)[0]):
                yield from _unless_allowed(path, line, plain, begin, found.group(), "begin with a verb or a noun")
    for rule, instead in RULES:
        for found in rule.finditer(plain):
            if found.groupdict("").get("wrong", "x") and not _SPEAKERS.search(plain[: found.start()]):
                yield from _unless_allowed(path, line, plain, found.start(), found.group(), instead)


def _unless_allowed(path: str, line: int, text: str, at: int, words: str, instead: str) -> Iterator[Place]:
    around = " ".join(text[max(0, at - 30) : at + len(words) + 30].split())
    if not any(path == file and part in around for file, part in ALLOWED):
        yield Place(path, line + text[:at].count("\n"), around, instead)


def _of_module(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line and text of each docstring and each block of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value, True
    begun, block = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith(("# noqa", "# type:", "#!")):
            continue
        if block and token.start[0] == begun + len(block):
            block.append(token.string.lstrip("# "))
            continue
        if block:
            yield begun, "\n".join(block), True
        begun, block = token.start[0], [token.string.lstrip("# ")]
    if block:
        yield begun, "\n".join(block), True


def _of_page(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the prose of a page; headings and table cells may be questions."""
    for hidden in (_FENCED, _COMMENT):
        source = hidden.sub(lambda found: "\n" * found.group().count("\n"), source)
    yield 1, source, False


if __name__ == "__main__":
    sys.exit(main())
