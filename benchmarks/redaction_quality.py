"""How many secrets redaction finds, how much else it changes, and how its time grows with a text's length.

The cases were written from providers' documentation by people who didn't know the patterns; they are compressed, since
scanners of repositories would take them for real secrets.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any, Final

import orjson

from otel_rollout.finish import Redactor, known_forms, secret_keys, secret_text

__all__ = ["false_changes", "growth", "megabytes_a_second", "recall"]

parser: Any = import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
CASES: Final = Path(__file__).parent / "redaction_cases"
LINES: Final = 100_000
LINES_OF_A_FILE: Final = 40
MOST_GROWTH: Final = 2.3
SIZE: Final = 20_000
TURNS: Final = 3
SHORTEST_PART: Final = 9


def cases(name: str) -> list[dict[str, str]]:
    """Return the cases of a file: `forms`, `keys` or `ordinary`."""
    with gzip.open(CASES / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def recall(name: str, redactor: Redactor) -> float:
    """Return the part of a file's secrets that is gone from the text, and from JSON with the text."""
    rows = cases(name)
    return sum(not _is_left(row["secret"], _redacted(redactor, row["text"])) for row in rows) / len(rows)


def false_changes(redactor: Redactor) -> dict[str, tuple[int, int]]:
    """Return the number of changed texts and of all, for ordinary strings, traps and lines of installed packages."""
    traps = (CASES / "traps.txt").read_text().splitlines()
    texts = {"ordinary strings": [row["text"] for row in cases("ordinary")], "traps": traps, "lines": list(_lines())}
    return {
        name: (sum(any(each != text for each in _redacted(redactor, text)) for text in group), len(group))
        for name, group in texts.items()
    }


def growth(redactor: Redactor) -> list[tuple[float, str]]:
    """Return how much longer a search takes for a text of twice the length, with the repeated unit; the worst first."""
    rows = []
    for unit in sorted(set(_units())):
        ratio = _growth_of(redactor, unit)
        for _ in range(TURNS):
            # Another process may have taken the cache.
            ratio = min(ratio, _growth_of(redactor, unit)) if ratio > MOST_GROWTH else ratio
        rows.append((ratio, unit))
    return sorted(rows, reverse=True)


def megabytes_a_second(redactor: Redactor) -> dict[str, float]:
    """Return the speed of a search in the standard library's programs, and in the prose of Python's documentation."""
    programs = [path.read_text("utf-8", "replace") for path in sorted(Path(re.__file__).parents[1].glob("*.py"))]
    lines = [line for text in topics.values() for line in text.split("\n") if line[:1].isalpha() and "(" not in line]
    texts = {"programs": programs, "prose": ["\n".join(lines)] * TURNS}
    return {
        name: sum(map(len, group)) / 1e6 / _seconds(lambda group=group: [redactor.value(text) for text in group])
        for name, group in texts.items()
    }


def _redacted(redactor: Redactor, text: str) -> tuple[str, str]:
    """Return the redacted text, and the text of a redacted JSON object."""
    return redactor.value(text)[0], json.loads(redactor(orjson.dumps({"content": text}))[0])["content"]


def _is_left(secret: str, texts: tuple[str, ...]) -> bool:
    # The lines of a private key count, not its frame.
    parts = [part for part in secret.split("\n") if len(part) >= SHORTEST_PART and "-----" not in part] or [secret]
    return any(part in text or json.dumps(part)[1:-1] in text for part in parts for text in texts)


def _lines() -> Iterator[str]:
    """Yield lines of the installed packages, always the same of one environment."""
    site_packages = Path(orjson.__file__).parents[1]
    suffixes = {".py", ".pyi", ".json", ".md", ".txt", ".js", ".yaml"}
    files = sorted(path for path in site_packages.rglob("*") if path.suffix in suffixes and path.is_file())
    choice, left = random.Random(7), LINES
    while left > 0:
        lines = [line for line in choice.choice(files).read_text("utf-8", "replace").split("\n") if line.strip()]
        chosen = choice.sample(lines, min(len(lines), LINES_OF_A_FILE, left))
        left -= len(chosen)
        yield from chosen


def _units() -> Iterator[str]:
    """Yield a text that each pattern matches, and the same without its end; names before each sign."""
    for module in (known_forms, secret_keys, secret_text):
        for value in vars(module).values():
            for pattern in _patterns(value):
                sample = "".join(_sample(list(parser.parse(pattern.pattern))))
                yield from (sample, sample[:-1] or sample, f"{sample} ", f'"{sample}')
    yield from (prefix for _, prefixes, _ in vars(known_forms)["_FORMS"] for prefix in prefixes.split())
    for name in ("token", "password", "api_key", "value", "cookie", "Authorization"):
        for sign in (":", "=", '":', '":["', '":{"', '": "', "='", ":\\n ", " is ", '("', "`:", ' = \\"'):
            yield f"{name}{sign}"
            yield f'"{name}{sign}'


def _patterns(value: Any) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _patterns(item)


def _sample(items: list[Any]) -> Iterator[str]:
    for operation, argument in items:
        name = str(operation)
        if name == "LITERAL":
            yield chr(argument)
        elif name == "IN":
            yield next((chr(code) for code in range(126, 31, -1) if re.match(_class(argument), chr(code))), "")
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, content = argument
            yield "".join(_sample(list(content))) * max(least, min(int(most), 1))
        elif name == "SUBPATTERN":
            yield from _sample(list(argument[-1]))
        elif name == "BRANCH":
            yield from _sample(list(argument[1][0]))


def _class(items: list[Any]) -> str:
    signs = {"RANGE": lambda pair: f"{re.escape(chr(pair[0]))}-{re.escape(chr(pair[1]))}"}
    kinds = {"DIGIT": r"\d", "WORD": r"\w", "SPACE": r"\s"}
    parts = []
    for operation, argument in items:
        name = str(operation)
        if name == "NEGATE":
            parts.append("^")
        elif name == "LITERAL":
            parts.append(re.escape(chr(argument)))
        elif name == "CATEGORY":
            kind = kinds[str(argument).rpartition("_")[2]]
            parts.append(kind.upper() if "NOT" in str(argument) else kind)
        else:
            parts.append(signs[name](argument))
    return f"[{''.join(parts)}]"


def _growth_of(redactor: Redactor, unit: str) -> float:
    short, long = (orjson.dumps({"x": (unit * (size // len(unit) + 1))[:size]}) for size in (SIZE, 2 * SIZE))
    return _seconds(lambda: redactor(long)) / _seconds(lambda: redactor(short))


def _seconds(work: Callable[[], object]) -> float:
    """Return the least CPU time of some turns."""
    best = float("inf")
    for _ in range(TURNS):
        start = time.process_time_ns()
        work()
        best = min(best, (time.process_time_ns() - start) / 1e9)
    return best
