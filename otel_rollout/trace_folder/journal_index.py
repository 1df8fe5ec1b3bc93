"""An index beside the journal of a process that is gone, made by the first reader: the next ones need not parse it.

It says of each line of the journal what the index of a file of trajectories says of each frame. Where it can't be
written, on a disk that is read-only say, each reader parses the journal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_rollout.export.file_modes import open_private
from otel_rollout.trace_folder.file_lock import try_take
from otel_rollout.trace_folder.index import index_line
from otel_rollout.trace_folder.index_entry import IndexEntry, Row
from otel_rollout.trace_folder.layout import NEW, index_path

__all__ = ["MIN_BYTES", "write_journal_index"]

MIN_BYTES: Final = 2**20
"""A smaller journal is parsed in milliseconds."""


def write_journal_index(journal: Path, rows: Sequence[Row]) -> None:
    """Write the index of a journal if its process is gone; whatever hinders that is no error.

    Args:
        journal: The journal.
        rows: What is in it, from its first line on, without gaps.
    """
    path = index_path(journal)
    new = path.with_name(f".{path.name}{NEW}")
    # The lock is held meanwhile, so that no two readers write it at once.
    with suppress(OSError), try_take(journal) as descriptor:
        if descriptor is None:
            return
        try:
            with os.fdopen(open_private(new, os.O_WRONLY | os.O_TRUNC), "wb") as file:
                file.writelines(index_line(IndexEntry._make(row)) for row in rows)
            new.replace(path)
        except OSError:
            new.unlink()
            raise
