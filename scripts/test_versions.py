"""Run the tests that need no server under every Python that we support, and with the lowest versions allowed.

    python scripts/test_versions.py                         # all of them
    python scripts/test_versions.py --only 3.10 3.14        # these Pythons
    python scripts/test_versions.py --lowest                # the oldest Python, with the lowest dependencies
    python scripts/test_versions.py --only 3.14 -- -m pytest tests/delivery

The arguments after `--` are started in the place of all tests. A virtual environment for each is made in the cache
folder of environments.py, and reused until pyproject.toml or the interpreter changes.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

try:
    from debian import NotHereError
    from environments import cache_folder, find_links
    from interpreters import Interpreter, find
except ImportError:  # imported as a part of the repository, not started as a program
    from scripts.debian import NotHereError
    from scripts.environments import cache_folder, find_links
    from scripts.interpreters import Interpreter, find

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
LOWEST = "lowest"
TESTS = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "not integration"]
COUNTS = ("passed", "failed", "error", "skipped")


@dataclasses.dataclass
class Row:
    """The outcome of one version.

    Args:
        name: The version, with the dependencies it ran with if these are not the newest.
        python: The whole version; empty if there is none.
        result: `ok`, `failed`, or why it did not run.
        counts: Tests by their outcome, as pytest summed them up.
        seconds: The time of the run, without the installation.
    """

    name: str
    python: str
    result: str
    counts: dict[str, int]
    seconds: float


def run(name: str, version: str, arguments: list[str], *, is_lowest: bool) -> Row:
    """Run Python with these arguments under one version, in a virtual environment of it.

    Args:
        name: The run's name.
        version: The Python, such as `3.12`.
        arguments: The interpreter's arguments.
        is_lowest: True for the lowest dependencies that pyproject.toml allows.
    """
    try:
        interpreter = find(version)
    except NotHereError as error:
        return Row(name, "", f"not run: {error}", {}, 0)
    python = interpreter.version.split()[0]
    try:
        with installed(interpreter, version, is_lowest=is_lowest) as folder:
            print(f"\n== Python {python}{', lowest dependencies' if is_lowest else ''}", flush=True)
            began = time.monotonic()
            code, last = started(interpreter, [str(folder / "bin" / "python"), *arguments])
    except subprocess.CalledProcessError as error:
        return Row(name, python, f"failed: its environment can't be made: {error}", {}, 0)
    counts = {word: int(number) for number, word in re.findall(rf"(\d+) ({'|'.join(COUNTS)})s?\b", last)}
    result = "ok" if code == 0 else f"failed: exit {code}"
    return Row(name, python, result, counts, time.monotonic() - began)


@contextlib.contextmanager
def installed(interpreter: Interpreter, version: str, *, is_lowest: bool) -> Iterator[Path]:
    """Hold a virtual environment that has this checkout and its development tools.

    Another run with the same environment, from another checkout too, waits for this one to end.

    Yields:
        Its folder.

    Raises:
        subprocess.CalledProcessError: The installer failed; its output has the reason.
    """
    key = (ROOT / "pyproject.toml").read_bytes() + interpreter.version.encode()
    digest = hashlib.sha256(key).hexdigest()[:12]
    folder = cache_folder() / f"python{version}{'-lowest' if is_lowest else ''}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        uv = [str(folder / "bin" / "uv"), "pip", "install", "--quiet", "--python", str(folder / "bin" / "python")]
        done = folder / ".complete"
        if not done.exists():
            print(f"making {folder} …", file=sys.stderr, flush=True)
            shutil.rmtree(folder, ignore_errors=True)
            resolution = ["--resolution", "lowest-direct"] if is_lowest else []
            for command in (
                [str(interpreter.path), "-m", "venv", str(folder)],
                [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"],
                [*uv, *find_links(), "--compile-bytecode", *resolution, "-e", f"{ROOT}[dev]"],
            ):
                subprocess.run(interpreter.command(command, ROOT), check=True)
            done.touch()
        # The checkout that made the environment may be another one.
        subprocess.run(interpreter.command([*uv, "--no-deps", "-e", str(ROOT)], ROOT), check=True)
        yield folder


def started(interpreter: Interpreter, command: list[str]) -> tuple[int, str]:
    """Run a command, show what it prints, and return its exit code and the last line that it printed."""
    # A process that may leave no bytecode makes each that it starts compile everything anew.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONUNBUFFERED": "1"}
    last = ""
    with subprocess.Popen(
        interpreter.command(command, ROOT),
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line if line.strip() else last
    return process.returncode, last


def table(rows: list[Row]) -> str:
    """Return the outcomes of all versions, one in a line."""
    lines = [("version", "python", *COUNTS, "seconds", "result")]
    for row in rows:
        counts = [str(row.counts.get(word, "")) for word in COUNTS]
        lines.append((row.name, row.python or "-", *counts, f"{row.seconds:.0f}", row.result))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def main() -> int:
    """Run what the command line names; exit with 1 if something failed or nothing ran."""
    arguments = sys.argv[1:]
    given: list[str] = []
    if "--" in arguments:
        position = arguments.index("--")
        arguments, given = arguments[:position], arguments[position + 1 :]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=VERSIONS, metavar="VERSION", help=f"of: {', '.join(VERSIONS)}")
    parser.add_argument("--lowest", action="store_true", help="with the lowest versions of the dependencies")
    chosen = parser.parse_args(arguments)
    runs = [(version, version, False) for version in chosen.only or (() if chosen.lowest else VERSIONS)]
    if chosen.lowest or not chosen.only:
        runs.append((f"{VERSIONS[0]} {LOWEST}", VERSIONS[0], True))
    rows = [run(name, version, given or TESTS, is_lowest=is_lowest) for name, version, is_lowest in runs]
    print(f"\n{table(rows)}")
    return 1 if any(row.result.startswith("failed") for row in rows) or all(not row.seconds for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
