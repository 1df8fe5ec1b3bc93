"""Makes mutants from a seed and reports which ones the tests kill.

Each mutant is run in a copy of the tree, against the test files that concern its module, up to the first failure.
The list is made anew from the seed as the code changes. `list.tsv` is the one of the commit that its first line names,
and `outcomes.tsv` what became of each: killed by a test, or equivalent, for the reason that is given.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import cache
from pathlib import Path

from tests.mutants.mutator import Mutant, choose

_ROOT = Path(__file__).resolve().parents[2]
_LIST = Path(__file__).with_name("list.tsv")
_AREAS = {
    "capture": ["otel_rollout/record/*.py"],
    "folder": ["otel_rollout/folder/*.py", "otel_rollout/otlp/*.py", "exporters/otel_rollout_file/*.py"],
    "redaction": ["otel_rollout/finish/redaction.py", "otel_rollout/finish/secret_*.py"],
}
# The tests of what an area is for; those of the module itself come before them.
_TESTS = {
    "capture": [
        "tests/test_op.py",
        "tests/test_op_errors.py",
        "tests/test_op_generators.py",
        "tests/test_op_identity.py",
        "tests/test_snapshot*.py",
        "tests/test_trajectory.py",
        "tests/test_span.py",
        "tests/test_payload_limits.py",
    ],
    "folder": [
        "tests/exporters/file/test_*.py",
        "tests/trace_folder/test_otlp_json.py",
        "tests/trace_folder/test_folder_writer.py",
        "tests/trace_folder/test_reader.py",
        "tests/trace_folder/test_collector_file.py",
        "tests/receive/test_requests.py",
        "tests/receive/test_hostile.py",
        "tests/trace_folder/test_retention.py",
        "tests/trace_folder/test_reader_damage.py",
        "tests/trace_folder/test_summaries.py",
    ],
    "redaction": ["tests/test_redaction*.py"],
}
_MOST_TEST_FILES = 12


def main() -> int:
    """Run the mutants, and return 0: a survivor is a hint, no failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=29, help="seed of the choice (default: %(default)s)")
    parser.add_argument("--each", type=int, default=20, help="mutants in each area (default: %(default)s)")
    parser.add_argument("--area", choices=sorted(_AREAS), help="only this area")
    parser.add_argument("--limit", type=float, default=180, help="seconds for one mutant (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help=f"only write the list to {_LIST.name}")
    options = parser.parse_args()
    areas = {area: files for area, files in _AREAS.items() if options.area in (None, area)}
    mutants = choose(_ROOT, areas, options.seed, options.each)
    if options.list:
        head = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=_ROOT, capture_output=True, text=True, check=True
        )
        rows = [f"# the code of commit {head.stdout.strip()}"]
        rows += ["\t".join(("area", "file", "line", "before", "after", "tests"))]
        rows += ["\t".join((*_columns(mutant), " ".join(_concerned(mutant)))) for mutant in mutants]
        _LIST.write_text("\n".join(rows) + "\n")
        return 0
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="otel-rollout-mutants-") as folder:
        copy = Path(folder) / "tree"
        ignored = shutil.ignore_patterns(".*", "node_modules", "build", "dist", "__pycache__")
        shutil.copytree(_ROOT, copy, ignore=ignored)
        for mutant in mutants:
            started = time.monotonic()
            outcome, by = _outcome(copy, mutant, options.limit)
            counts[mutant.area, outcome] += 1
            print(outcome, f"{time.monotonic() - started:.0f}s", *_columns(mutant), by, sep="\t", flush=True)
    for area in areas:
        print(f"{area}, seed {options.seed}:", *(f"{n} {what}" for (of, what), n in counts.items() if of == area))
    return 0


def _columns(mutant: Mutant) -> tuple[str, ...]:
    before, after = (" ".join(text.split()) for text in (mutant.before, mutant.after))
    return mutant.area, mutant.path, str(mutant.line), before, after or "(nothing)"


def _outcome(copy: Path, mutant: Mutant, limit: float) -> tuple[str, str]:
    """Run the tests on the changed copy, undo the change, and name the test that failed."""
    changed = copy / mutant.path
    source = changed.read_bytes()
    changed.write_bytes(mutant.apply(source))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not integration and not slow",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(copy), str(copy / "exporters")))}
    try:
        run = subprocess.run(
            [*command, *_concerned(mutant)],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout", ""
    finally:
        changed.write_bytes(source)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    return ("survived", "") if run.returncode == 0 else ("killed", failed[1] if failed else run.stdout[-200:].strip())


def _concerned(mutant: Mutant) -> list[str]:
    """Choose the test files of a mutant: named after its module, importing it, of its area, importing its room."""
    module = mutant.path.removeprefix("exporters/").removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    room, _, stem = module.rpartition(".")
    every = sorted(_ROOT.glob("tests/**/test_*.py"), key=lambda path: (path.stat().st_size, path))
    chosen = [path for path in every if re.search(rf"_{stem}(_|$)", path.stem)]
    chosen += [path for path in every if _imports(path, room, stem)]
    chosen += [path for pattern in _TESTS[mutant.area] for path in sorted(_ROOT.glob(pattern))]
    chosen += [path for path in every if _imports(path, room)]
    return [str(path.relative_to(_ROOT)) for path in dict.fromkeys(chosen)][:_MOST_TEST_FILES]


def _imports(path: Path, room: str, module: str | None = None) -> bool:
    """Tell whether a file imports a package, or a module of it."""
    return (f"{room}.{module}" if module else room) in _imported(path)


@cache
def _imported(path: Path) -> frozenset[str]:
    imports = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.ImportFrom)]
    return frozenset(
        name
        for node in imports
        if node.module
        for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
    )


if __name__ == "__main__":
    sys.exit(main())
