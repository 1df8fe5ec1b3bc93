"""docs/explanation/architecture.md names the rooms that there are, and the linter's layers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from scripts.import_contracts import contracts
from tests.fresh_interpreter import run_program
from tests.installed import CORE, EXPORTERS

TREE = Path(__file__).resolve().parent.parent
PAGE = TREE / "docs" / "explanation" / "architecture.md"


def rooms() -> set[str]:
    """Return the folders of the core."""
    return {folder.name for folder in CORE.iterdir() if (folder / "__init__.py").is_file()}


def layers() -> set[str]:
    """Return the modules that the contract of the layers names."""
    return {
        name.strip() for line in contracts(EXPORTERS[0].parent)["contracts"][0]["layers"] for name in line.split(":")
    }


PROGRAM = """
    import sys

    import otel_rollout

    otel_rollout.init("project", "experiment", backend="file")
    with otel_rollout.rollout_trace_attr(step=1, sample_index=1, rollout_n=0):
        otel_rollout.rollout_trace_op(str.upper)("text")
        otel_rollout.annotate(reward=1.0)
    assert otel_rollout.shutdown(60)
    print(*sorted(name for name in sys.modules if name.startswith("otel_rollout")))
"""


@pytest.fixture(scope="module")
def modules(tmp_path_factory) -> list[str]:
    """The modules, after a trajectory and a shutdown."""
    # `init` looks for a misspelt variable if one begins as a backend's or nearly so, as `make`'s MFLAGS does.
    kept = ("PATH", "HOME", "LANG", "TMPDIR")
    others = {name: "" for name in os.environ if name.isupper() and name not in kept}
    program = run_program(PROGRAM, **{**others, "OTEL_ROLLOUT_DIR": str(tmp_path_factory.mktemp("traces"))})
    assert program.returncode == 0, program.stderr
    return program.stdout.split()


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


class TestLoaded:
    """The modules of ours that a traced process loads with `backend="file"`."""

    def test_nothing_that_people_look_with(self, modules) -> None:
        """No reader of folders, no pages, no tables."""
        readers = {"otel_rollout.folder.reader", "otel_rollout.folder.index_reading", "otel_rollout.facts.summaries"}
        assert readers.isdisjoint(modules)
        assert {name.split(".")[1] for name in modules if "." in name}.isdisjoint({"catalog", "cli", "look", "replay"})
