"""Commands on a terminal."""

from __future__ import annotations

import codecs
import os
import pty
import select
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

LIMIT = 180.0


class Terminal:
    """A command on a terminal of its own; what it has printed is in `screen`."""

    def __init__(self, command: Sequence[str | Path], *arguments: str, **environ: str) -> None:
        self._ours, theirs = pty.openpty()
        self.screen = ""
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environ},
        )
        os.close(theirs)
        # What is read at once may end in the middle of a letter.
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def read_until(self, text: str | None) -> None:
        """Read until `text` was printed, or to the end."""
        deadline = time.monotonic() + LIMIT
        while text is None or text not in self.screen:
            assert select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))[0], self.screen
            try:
                self.screen += self._decoder.decode(os.read(self._ours, 65536))
            except OSError:  # the other side is closed
                break
        assert text is None or text in self.screen

    def wait(self) -> int:
        """Wait for the end and return the exit code."""
        self.read_until(None)
        os.close(self._ours)
        return self.process.wait(LIMIT)
