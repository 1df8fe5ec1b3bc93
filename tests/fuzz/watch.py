"""What a fuzzing process has found, and who may call the methods of hostile values.

A user's class is the user's: its methods may run on the threads of the program, while the program runs. While an op
captures (a window is open on the thread), and on every thread that is not the program's (delivery), none may.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Any

__all__ = ["WATCH", "Watch"]

PRODUCT = ("otel_rollout", "otel_rollout_console", "otel_rollout_file", "otel_rollout_mlflow", "otel_rollout_otlp")
MAX_CHARACTERS = 300


class Watch:
    """Findings, each kind once with how often it came up, and the open windows."""

    def __init__(self) -> None:
        self.findings: dict[str, int] = {}
        self.details: dict[str, str] = {}
        self._users = {threading.get_ident()}
        self._windows: set[int] = set()

    def found(self, kind: str, detail: str = "") -> None:
        """Note that something went wrong.

        Args:
            kind: What it was; the same text for the same fault.
            detail: The first example of it is kept.
        """
        self.findings[kind] = self.findings.get(kind, 0) + 1
        self.details.setdefault(kind, detail[:MAX_CHARACTERS].encode("utf-8", "backslashreplace").decode())

    def is_user(self) -> None:
        """Make the calling thread one of the program's own, which may call what is the user's."""
        self._users.add(threading.get_ident())

    def window(self) -> Window:
        """Hold a stretch of the calling thread in which nobody may call what is the user's."""
        return Window(self._windows)

    def called(self, owner: str, method: str) -> bool:
        """Whether this call of a user's method is one that must not be; it is noted then."""
        ident = threading.get_ident()
        if ident in self._users and ident not in self._windows:
            return False
        where = caller()
        if where is None and ident in self._users:
            # By the interpreter itself, at the end of a reference for instance.
            return False
        thread = "the caller's thread" if ident in self._users else "another thread"
        self.found(f"{owner}.{method} was called on {thread} by {where}")
        return True


class Window:
    """A stretch of a thread; no generator, which the collector could close in the middle of the next."""

    def __init__(self, windows: set[int]) -> None:
        self._windows = windows

    def __enter__(self) -> None:
        self._windows.add(threading.get_ident())

    def __exit__(self, *exception: object) -> None:
        self._windows.discard(threading.get_ident())


def caller() -> str | None:
    """Return the innermost function of the product on the stack, as `snapshot.py:snapshot`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in PRODUCT:
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
        frame = frame.f_back
    return None


WATCH = Watch()
"""Of this process."""
