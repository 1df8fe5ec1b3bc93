"""The names of the files and folders in a trace folder.

DIR/steps=000000-000099/<worker>.otlp.zst             the trajectories of training steps 0 to 99, a frame each
DIR/steps=000000-000099/<worker>.index.jsonl          a line for each frame
DIR/steps=000000-000099/<worker>.index.jsonl.zst      these lines, once the worker has closed the file
DIR/steps=000000-000099/<worker>-2.otlp.zst           the next file, once the first was full
DIR/validate/steps=000000-000099/<worker>.otlp.zst    the validation passes of these steps
DIR/no-step/<worker>.otlp.zst                         spans without a step
DIR/open/<worker>.otlp.zst                            the journal: spans whose root has not ended yet
DIR/open/<worker>.running.json                        the trajectories that run for longer than a few seconds
DIR/<worker>.lost                                     the spans that the exporter lost, by step and reason, if any

A bundle is the folder of a hundred steps: a run of thousands has a file of each worker in it, not in each step.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from otel_rollout.text.sanitize import INT64_MIN

FRAMES: Final = ".otlp.zst"
INDEX: Final = ".index.jsonl"
ZST: Final = ".zst"
CLOSED_INDEX: Final = f"{INDEX}{ZST}"
"""The ending of what a worker leaves of an index when it closes the file: blocks of lines, a zstd frame each."""
FOREIGN: Final = (".jsonl", ".jsonl.zst", ".jsonl.gz")
"""OTLP that another program wrote."""
RUNNING: Final = ".running.json"
LOST: Final = ".lost"
NEW: Final = ".new"
"""The suffix of a journal, or of a file of running trajectories, that will replace the old one."""

BUNDLE_STEPS: Final = 100
VALIDATE: Final = "validate"
NO_STEP: Final = "no-step"
OPEN: Final = "open"

_MAX_HOST_CHARACTERS: Final = 64
_NAME: Final = rf"[A-Za-z0-9_.-]{{1,{_MAX_HOST_CHARACTERS}}}-[0-9]+-[0-9a-f]{{4}}"
_NUMBER: Final = "(?:-[0-9]+)?"
_WORKER: Final = re.compile(f"({_NAME}){_NUMBER}")
_FRAME_FILE: Final = re.compile(_NAME + _NUMBER + re.escape(FRAMES))
_RUNNING_FILE: Final = re.compile(_NAME + re.escape(RUNNING))
_REPLACED: Final = "|".join(map(re.escape, (FRAMES, RUNNING)))
_NEW_FILE: Final = re.compile(rf"\.{_NAME}{_NUMBER}(?:{_REPLACED}){re.escape(NEW)}")
_BUNDLE: Final = re.compile("steps=(-?[0-9]{1,19})--?[0-9]{1,19}", re.ASCII)


def new_worker(role: str = "") -> str:
    """Return a new name for the files of this process: `<hostname>-<pid>-<4 hexadecimal digits>`.

    Args:
        role: Precedes the host, as if it were part of its name.
    """
    host = re.sub(r"[^A-Za-z0-9_.-]", "_", os.uname().nodename).lstrip(".") or "host"
    return f"{(role + host)[:_MAX_HOST_CHARACTERS]}-{os.getpid()}-{os.urandom(2).hex()}"


def bundle_folder(step: int | None, *, validate: bool) -> str:
    """Return the folder of a step's bundle, relative to the trace folder; the names sort up to a million steps.

    Args:
        step: The training step; None for spans without one.
        validate: True for a validation pass.
    """
    if step is None:
        return NO_STEP
    first = bundle_start(step)
    name = f"steps={first:06d}-{first + BUNDLE_STEPS - 1:06d}"
    return f"{VALIDATE}/{name}" if validate else name


def bundle_start(step: int) -> int:
    """Return the first step of a step's bundle."""
    return max(step - step % BUNDLE_STEPS, INT64_MIN)


def first_step_of(name: str) -> int | None:
    """Return the first step of a bundle by its folder's name; None if it is none, or has no steps."""
    match = _BUNDLE.fullmatch(name)
    return int(match[1]) if match is not None and name == bundle_folder(int(match[1]), validate=False) else None


def is_frame_file(name: str) -> bool:
    """Return True if we name a file of frames so: of trajectories, of a spool, or a journal."""
    return _FRAME_FILE.fullmatch(name) is not None


def is_running_file(name: str) -> bool:
    """Return True if we name a file of running trajectories so."""
    return _RUNNING_FILE.fullmatch(name) is not None


def is_ours(name: str) -> bool:
    """Return True if we name a file so that is no index: of frames, of running trajectories, or one that will be."""
    return is_frame_file(name) or is_running_file(name) or _NEW_FILE.fullmatch(name) is not None


def data_path(folder: Path, worker: str, number: int) -> Path:
    """Return a worker's file of trajectories in a bundle; its first has the number 1."""
    return folder / f"{worker}{FRAMES}" if number == 1 else folder / f"{worker}-{number}{FRAMES}"


def index_path(path: Path) -> Path:
    """Return the index of a file of trajectories."""
    return path.with_name(path.name.removesuffix(FRAMES) + INDEX)


def worker_of(path: str | os.PathLike[str]) -> str:
    """Return the name of the worker that wrote a file of a trace folder or a spool."""
    name = os.path.basename(path)  # noqa: PTH119 - readers have strings, and many
    endings = (CLOSED_INDEX, INDEX, FRAMES, *FOREIGN, RUNNING)
    name = next((name.removesuffix(ending) for ending in endings if name.endswith(ending)), name)
    match = _WORKER.fullmatch(name)
    return match[1] if match else name
