"""Run import-linter with the contracts of pyproject.toml, in which `exporters.*` is every folder of exporters/.

    python scripts/import_contracts.py

import-linter has no pattern for packages that begin with the same word, and a list of them would be one more place that
a new backend changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
EXPORTERS: Final = "exporters.*"


def contracts(exporters: Path = ROOT / "exporters") -> dict[str, Any]:
    """Return import-linter's options, with the names of the exporters in a folder."""
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    options: dict[str, Any] = toml.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    names = sorted(file.parent.name for file in exporters.glob("otel_rollout_*/__init__.py"))
    return {
        "root_packages": _expanded(options["root_packages"], names),
        "contracts": [
            {key: _expanded(value, names) if isinstance(value, list) else value for key, value in contract.items()}
            for contract in options["contracts"]
        ],
    }


def _expanded(entries: list[str], names: list[str]) -> list[str]:
    """Return modules or layers with the exporters' names; within a layer they stay on its line."""
    expanded = []
    for entry in entries:
        expanded += names if entry == EXPORTERS else [entry.replace(EXPORTERS, " : ".join(names))]
    return expanded


def main() -> int:
    """Check the contracts; return import-linter's status."""
    options = contracts()
    lines = ["[tool.importlinter]", f"root_packages = {json.dumps(options['root_packages'])}"]
    for contract in options["contracts"]:
        lines += [
            "[[tool.importlinter.contracts]]",
            *(f"{key} = {json.dumps(value)}" for key, value in contract.items()),
        ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "contracts.toml"
        file.write_text("\n".join(lines), encoding="utf-8")
        program = Path(sysconfig.get_path("scripts")) / "lint-imports"
        return subprocess.call([str(program), str(file)], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
