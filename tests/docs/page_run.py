"""Run the code blocks of a page as a reader does: in their order, in one folder, in one shell."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.docs.code_blocks import CodeBlock, Command, commands

SECONDS = 300
READERS_FOLDER = "/home/me"
"""The folder in which the pages run."""
_MARK = "\x1e"


def steps(blocks: list[CodeBlock]) -> list[Command]:
    """Return the commands of the blocks that a page's test runs; a Python block is saved, and run unless it has a name.

    A `text` block right after a Python block is the program's output.
    """
    found: list[Command] = []
    program: Command | None = None
    for block in blocks:
        last, program = program, None
        if not block.is_run_here:
            continue
        name = block.comments.get("file")
        if name or block.language == "python":
            saved = name or f"line_{block.line}.py"
            found.append(Command(f"cat > {saved} <<'END OF BLOCK'\n{block.text}END OF BLOCK", block.line))
            if not name:
                program = Command(f"python {saved}", block.line)
                found.append(program)
        elif block.language == "console":
            found += commands(block)
        elif block.language == "text" and last:
            last.output = block.text.splitlines()
    return found


def run(todo: list[Command], folder: Path, variables: Mapping[str, str]) -> list[tuple[int, str]]:
    """Run the commands in one shell, and return the exit code and the output of each."""
    bin_folder = Path(sys.executable).parent
    script = "".join(f"{command.text}\nprintf '{_MARK}%s{_MARK}\\n' $?\n" for command in todo)
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
    parts = re.split(rf"{_MARK}(\d+){_MARK}\n", printed)
    return [(int(code), output) for output, code in zip(parts[0:-1:2], parts[1::2], strict=True)]
