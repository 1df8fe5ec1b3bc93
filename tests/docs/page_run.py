"""Run the code blocks of a page as a reader does: in their order, in one folder, in one shell."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.docs.code_blocks import CodeBlock

SECONDS = 300
READERS_FOLDER = "/home/me"
"""The folder in which the pages run."""
_MARK = "\x1e"


@dataclass
class Step:
    """Commands as they are pasted, the output that the page shows (none if empty), and the last one's exit code."""

    text: str
    line: int
    output: list[str] = field(default_factory=list)
    exit_code: int = 0


@dataclass(frozen=True)
class Result:
    """The exit code of a step, those of its commands that failed, and what it printed."""

    exit_code: int
    failures: list[int]
    output: str


def steps(blocks: list[CodeBlock]) -> list[Step]:
    """Return the steps of the blocks that a page's test runs; a Python block is saved, and run unless it has a name."""
    found: list[Step] = []
    printing: Step | None = None
    for block in blocks:
        last, printing = printing, None
        if not block.is_run_here:
            continue
        name = block.comments.get("file")
        if name or block.language == "python":
            saved = name or f"line_{block.line}.py"
            found.append(Step(f"cat > {saved} <<'END OF BLOCK'\n{block.text}END OF BLOCK\n", block.line))
            if not name:
                printing = Step(f"python {saved}\n", block.line)
                found.append(printing)
        elif block.language == "sh":
            printing = Step(block.text, block.line, exit_code=int(block.comments.get("exits with", 0)))
            found.append(printing)
        elif block.language == "text" and last and block.follows:
            last.output = block.text.splitlines()
    return found


def run(todo: list[Step], folder: Path, variables: Mapping[str, str]) -> list[Result]:
    """Run the steps in one shell, and return the result of each."""
    bin_folder = Path(sys.executable).parent
    script = "failures=\ntrap 'failures=\"$failures $?\"' ERR\n" + "".join(
        f"{step.text}printf '{_MARK}%s{_MARK}\\n' \"$?$failures\"; failures=\n" for step in todo
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={
            "PATH": f"{bin_folder}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            # As on a terminal.
            "COLUMNS": "100",
            "FORCE_COLOR": "1",
            "TERM": "xterm-256color",
            **variables,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    printed = done.stdout.replace(str(folder), READERS_FOLDER)
    parts = re.split(rf"{_MARK}([\d ]+){_MARK}\n", printed)
    results = []
    for output, codes in zip(parts[0:-1:2], parts[1::2], strict=True):
        last, *failures = map(int, codes.split())
        results.append(Result(last, failures, output))
    return results
