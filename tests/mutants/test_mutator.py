"""The changes that mutants make."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.mutants.mutator import choose

SOURCE = '''"""Text with ä, before what is changed."""
from __future__ import annotations

def f(a: int, b: list[int] | None = None) -> int | None:
    for x in b or ():
        if not a < x and x is not None:
            continue
        print("é", x + 1)
        return f(x, b)
    return None
'''


def changed(tmp_path: Path, seed: int = 1, each: int = 100) -> list[str]:
    """Return the source after each of the mutants of a seed."""
    (tmp_path / "module.py").write_text(SOURCE, encoding="utf-8")
    mutants = choose(tmp_path, {"area": ["*.py"]}, seed, each)
    return [mutant.apply(SOURCE.encode()).decode() for mutant in mutants]


class TestChoose:
    """choose."""

    def test_changes_each_kind_of_place_once(self, tmp_path: Path) -> None:
        """Operators, negations, numbers, jumps, calls and results change; annotations and constants of text don't."""
        lines = {
            (old.strip(), new.strip())
            for source in changed(tmp_path)
            for old, new in zip(SOURCE.splitlines(), source.splitlines(), strict=True)
            if old != new
        }
        assert {new for _, new in lines} == {
            "for x in b and ():",
            "if a < x and x is not None:",
            "if not a <= x and x is not None:",
            "if not a < x or x is not None:",
            "if not a < x and x is None:",
            "break",
            "pass",
            'print("é", x - 1)',
            'print("é", x + 2)',
            "return None",
        }

    def test_gives_python(self, tmp_path: Path) -> None:
        """Each changed source can be parsed."""
        for source in changed(tmp_path):
            ast.parse(source)

    def test_repeats_a_seed(self, tmp_path: Path) -> None:
        """The same seed chooses the same changes, another seed others."""
        assert changed(tmp_path, seed=1, each=4) == changed(tmp_path, seed=1, each=4)
        assert changed(tmp_path, seed=1, each=4) != changed(tmp_path, seed=2, each=4)
