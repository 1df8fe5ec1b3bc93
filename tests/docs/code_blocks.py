"""The code blocks of a page, and the comments before them that say how they are tested.

A comment stands on the line before its block, where Markdown shows nothing of it:

    <!-- file: train.py -->     the block is saved under this name, for the blocks after it
    <!-- exits with 1 -->       the last command of the block fails with this code
    <!-- not run: REASON -->    the block is only parsed
    <!-- tested in: PATH -->    another test runs it

A `text` block right after a block of Python or of commands is what that prints.
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
    follows: bool = False
    """True if nothing stands between this block and the one before."""

    @property
    def is_run_here(self) -> bool:
        """Whether the page's own test runs it."""
        return not self.comments.keys() & {"not run", "tested in"}


def code_blocks(page: Path) -> list[CodeBlock]:
    """Return a page's blocks in their order."""
    text = page.read_text(encoding="utf-8")
    blocks = []
    end = 0
    for match in _FENCE.finditer(text):
        comments = {}
        before = text[: match.start()]
        while comment := _COMMENT.search(before):
            comments[comment[1]] = comment[2]
            before = before[: comment.start()]
        follows = bool(blocks) and not text[end : match.start()].strip()
        line = text.count("\n", 0, match.start()) + 1
        blocks.append(CodeBlock(match["language"], textwrap.dedent(match["text"]), line, comments, follows))
        end = match.end()
    return blocks
