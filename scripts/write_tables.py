"""Write the tables of docs/ (settings, attributes, layers) from the code that they describe.

    python scripts/write_tables.py           # rewrite the tables in place
    python scripts/write_tables.py --check   # exit with 1 where a table differs from the code

Text outside of a pair of `<!-- table: NAME -->` and `<!-- end -->` marks is left alone.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from otel_rollout.look.findings import CHECKS
from otel_rollout.semconv import ATTRIBUTES
from otel_rollout.settings import SETTINGS, STANDARD_VARIABLES

DOCS = Path(__file__).resolve().parent.parent / "docs"
_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def settings_table() -> str:
    """Return the table of our settings."""
    rows = (
        (f"`{row.name}`", ", else ".join(f"`{name}`" for name in row.variables), _default(row.default), row.meaning)
        for row in SETTINGS
    )
    return _table(("argument of `init`", "environment variable", "default", "what it does"), rows)


def standard_table() -> str:
    """Return the table of OpenTelemetry's variables."""
    return _table(("variable", "what it does here"), ((f"`{name}`", text) for name, text in STANDARD_VARIABLES.items()))


def attributes_table() -> str:
    """Return the table of attributes."""
    rows = ((f"`{row.key}`", row.where, row.type, row.meaning, row.readers) for row in ATTRIBUTES)
    return _table(("attribute", "where", "type", "what it says", "who reads it"), rows)


def checks_table() -> str:
    """Return the table of the checks of `diagnose`, with their thresholds."""
    rows = (
        (
            f"`{check.name}`",
            check.severity.value,
            check.threshold.text(check.threshold.default),
            check.threshold.of,
            check.threshold.reason,
            check.advice,
        )
        for check in CHECKS
    )
    return _table(("check", "severity", "default", "threshold on", "reason", "try"), rows)


def layers_table() -> str:
    """Return the layers of the code, the topmost first."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    contracts = toml.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = "\n".join(contracts["contracts"][0]["layers"]).replace("otel_rollout.", "")
    return f"```text\n{layers}\n```\n"


TABLES = {
    "settings": settings_table,
    "standard": standard_table,
    "attributes": attributes_table,
    "checks": checks_table,
    "layers": layers_table,
}


def rewritten(text: str) -> str:
    """Return a page with each of its marked tables as the code has it now."""
    return _MARKED.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}{match[3]}", text)


def _default(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 2**20:
        return f"`{value >> 20}MiB`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = list(header)
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def main() -> None:
    """Rewrite or check every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where a table differs")
    is_check = parser.parse_args().check
    differing = []
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        new = rewritten(text)
        if new != text:
            differing.append(page.name)
            if not is_check:
                page.write_text(new, encoding="utf-8")
    if differing:
        print(f"{'differs from the code' if is_check else 'rewritten'}: {', '.join(differing)}")
    sys.exit(1 if is_check and differing else 0)


if __name__ == "__main__":
    main()
