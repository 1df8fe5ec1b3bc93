"""Which files of a folder hold traces, and what their places say of them."""

from __future__ import annotations

import os
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import Final, NamedTuple

from otel_rollout.errors import NoTracesError
from otel_rollout.trace_folder.frames import is_being_written
from otel_rollout.trace_folder.layout import FRAMES, INDEX, LINES, NO_STEP, STEP, VALIDATE, step_of, worker_of
from otel_rollout.trace_folder.selection import Selection

__all__ = ["StepKey", "TraceFile", "find_trace_files"]

EVERYTHING: Final = Selection()
MAX_DEPTH: Final = 16
"""Links can lead round in a circle."""


class StepKey(NamedTuple):
    """What trajectories are put in order by: those of a step before its validation, those without a step last."""

    has_no_step: bool
    step: int
    validate: bool

    @classmethod
    def of(cls, step: int | None, *, validate: bool) -> StepKey:
        """Return the key of a step."""
        return cls(True, 0, False) if step is None else cls(False, step, validate)

    def is_in(self, selection: Selection) -> bool:
        """Say whether what is asked for can be of this step."""
        return selection.takes_step(None if self.has_no_step else self.step, validate=self.validate)


class TraceFile(NamedTuple):
    """A file that holds traces.

    Args:
        place: The file's path, as a text: a step can have hundreds of files.
        index_place: That of its index; None where it has none.
        key: The step of all that is in it; None where its place doesn't say.
    """

    place: str
    index_place: str | None
    key: StepKey | None

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.place)

    @property
    def is_compressed(self) -> bool:
        """Whether its lines are zstd frames."""
        return self.place.endswith(FRAMES)

    @property
    def worker(self) -> str:
        """The process that writes it."""
        return worker_of(self.place)

    def disk_bytes(self) -> int:
        """Return its size with that of its index; 0 once it is gone."""
        return sum(_size(path) for path in (self.place, self.index_place) if path)

    def is_being_written(self) -> bool:
        """Say whether a process holds it open to write."""
        return is_being_written(self.place)


def find_trace_files(folder: str | PathLike[str], selection: Selection = EVERYTHING) -> list[TraceFile]:
    """Return the files that can hold what is asked for, in the order of their names.

    Args:
        folder: A trace folder, a spool, or any folder above or in one.
        selection: What is asked for; folders of other steps are not looked into.

    Raises:
        NoTracesError: The folder doesn't exist, or nothing in it holds traces.
    """
    walk = _Walk(selection)
    try:
        walk.look_into(os.fspath(folder), _Context(), 0)
    except (FileNotFoundError, NotADirectoryError):
        raise NoTracesError(f"there is no trace folder {folder}") from None
    if not walk.has_traces:
        raise NoTracesError(f"the folder {folder} holds no traces")
    return walk.files


class _Context(NamedTuple):
    """What the folders on the way say."""

    validate: bool = False
    key: StepKey | None = None


class _Walk:
    """A walk through a folder."""

    def __init__(self, selection: Selection) -> None:
        self.files: list[TraceFile] = []
        self.has_traces = False
        self._selection = selection

    def look_into(self, folder: str, context: _Context, depth: int) -> None:
        """Collect the files of a folder and of those in it.

        Raises:
            FileNotFoundError: There is no such folder.
            NotADirectoryError: It is a file.
        """
        indexes: set[str] = set()
        names = os.listdir(folder)  # noqa: PTH208 - a step can have hundreds of files
        if ending := self._selection.step_ending:
            kept = [
                name
                for name in names
                if name.endswith(ending) or not (name.startswith(STEP) and name[len(STEP) :].isdecimal())
            ]
            self.has_traces = self.has_traces or len(kept) < len(names)
            names = kept
        # In order of names an index comes before its file.
        for name in sorted(names):
            step = step_of(name)
            if step is not None and not self._selection.takes_step(step, validate=context.validate):
                self.has_traces = True
            elif name.endswith(INDEX):
                indexes.add(name)
            elif name.endswith((FRAMES, LINES)):
                self.has_traces = True
                index = name.removesuffix(FRAMES) + INDEX
                index_place = f"{folder}/{index}" if index in indexes else None
                self.files.append(TraceFile(f"{folder}/{name}", index_place, context.key))
            elif depth < MAX_DEPTH and not name.startswith("."):
                # What is no folder; and old steps may be removed while they are read.
                with suppress(NotADirectoryError, FileNotFoundError):
                    self.look_into(f"{folder}/{name}", _enter(name, step, context), depth + 1)


def _enter(name: str, step: int | None, context: _Context) -> _Context:
    """Return what is known in the folder `name`."""
    if name == VALIDATE:
        return _Context(validate=True)
    if name == NO_STEP:
        return _Context(key=StepKey.of(None, validate=False))
    # Not within the journals, nor in a folder of somebody else's: their lines must say it themselves.
    return _Context() if step is None else _Context(key=StepKey.of(step, validate=context.validate))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - one of many
    except FileNotFoundError:
        return 0
