"""Lists small changes of a source file that a good test suite notices."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: (r"<", "<="),
    ast.LtE: (r"<=", "<"),
    ast.Gt: (r">", ">="),
    ast.GtE: (r">=", ">"),
    ast.Eq: (r"==", "!="),
    ast.NotEq: (r"!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"\*", "+"),
    ast.FloorDiv: (r"//", "*"),
}
_SKIPPED = (ast.AnnAssign, ast.arg, ast.Import, ast.ImportFrom)
_Position = Callable[[int, int], int]


@dataclass(frozen=True)
class Mutant:
    """One change of one place of a source file."""

    area: str
    path: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change made.

        Args:
            source: The file as it is, in UTF-8.

        """
        return source[: self.start] + self.after.encode() + source[self.end :]


def choose(root: Path, areas: dict[str, list[str]], seed: int, each: int) -> list[Mutant]:
    """Choose changes at random, the same ones for the same seed and code.

    Args:
        root: The folder that the areas' patterns start from.
        areas: Patterns of source files by the name of the area.
        seed: The seed of the choice.
        each: The number of changes in each area.

    """
    chosen = []
    for area, patterns in areas.items():
        files = sorted({path for pattern in patterns for path in root.glob(pattern)})
        mutants = [mutant for path in files for mutant in _mutants(area, root, path)]
        picked = random.Random(f"{seed} {area}").sample(mutants, min(each, len(mutants)))
        chosen += sorted(picked, key=lambda mutant: (mutant.path, mutant.start))
    return chosen


def _mutants(area: str, root: Path, path: Path) -> Iterator[Mutant]:
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def at(line: int, column: int) -> int:
        return starts[line - 1] + column

    for start, end, after in _changes(ast.parse(source), source, at):
        line = source.count(b"\n", 0, start) + 1
        yield Mutant(area, str(path.relative_to(root)), line, start, end, source[start:end].decode(), after)


def _changes(tree: ast.AST, source: bytes, at: _Position) -> Iterator[tuple[int, int, str]]:
    for node in _code(tree):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            pattern, after = _COMPARISONS[type(node.ops[0])]
            yield from _operator(node.left, node.comparators[0], pattern, after, source, at)
        elif isinstance(node, ast.BoolOp):
            before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            yield from _operator(node.values[0], node.values[1], rf"\b{before}\b", after, source, at)
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            pattern, after = _ARITHMETIC[type(node.op)]
            yield from _operator(node.left, node.right, pattern, after, source, at)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield at(node.lineno, node.col_offset), at(node.operand.lineno, node.operand.col_offset), ""
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int):
            after = str(not node.value) if isinstance(node.value, bool) else str(node.value + 1)
            yield (*_ends(node, at), after)
        elif isinstance(node, (ast.Continue, ast.Break)):
            yield (*_ends(node, at), "break" if isinstance(node, ast.Continue) else "continue")
        elif isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)):
            yield (*_ends(node, at), "pass")
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield (*_ends(node.value, at), "None")


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Walk what runs: no annotations, no imports, no branch for type checkers."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, _SKIPPED) or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
            continue
        yield child
        yield from _code(child)


def _ends(node: ast.stmt | ast.expr, at: _Position) -> tuple[int, int]:
    if node.end_lineno is None or node.end_col_offset is None:
        message = "a parsed node has an end"
        raise ValueError(message)
    return at(node.lineno, node.col_offset), at(node.end_lineno, node.end_col_offset)


def _operator(
    left: ast.expr, right: ast.expr, pattern: str, after: str, source: bytes, at: _Position
) -> Iterator[tuple[int, int, str]]:
    between = _ends(left, at)[1], _ends(right, at)[0]
    if found := re.search(pattern.encode(), source[slice(*between)]):
        yield between[0] + found.start(), between[0] + found.end(), after
