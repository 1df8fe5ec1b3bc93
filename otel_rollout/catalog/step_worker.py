"""Makes summaries of step folders in a child process, which a `WorkerProcess` starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from otel_rollout.catalog.step_file import StepFile
from otel_rollout.catalog.step_making import make_step
from otel_rollout.catalog.step_places import StepPlace
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.facts.json_types import from_json, to_json
from otel_rollout.folder.stored_file import ReadProblem
from otel_rollout.folder.trace_files import StepKey, TraceFile
from otel_rollout.guard.garbage_collection import collect_rarely

__all__ = ["answer", "content_of", "prepare", "request_of"]


def prepare() -> None:
    """Prepare the child process."""
    collect_rarely()


def request_of(place: StepPlace) -> bytes:
    """Return a step's folder as a request."""
    files = [(file.place, file.index_place, file.key and tuple(file.key)) for file in place.files]
    return orjson.dumps([place.folder, place.within, files, place.sizes])


def answer(request: bytes) -> bytes:
    """Make the summaries of a step's folder, and return them without the groups."""
    folder, within, files, sizes = orjson.loads(request)
    place = StepPlace(folder, within, tuple(map(_file_of, files)), tuple(map(tuple, sizes)))
    content = make_step(place)
    problems = [(each.what, str(each.path), each.offset) for each in content.problems]
    return to_json({"steps": content.steps, "problems": problems})


def content_of(answered: bytes) -> StepFile:
    """Return the summaries that `answer` has returned.

    Raises:
        ValueError: They are no answer (LookupError, TypeError: the same for other reasons).
    """
    message: dict[str, Any] = orjson.loads(answered)
    problems = [ReadProblem(what, Path(path), offset) for what, path, offset in message["problems"]]
    return StepFile([from_json(StepSummary, step) for step in message["steps"]], (), problems)


def _file_of(fields: tuple[str, str | None, tuple[bool, int, bool] | None]) -> TraceFile:
    place, index_place, key = fields
    return TraceFile(place, index_place, None if key is None else StepKey(*key))
