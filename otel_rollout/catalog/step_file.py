"""A step's summary file: the summaries of the step, of its groups, and of trajectories without one in an index.

A line is a JSON object, sealed with a checksum as the lines of an index are: the first has the sizes of the files that
the summary was made of, the next ones the step's summaries, one for each run, then one for each group, then the
summaries of trajectories whose index entry has none.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Final
from zlib import crc32

import orjson

from otel_rollout.catalog.group_summary import GroupSummary, Spread
from otel_rollout.catalog.step_places import StepPlace
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.json_types import from_json, readers_of, to_json
from otel_rollout.facts.table import Percentiles, ToolCounts
from otel_rollout.files.file_lock import open_to_read, try_lock
from otel_rollout.files.file_modes import open_private
from otel_rollout.folder.layout import NEW_STEP_SUMMARY, STEP_SUMMARY
from otel_rollout.folder.lines import SEAL_BYTES, is_whole, seal_of
from otel_rollout.folder.stored_file import ReadProblem
from otel_rollout.text.sanitize import replace_surrogates
from otel_rollout.version import __version__

_KINDS: Final = (StepSummary, Percentiles, GroupSummary, Spread, ToolCounts)
FORMAT: Final = f"{__version__} {crc32(repr([(each.__name__, *readers_of(each)) for each in _KINDS]).encode()):08x}"
"""Another version may compute a figure in another way."""
MAX_LINE_BYTES: Final = 2**24
"""A group of a hundred thousand trajectories is a longer line, and not kept."""
MAX_BYTES: Final = 2**29
MAX_PROBLEMS: Final = 1000


@dataclass(frozen=True, slots=True)
class StepFile:
    """The content of a step's file.

    Args:
        steps: A summary for each run.
        groups: The groups of all of them; empty if they were not asked for.
        problems: The parts of the step's files that could not be read.
    """

    steps: Sequence[StepSummary]
    groups: Sequence[GroupSummary] = ()
    problems: Sequence[ReadProblem] = ()


def read_step_file(place: StepPlace, *, with_groups: bool = False) -> StepFile | None:
    """Return the file's content; None unless it was made of the files as they are.

    Args:
        place: The step's folder.
        with_groups: Read the groups too.
    """
    with suppress(OSError, ValueError, TypeError, LookupError), _open(place) as file:
        found = _read_start(place, file)
        if found is None or not with_groups:
            return None if found is None else found[0]
        content, groups = found
        lines = file.read(MAX_BYTES).split(b"\n")[:-1]
        if len(lines) == groups:
            return replace(content, groups=[from_json(GroupSummary, _unsealed(line)) for line in lines])
    return None


def find_groups(place: StepPlace, text: bytes) -> list[GroupSummary] | None:
    """Return the groups whose line has a text, without parsing the others; None as `read_step_file` does."""
    with suppress(OSError, ValueError, TypeError, LookupError), _open(place) as file:
        start = _read_start(place, file)
        data = file.read(MAX_BYTES)
        if start is None or data.count(b"\n") != start[1]:
            return None
        found = []
        at = data.find(text)
        while at >= 0:
            begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            found.append(from_json(GroupSummary, _unsealed(data[begin:end])))
            at = data.find(text, end)
        return found
    return None


def write_step_file(place: StepPlace, content: StepFile) -> bool:
    """Write the file, unless the folder can't be written to; returns True if it is there.

    Args:
        place: The step's folder, with the sizes that its files had before they were read.
        content: The summaries.
    """
    if _is_linked(place):
        return False
    path = os.path.join(place.folder, STEP_SUMMARY)  # noqa: PTH118 - one of many
    new = os.path.join(place.folder, NEW_STEP_SUMMARY)  # noqa: PTH118 - one of many
    try:
        descriptor = open_private(new, os.O_WRONLY)
    except OSError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        try:
            # Another reader may write it at this moment, or have put it into its place since it was opened here.
            if not try_lock(descriptor) or not os.path.samestat(os.fstat(descriptor), os.lstat(new)):
                return False
            file.truncate()
            file.writelines(_sealed_lines(place, content))
            file.flush()
            os.replace(new, path)  # noqa: PTH105 - one of many
        except (OSError, _TooLongError):
            with suppress(OSError):
                os.unlink(new)  # noqa: PTH108 - one of many
            return False
    return True


class _TooLongError(ValueError):
    """A line is too long to be kept."""


def _sealed_lines(place: StepPlace, content: StepFile) -> Iterator[bytes]:
    header = {
        "format": FORMAT,
        "steps": len(content.steps),
        "groups": len(content.groups),
        "files": place.sizes,
        "problems": [
            (each.what, replace_surrogates(each.path.name), each.offset) for each in content.problems[:MAX_PROBLEMS]
        ],
    }
    for each in (header, *content.steps, *content.groups):
        start = to_json(each)[:-1]
        if len(start) > MAX_LINE_BYTES - SEAL_BYTES:
            raise _TooLongError
        yield start + seal_of(start)


def _open(place: StepPlace) -> BinaryIO:
    return os.fdopen(open_to_read(os.path.join(place.folder, STEP_SUMMARY)), "rb")  # noqa: PTH118 - one of many


def _read_start(place: StepPlace, file: BinaryIO) -> tuple[StepFile, int] | None:
    """Return the steps and problems, and the number of groups that follow; None unless the sizes are these."""
    header = _next(file)
    if header["format"] != FORMAT or tuple(map(tuple, header["files"])) != place.sizes:
        return None
    steps = [from_json(StepSummary, _next(file)) for _ in range(header["steps"])]
    folder = Path(place.folder)
    problems = [ReadProblem(what, folder / name, offset) for what, name, offset in header["problems"]]
    return StepFile(steps, (), problems), header["groups"]


def _next(file: BinaryIO) -> dict[str, Any]:
    return _unsealed(file.readline(MAX_LINE_BYTES).rstrip(b"\n"))


def _unsealed(line: bytes) -> dict[str, Any]:
    """Return a line's object; the checksum is one of its names.

    Raises:
        ValueError: The checksum does not hold, or it is no object.
    """
    if not is_whole(line):
        raise ValueError("the checksum does not hold")
    found = orjson.loads(line)
    if type(found) is not dict:
        raise ValueError("no object")
    del found["crc32"]
    return found


def _is_linked(place: StepPlace) -> bool:
    """Return True if a symlink leads from the trace folder to the step's."""
    folder = place.folder
    while len(folder) > len(place.within.rstrip("/")):
        if os.path.islink(folder):  # noqa: PTH114 - one of many
            return True
        folder = os.path.dirname(folder)  # noqa: PTH120 - one of many
    return False
