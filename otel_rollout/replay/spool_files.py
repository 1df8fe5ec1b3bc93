"""The files of a spool: which folder is one, and the removal of files once all in them is delivered."""

from __future__ import annotations

import re
from pathlib import Path

from otel_rollout.errors import ConfigurationError, NoTracesError
from otel_rollout.files.file_lock import remove
from otel_rollout.folder.layout import NO_STEP, first_step_of, is_frame_file
from otel_rollout.folder.trace_files import TraceFile, find_trace_files
from otel_rollout.text.plain_text import counted


def files_in(folder: Path) -> list[TraceFile]:
    """Return the files of a folder that hold traces; none if there are none."""
    try:
        return find_trace_files(folder)
    except NoTracesError:
        return []


def is_spool(folder: Path, *, may_be_empty: bool = False) -> bool:
    """Return if a folder holds only files of a spool, frames without an index or a step; or nothing, if that may be.

    Raises:
        NoTracesError: The folder doesn't exist or holds no traces.
    """
    if folder.is_file():
        raise NoTracesError(f"{folder} is a file: name the folder that it is in")
    if any(first_step_of(part) is not None or part == NO_STEP for part in folder.resolve().parts):
        # Part of a trace folder: its files are no spool's, even without their indexes.
        return False
    files = files_in(folder) if may_be_empty and folder.is_dir() else find_trace_files(folder)
    return all(
        file.has_frames and not file.is_journal and file.index_place is None and file.bundle is None for file in files
    )


def spool_of(folder: Path, backend: str) -> Path:
    """Return the folder of one exporter's spool: the folder of its name in `folder`, or `folder` itself.

    Raises:
        ConfigurationError: It holds only other exporters' spans.
    """
    own = folder / re.sub(r"[^\w.-]+", "_", backend)
    if own.is_dir():
        return own
    others = sorted({file.path.relative_to(folder).parts[0] for file in files_in(folder)})
    others = [name for name in others if (folder / name).is_dir()]
    if others:
        raise ConfigurationError(
            f"the spool {folder} holds nothing for {backend}, but for {', '.join(others)}: to send that to {backend}, "
            f"name the folder {folder / others[0]}"
        )
    return folder


def remove_delivered(folder: Path, files: set[Path]) -> list[str]:
    """Remove files that are delivered, except for those that otel-rollout did not write, by their name or place.

    Returns:
        Lines of text on what was removed, and what was not.
    """
    own = folder.resolve()
    ours = [path for path in files if is_frame_file(path.name) and path.resolve() == own / path.relative_to(folder)]
    removed = sum(map(remove, ours))
    counts = (
        (removed, "removed: all that can be read in it is delivered"),
        (len(ours) - removed, "delivered, but not removed: a process has it open, or its folder is read-only"),
        (len(files) - len(ours), "delivered, but not removed: not named as a spool's, or behind a link"),
    )
    return [f"{counted(count, 'file')} {text}" for count, text in counts if count]
