"""The code blocks of a page, and the comments before them that say how they are tested.

A comment stands on the line before its block, where Markdown shows nothing of it:

    <!-- file: train.py -->     the block is saved under this name, for the blocks after it
    <!-- exits with 1 -->       the last command of the block fails with this code
    <!-- not run: REASON -->    the block is only parsed
    <!-- tested in: PATH -->    another test runs it
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_COMMENT = re.compile(r"<!-- (file|exits with|not run|tested in):? ([^\n]+?) -->\s*\Z")


@dataclass(frozen=True)
class CodeBlock:
    """One fenced block: its language, its text, its line in the page, and the comments before it by their names."""

    language: str
    text: str
    line: int
    comments: dict[str, str] = field(default_factory=dict)

    @property
    def is_run_here(self) -> bool:
        """Whether the page's own test runs it."""
        return not self.comments.keys() & {"not run", "tested in"}


@dataclass
class Command:
    """A command of a console block and the output that the page shows; none is shown if `output` is empty."""

    text: str
    line: int
    output: list[str] = field(default_factory=list)
    exit_code: int = 0


def code_blocks(page: Path) -> list[CodeBlock]:
    """Return a page's blocks in their order."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in _FENCE.finditer(text):
        comments = {}
        before = text[: match.start()]
        while comment := _COMMENT.search(before):
            comments[comment[1]] = comment[2]
            before = before[: comment.start()]
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(CodeBlock(match["language"], textwrap.dedent(match["text"]), line, comments))
    return blocks


def commands(block: CodeBlock) -> list[Command]:
    """Return the commands of a console block; a backslash at a line's end, or `> ` before a line, continues one."""
    found: list[Command] = []
    continues = False
    for number, line in enumerate(block.text.splitlines(), block.line + 1):
        if line.startswith("$ "):
            found.append(Command(line[2:], number))
        elif found and continues:
            found[-1].text += f"\n{line}"
        elif found and not found[-1].output and line.startswith("> "):
            found[-1].text += f"\n{line[2:]}"
        elif found:
            found[-1].output.append(line)
        else:
            raise ValueError(f"line {number}: a console block begins with a command")
        continues = line.endswith("\\")
    if found:
        found[-1].exit_code = int(block.comments.get("exits with", 0))
    return found
