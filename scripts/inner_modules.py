"""Count the inner modules that tests import, and hold the recorded number: it may only fall.

    python scripts/inner_modules.py           # exit code 1 where the number rose, or fell without a new record
    python scripts/inner_modules.py --list    # the modules, and how many files import each

An inner module is a module of otel_rollout or of an exporter that is neither public nor the door of its room.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent

# A lower number is recorded here by the change that lowers it.
RECORDED: Final = 51

# The modules that users import: the front, and what docs/how-to/write-an-exporter.md names.
PUBLIC: Final = frozenset(
    {
        "otel_rollout",
        "otel_rollout.errors",
        "otel_rollout.export.exporter",
        "otel_rollout.export.http",
        "otel_rollout.export.outcome",
        "otel_rollout.export.follow_up_requests",
        "otel_rollout.hooks.carrier",
        "otel_rollout.semconv",
        "otel_rollout.testing",
    }
)

# One module of a room that the rest of the source imports too. A package that exports names is a door by itself.
DOORS: Final = frozenset(
    {
        "otel_rollout.backends",
        "otel_rollout.cli.main",
        "otel_rollout.counts",
        "otel_rollout.folder.folder_writer",
        "otel_rollout.installing",
        "otel_rollout.record.runtime",
        "otel_rollout.settings",
    }
)


def main() -> int:
    """Compare the number with the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the modules")
    options = parser.parse_args()
    imported = inner_modules(ROOT)
    if options.list:
        for module, files in sorted(imported.items()):
            print(files, module)
        return 0
    if complaint := compare(len(imported), RECORDED):
        print(complaint)
        return 1
    return 0


def compare(number: int, recorded: int) -> str:
    """Return the advice if the number isn't the recorded one, else an empty text."""
    if number > recorded:
        return (
            f"tests import {number} inner modules, {recorded} before: "
            f"import a room's door instead (scripts/inner_modules.py --list)"
        )
    if number < recorded:
        return f"tests import {number} inner modules, {recorded} before: lower RECORDED in scripts/inner_modules.py"
    return ""


def inner_modules(root: Path) -> Counter[str]:
    """Return the number of test files that import each inner module."""
    counts: Counter[str] = Counter()
    for path in sorted((root / "tests").rglob("*.py")):
        counts.update({module for module in _imported(path, root) if not is_door(module, root)})
    return counts


def is_door(module: str, root: Path) -> bool:
    """Return True for a public module, a listed door, or a package that exports names."""
    package = _file(module, root)
    text = package.read_text(encoding="utf-8") if package is not None and package.name == "__init__.py" else ""
    return module in PUBLIC or module in DOORS or "__all__" in text or "lazy_names(" in text


def _imported(path: Path, root: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if _file(alias.name, root))
        elif isinstance(node, ast.ImportFrom) and node.module and _file(node.module, root):
            for alias in node.names:
                submodule = f"{node.module}.{alias.name}"
                yield submodule if _file(submodule, root) else node.module


def _file(module: str, root: Path) -> Path | None:
    """Return the file of one of our modules."""
    if not module.startswith("otel_rollout"):
        return None
    place = root.joinpath("" if module.split(".", 1)[0] == "otel_rollout" else "exporters", *module.split("."))
    return next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)


if __name__ == "__main__":
    sys.exit(main())
