"""The count of inner modules that tests import, which `make check` holds."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parent.parent

if not (TREE / "otel_rollout").is_dir():
    pytest.skip("the source tree isn't here", allow_module_level=True)

inner_modules = import_module("scripts.inner_modules")


def write(root: Path, files: dict[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class TestInnerModules:
    """inner_modules."""

    def test_counts_modules_behind_doors_alone(self, tmp_path: Path) -> None:
        """Public modules, packages that export names and other libraries are none; each file counts once."""
        write(
            tmp_path,
            {
                "otel_rollout/__init__.py": "",
                "otel_rollout/errors.py": "",
                "otel_rollout/room/__init__.py": "__all__ = ['name']",
                "otel_rollout/room/part.py": "",
                "otel_rollout/closed/__init__.py": "",
                "otel_rollout/closed/part.py": "",
                "exporters/otel_rollout_file/__init__.py": "__all__ = []",
                "exporters/otel_rollout_file/exporter.py": "",
                "tests/test_a.py": "import json, otel_rollout.errors\nfrom otel_rollout.room import name, part",
                "tests/room/test_b.py": "if True:\n from otel_rollout.closed import part",
                "tests/room/helper.py": "import otel_rollout.room.part\nfrom otel_rollout_file.exporter import y",
            },
        )
        assert inner_modules.inner_modules(tmp_path) == {
            "otel_rollout.room.part": 2,
            "otel_rollout.closed.part": 1,
            "otel_rollout_file.exporter": 1,
        }

    def test_named_modules_exist(self) -> None:
        """Each public module and each door is a file of the tree."""
        named = inner_modules.PUBLIC | inner_modules.DOORS
        paths = {module: TREE.joinpath(*module.split(".")) for module in named}
        assert {m for m, path in paths.items() if not path.with_suffix(".py").is_file() and not path.is_dir()} == set()

    def test_each_name_of_a_door_is_there(self) -> None:
        """What a package exports can be imported from it."""
        doors = [path.parent for path in (TREE / "otel_rollout").rglob("__init__.py") if "lazy" in path.read_text()]
        assert doors
        for folder in doors:
            door = import_module(".".join(folder.relative_to(TREE).parts))
            assert [name for name in door.__all__ if not hasattr(door, name)] == []
            with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
                door.nothing  # noqa: B018

    def test_each_door_has_users_in_the_source(self) -> None:
        """A module that only tests import is no door."""
        source = "\n".join(
            path.read_text(encoding="utf-8")
            for folder in ("otel_rollout", "exporters")
            for path in (TREE / folder).rglob("*.py")
        )
        assert {module for module in inner_modules.DOORS if module not in source} == set()


class TestCompare:
    """compare."""

    @pytest.mark.parametrize(
        ("number", "complaint"), [(10, ""), (11, "import a room's door instead"), (9, "lower RECORDED")]
    )
    def test_lets_the_number_only_fall(self, number: int, complaint: str) -> None:
        """A higher number is refused, and a lower one is to be recorded."""
        answer = inner_modules.compare(number, 10)
        assert complaint in answer
        assert bool(answer) == bool(complaint)
