"""What the files and folders of a trace folder are called.

DIR/step=000007/<worker>.jsonl.zst              the trajectories of training step 7, a frame each
DIR/step=000007/<worker>.index.jsonl            a line for each frame
DIR/step=000007/<worker>-2.jsonl.zst            what came after the first file was full
DIR/validate/step=000007/<worker>.jsonl.zst     the validation passes of step 7
DIR/no-step/<worker>.jsonl.zst                  what has no step
DIR/open/<worker>.jsonl                         the journal: spans whose root has not ended yet
DIR/open/<worker>.index.jsonl                   a line for each of its lines, once its process is gone
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path
from typing import Final

__all__ = [
    "FRAMES",
    "INDEX",
    "LINES",
    "NEW",
    "NO_STEP",
    "OPEN",
    "STEP",
    "VALIDATE",
    "data_path",
    "index_path",
    "is_frame_file",
    "is_journal_file",
    "is_step_folder",
    "journal_path",
    "new_worker",
    "step_folder",
    "step_of",
    "worker_of",
]

FRAMES: Final = ".jsonl.zst"
INDEX: Final = ".index.jsonl"
LINES: Final = ".jsonl"
NEW: Final = ".new"
"""A journal that is being written anew, or a journal's index; it takes the place of the old one."""

STEP: Final = "step="
"""What the names of the steps' folders begin with."""

VALIDATE: Final = "validate"
NO_STEP: Final = "no-step"
OPEN: Final = "open"

_MAX_HOST_CHARACTERS: Final = 64
_NAME: Final = rf"[A-Za-z0-9_.-]{{1,{_MAX_HOST_CHARACTERS}}}-[0-9]+-[0-9a-f]{{4}}"
_NUMBER: Final = "(?:-[0-9]+)?"
_WORKER: Final = re.compile(f"({_NAME}){_NUMBER}")
_FRAME_FILE: Final = re.compile(_NAME + _NUMBER + re.escape(FRAMES))
_JOURNAL_FILE: Final = re.compile(_NAME + re.escape(LINES))
_NEW_FILE: Final = re.compile(rf"\.{_NAME}(?:{re.escape(LINES)}|{re.escape(INDEX)}){re.escape(NEW)}")
_MAX_STEP_DIGITS: Final = 18


def new_worker() -> str:
    """Return a name for what this process writes: `<hostname>-<pid>-<4 hexadecimal digits>`."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname())[:_MAX_HOST_CHARACTERS].lstrip(".")
    return f"{host or 'host'}-{os.getpid()}-{secrets.token_hex(2)}"


def step_folder(step: int | None, *, validate: bool) -> str:
    """Return the folder of a step, relative to the trace folder.

    Args:
        step: The training step; None for what has none.
        validate: Whether it is a validation pass.
    """
    name = NO_STEP if step is None else f"{STEP}{step:06d}"
    return f"{VALIDATE}/{name}" if validate and step is not None else name


def step_of(name: str) -> int | None:
    """Return the step that a folder's name says; None where it says none."""
    if not name.startswith(STEP):
        return None
    number = name[len(STEP) :]
    digits = number.removeprefix("-")
    return int(number) if digits.isdecimal() and len(digits) <= _MAX_STEP_DIGITS else None


def is_step_folder(name: str) -> bool:
    """Say whether we call a folder of trajectories that."""
    step = step_of(name)
    return name == NO_STEP or (step is not None and name == step_folder(step, validate=False))


def is_frame_file(name: str) -> bool:
    """Say whether we call a file of frames that, in a trace folder or a spool."""
    return _FRAME_FILE.fullmatch(name) is not None


def is_journal_file(name: str, *, may_be_new: bool = False) -> bool:
    """Say whether we call a journal that.

    Args:
        name: The name.
        may_be_new: Whether what is written to take its place, or its index's, is one too.
    """
    return _JOURNAL_FILE.fullmatch(name) is not None or (may_be_new and _NEW_FILE.fullmatch(name) is not None)


def data_path(folder: Path, worker: str, number: int) -> Path:
    """Return the file of a worker's trajectories.

    Args:
        folder: The folder of the step.
        worker: The worker's name.
        number: 1 for its first file there.
    """
    return folder / f"{worker}{FRAMES}" if number == 1 else folder / f"{worker}-{number}{FRAMES}"


def index_path(path: Path) -> Path:
    """Return the index that belongs to a file of trajectories, or to a journal."""
    return path.with_name(path.name.removesuffix(FRAMES).removesuffix(LINES) + INDEX)


def journal_path(folder: Path, worker: str) -> Path:
    """Return a worker's journal in a trace folder."""
    return folder / OPEN / f"{worker}{LINES}"


def worker_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the worker that wrote a file of a trace folder or a spool."""
    name = os.path.basename(path)  # noqa: PTH119 - readers have texts, and many
    for ending in (INDEX, FRAMES, LINES):
        if name.endswith(ending):
            name = name.removesuffix(ending)
            break
    match = _WORKER.fullmatch(name)
    return match[1] if match else name
