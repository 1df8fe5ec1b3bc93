"""Write the tables of docs/ (settings, attributes, facts, layers) and the types of the pages from the code.

    python scripts/write_tables.py           # rewrite the tables in place
    python scripts/write_tables.py --check   # exit with 1 where a table differs from the code

Text outside of a pair of `<!-- table: NAME -->` and `<!-- end -->` marks, in types.d.ts `// table: NAME` and `// end`,
is left alone.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import otel_rollout
from otel_rollout.backends import factory_of
from otel_rollout.catalog import SQL_COLUMNS, GroupSummary, Spread, StepSummary
from otel_rollout.catalog.unknown_names import FIRST_NAMES
from otel_rollout.export.exporter import settings_of
from otel_rollout.facts import (
    FACTS,
    INFERRED,
    OF_FILES,
    SUMS,
    Conversation,
    Percentiles,
    SpanError,
    ToolCounts,
    TrajectorySummary,
)
from otel_rollout.look.findings import CHECKS
from otel_rollout.semconv import ATTRIBUTES
from otel_rollout.settings import SETTINGS, STANDARD_VARIABLES, Setting

TREE = Path(__file__).resolve().parent.parent
DOCS = TREE / "docs"
TYPES = Path(otel_rollout.__file__).parent / "look" / "view" / "static" / "data" / "types.d.ts"
_MARKED = re.compile(r"((?:<!--|//) table: (\w+)(?: -->)?\n).*?((?:<!--|//) end(?: -->)?\n)", re.DOTALL)
_JSON = {int: "integer", float: "number", str: "string", bool: "boolean", NoneType: "null"}
_SCRIPT = {int: "number", float: "number", str: "string", bool: "boolean", NoneType: "null"}


def settings_table(rows: Iterable[Setting], taker: str) -> str:
    """Return the table of some settings.

    Args:
        rows: The settings.
        taker: The function or class that takes them as arguments.
    """
    lines = (
        (
            f"`{row.name}`" if row.name else "",
            ", else ".join(f"`{name}`" for name in row.variables),
            _default(row.default),
            row.meaning,
        )
        for row in rows
    )
    return _table((f"argument of `{taker}`", "environment variable", "default", "what it does"), lines)


def exporter_table(name: str) -> str:
    """Return the table of an exporter's settings."""
    factory = factory_of(name)
    return settings_table(settings_of(factory), factory.__name__)


def standard_table() -> str:
    """Return the table of OpenTelemetry's variables that no exporter reads."""
    return _table(("variable", "what it does here"), ((f"`{name}`", text) for name, text in STANDARD_VARIABLES.items()))


def attributes_table() -> str:
    """Return the table of attributes."""
    rows = ((f"`{row.key}`", row.where, row.type, row.meaning, row.readers) for row in ATTRIBUTES)
    return _table(("attribute", "where", "type", "content", "who reads it"), rows)


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


def facts_table() -> str:
    """Return the table of facts that an index's line has."""
    sums: dict[str, list[str]] = {}
    for name, fact, how in SUMS:
        sums.setdefault(fact, []).append(how if name == fact else f"{how} (`{name}`)")
    hints = get_type_hints(TrajectorySummary, include_extras=True)
    rows = (
        (f"`{each.name}`", _json_type(hints[each.name]), each.unit, each.meaning, ", ".join(sums.get(each.name, ())))
        for each in FACTS
        if each.name not in OF_FILES
    )
    return _table(("name", "type", "unit", "meaning", "in a step"), rows)


def catalog_table(name: str) -> str:
    """Return the table of the columns of a table of the catalog."""
    rows = ((f"`{each.name}`", each.type_words, each.unit, each.meaning) for each in SQL_COLUMNS[name])
    return _table(("column", "type", "unit", "meaning"), rows)


def first_names_table() -> str:
    """Return the table of the names that people try first."""
    rows = ((f"`{name}`", ", else ".join(f"`{place}`" for place in places)) for name, places in FIRST_NAMES.items())
    return _table(("name", "read as"), rows)


def summaries_types() -> str:
    """Return the TypeScript interfaces of summaries."""
    facts = {each.name: each for each in FACTS}
    hints = get_type_hints(TrajectorySummary, include_extras=True)
    interfaces = [
        _interface(kind.__name__, get_type_hints(kind, include_extras=True))
        for kind in (Spread, Percentiles, ToolCounts, GroupSummary, SpanError)
    ]
    steps = get_type_hints(StepSummary, include_extras=True)
    interfaces.append(_interface("StepSummary", {name: hint for name, hint in steps.items() if name not in INFERRED}))
    interfaces.append(_interface(Conversation.__name__, get_type_hints(Conversation)))
    interfaces.append(_interface("TrajectorySummary", {name: hints[name] for name in facts}))
    rows = {name: hints[name] for name, fact in facts.items() if fact.shown == "row"}
    interfaces.append(_interface("RolloutFacts", rows))
    return "\n".join(interfaces)


def layers_table() -> str:
    """Return the layers of the code, the topmost first."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    contracts = toml.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = "\n".join(contracts["contracts"][0]["layers"]).replace("otel_rollout.", "")
    return f"```text\n{layers}\n```\n"


TABLES = {
    "settings": partial(settings_table, SETTINGS, "init"),
    **{name: partial(exporter_table, name) for name in ("file", "mlflow", "otlp", "phoenix", "trackio", "weave")},
    "standard": standard_table,
    "attributes": attributes_table,
    "checks": checks_table,
    "facts": facts_table,
    **{f"table_{name}": partial(catalog_table, name) for name in SQL_COLUMNS},
    "first_names": first_names_table,
    "layers": layers_table,
    "summaries": summaries_types,
}


def rewritten(text: str) -> str:
    """Return a page with each of its marked tables as the code has it now."""
    return _MARKED.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}{match[3]}", text)


def _json_type(hint: Any) -> str:
    """Return a type hint in the words of JSON."""
    kinds = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
    plain = [get_args(kind)[0] if get_origin(kind) is Annotated else kind for kind in kinds]
    return " or ".join(_JSON.get(kind, "object" if get_origin(kind) is Mapping else "array") for kind in plain)


def _script_type(hint: Any) -> str:
    """Return a type hint in TypeScript."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return " | ".join(map(_script_type, arguments))
    if origin is Annotated:
        return _script_type(arguments[0])
    if origin is Literal:
        return " | ".join(f'"{each}"' for each in arguments)
    if origin is Mapping:
        return f"Record<string, {_script_type(arguments[1])}>"
    if origin in (tuple, Sequence):
        item = _script_type(arguments[0])
        return f"({item})[]" if "|" in item else f"{item}[]"
    return _SCRIPT.get(hint) or str(hint.__name__)


def _interface(name: str, hints: Mapping[str, Any]) -> str:
    members = "".join(f"  {key}: {_script_type(hint)};\n" for key, hint in hints.items())
    return f"export interface {name} {{\n{members}}}\n"


def _default(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int) and value >= 2**20:
        return f"`{value >> 30}GiB`" if value % 2**30 == 0 else f"`{value >> 20}MiB`"
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
    for page in [*sorted(DOCS.rglob("*.md")), TYPES]:
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
