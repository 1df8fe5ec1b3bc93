"""docs/explanation/architecture.md names the rooms that there are, and the linter's layers."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

from tests.installed import CORE, EXPORTERS

TREE = Path(__file__).resolve().parent.parent
PAGE = TREE / "docs" / "explanation" / "architecture.md"

toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
CONTRACTS = toml.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]


def rooms() -> set[str]:
    """Return the folders of the core."""
    return {folder.name for folder in CORE.iterdir() if (folder / "__init__.py").is_file()}


def layers() -> set[str]:
    """Return the modules that the contract of the layers names."""
    return {name.strip() for line in CONTRACTS[0]["layers"] for name in line.split(":")}


class TestPage:
    """docs/explanation/architecture.md."""

    def test_names_every_room(self) -> None:
        """Each folder of the core stands in the table of rooms, and no other does."""
        named = re.findall(r"^\| `otel_rollout/(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(named) == rooms()

    def test_names_files_that_exist(self) -> None:
        """Each file that the page names is there."""
        named = set(re.findall(r"`([\w/.]+\.py)`", PAGE.read_text(encoding="utf-8")))
        roots = (TREE, CORE, CORE.parent, EXPORTERS[0].parent)
        missing = {
            name for name in named if not any((root / name.removeprefix("exporters/")).is_file() for root in roots)
        }
        assert named
        assert missing == set()


class TestLayers:
    """The contract of the layers."""

    def test_has_every_module(self) -> None:
        """Each folder and file of the core, and each exporter, has its layer: what has none could import anything."""
        files = {file.stem for file in CORE.glob("*.py")} - {"__init__"}
        exporters = {folder.name for folder in EXPORTERS}
        assert layers() == {f"otel_rollout.{name}" for name in rooms() | files} | exporters
