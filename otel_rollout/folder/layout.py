"""The names of the files and folders in a trace folder.

DIR/step=000007/<worker>.otlp.zst               the trajectories of training step 7, a frame each
DIR/step=000007/<worker>.index.jsonl            a line for each frame
DIR/step=000007/<worker>-2.otlp.zst             the next file, once the first was full
DIR/step=000007/summary.ndjson                  the step's summary, written by a reader
DIR/validate/step=000007/<worker>.otlp.zst      the validation passes of step 7
DIR/no-step/<worker>.otlp.zst                   spans without a step
DIR/open/<worker>.otlp                          the journal: spans whose root has not ended yet
DIR/open/<worker>.index.jsonl                   a line for each record of the journal, once its process has ended
DIR/open/<worker>.running.json                  the trajectories that run for longer than a few seconds
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
    "NEW_STEP_SUMMARY",
    "NO_STEP",
    "OPEN",
    "RECORDS",
    "RUNNING",
    "STEP",
    "STEP_SUMMARY",
    "VALIDATE",
    "data_path",
    "index_path",
    "is_frame_file",
    "is_journal_file",
    "is_running_file",
    "is_step_folder",
    "is_step_summary",
    "journal_path",
    "new_worker",
    "running_path",
    "step_folder",
    "step_of",
    "worker_of",
]

FRAMES: Final = ".otlp.zst"
INDEX: Final = ".index.jsonl"
RECORDS: Final = ".otlp"
LINES: Final = (".jsonl", ".jsonl.zst")
"""Lines of OTLP JSON that another program wrote, plain or a frame each."""
RUNNING: Final = ".running.json"
NEW: Final = ".new"
"""The suffix of a journal, or of its index, that is being rewritten and will replace the old one."""
STEP_SUMMARY: Final = "summary.ndjson"
"""Not an ending that readers, of earlier versions too, take for traces."""
NEW_STEP_SUMMARY: Final = f".{STEP_SUMMARY}{NEW}"
"""A summary that is being written."""

STEP: Final = "step="
VALIDATE: Final = "validate"
NO_STEP: Final = "no-step"
OPEN: Final = "open"

_MAX_HOST_CHARACTERS: Final = 64
_NAME: Final = rf"[A-Za-z0-9_.-]{{1,{_MAX_HOST_CHARACTERS}}}-[0-9]+-[0-9a-f]{{4}}"
_NUMBER: Final = "(?:-[0-9]+)?"
_WORKER: Final = re.compile(f"({_NAME}){_NUMBER}")
_FRAME_FILE: Final = re.compile(_NAME + _NUMBER + re.escape(FRAMES))
_JOURNAL_FILE: Final = re.compile(_NAME + re.escape(RECORDS))
_RUNNING_FILE: Final = re.compile(_NAME + re.escape(RUNNING))
_REPLACED: Final = "|".join(map(re.escape, (RECORDS, INDEX, RUNNING)))
_NEW_FILE: Final = re.compile(rf"\.{_NAME}{_NUMBER}(?:{_REPLACED}){re.escape(NEW)}")
_MAX_STEP_DIGITS: Final = 18


def new_worker(role: str = "") -> str:
    """Return a new name for the files of this process: `<hostname>-<pid>-<4 hexadecimal digits>`.

    Args:
        role: Precedes the host, as if it were part of its name.
    """
    host = re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname()).lstrip(".") or "host"
    return f"{(role + host)[:_MAX_HOST_CHARACTERS]}-{os.getpid()}-{secrets.token_hex(2)}"


def step_folder(step: int | None, *, validate: bool) -> str:
    """Return a step's folder, relative to the trace folder.

    Args:
        step: The training step; None for spans without one.
        validate: True for a validation pass.
    """
    name = NO_STEP if step is None else f"{STEP}{step:06d}"
    return f"{VALIDATE}/{name}" if validate and step is not None else name


def step_of(name: str) -> int | None:
    """Return the step in a folder's name, if there is one."""
    if not name.startswith(STEP):
        return None
    number = name[len(STEP) :]
    digits = number.removeprefix("-")
    return int(number) if digits.isdecimal() and len(digits) <= _MAX_STEP_DIGITS else None


def is_step_folder(name: str) -> bool:
    """Return True if `step_folder` makes this name."""
    step = step_of(name)
    return name == NO_STEP or (step is not None and name == step_folder(step, validate=False))


def is_frame_file(name: str, *, may_be_new: bool = False) -> bool:
    """Return True if we name a file of frames so, in a trace folder or a spool.

    Args:
        name: The name.
        may_be_new: Accept the file that will replace an index, too.
    """
    return _FRAME_FILE.fullmatch(name) is not None or (may_be_new and _NEW_FILE.fullmatch(name) is not None)


def is_step_summary(name: str) -> bool:
    """Return True if this is the file of a step's summary, or the new file that will replace it."""
    return name in (STEP_SUMMARY, NEW_STEP_SUMMARY)


def is_journal_file(name: str, *, may_be_new: bool = False) -> bool:
    """Return True if we name a journal so.

    Args:
        name: The name.
        may_be_new: Accept the file that will replace a journal, its index, or a file of running trajectories, too.
    """
    return _JOURNAL_FILE.fullmatch(name) is not None or (may_be_new and _NEW_FILE.fullmatch(name) is not None)


def is_running_file(name: str) -> bool:
    """Return True if we name a file of running trajectories so."""
    return _RUNNING_FILE.fullmatch(name) is not None


def data_path(folder: Path, worker: str, number: int) -> Path:
    """Return a worker's file of trajectories in a step's folder; its first has the number 1."""
    return folder / f"{worker}{FRAMES}" if number == 1 else folder / f"{worker}-{number}{FRAMES}"


def index_path(path: Path) -> Path:
    """Return the index of a file of trajectories, or of a journal."""
    return path.with_name(path.name.removesuffix(FRAMES).removesuffix(RECORDS) + INDEX)


def journal_path(folder: Path, worker: str) -> Path:
    """Return a worker's journal in a trace folder."""
    return folder / OPEN / f"{worker}{RECORDS}"


def running_path(folder: Path, worker: str) -> Path:
    """Return a worker's file of running trajectories in a trace folder."""
    return folder / OPEN / f"{worker}{RUNNING}"


def worker_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the worker that wrote a file of a trace folder or a spool."""
    name = os.path.basename(path)  # noqa: PTH119 - readers have strings, and many
    for ending in (INDEX, FRAMES, *reversed(LINES), RECORDS, RUNNING):
        if name.endswith(ending):
            name = name.removesuffix(ending)
            break
    match = _WORKER.fullmatch(name)
    return match[1] if match else name
