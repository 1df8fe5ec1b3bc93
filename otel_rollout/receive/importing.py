"""Imports the OpenTelemetry Collector's files into a trace folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from otel_rollout.errors import NoTracesError
from otel_rollout.folder.layout import CLOSED_INDEX, INDEX, OPEN
from otel_rollout.folder.otlp_file import NoOtlpFileError, OtlpFile
from otel_rollout.folder.trace_files import TraceFile, find_trace_files
from otel_rollout.guard.clock import monotonic
from otel_rollout.otlp import EncodedSpan
from otel_rollout.receive.adoption import StoredSpans, adopt, open_folder
from otel_rollout.receive.span_batch import SpanBatch

MAX_PROBLEMS: Final = 1000
NEVER: Final = float("inf")


@dataclass
class ImportReport:
    """The counts of an import.

    Args:
        files: The files that were read.
        requests: The requests in them.
        spans: The spans that were added.
        doubles: The spans that the folder had, or that came twice.
        refused: The spans that can't be stored.
        traces: The traces that got spans.
        other_requests: The requests without a span, such as metrics and logs.
        cut_off: The files that end within a request, as they do while they are written.
        skipped: The files of a folder that are not the Collector's.
        problems: Sentences on what could not be read.
    """

    files: int = 0
    requests: int = 0
    spans: int = 0
    doubles: int = 0
    refused: int = 0
    traces: int = 0
    other_requests: int = 0
    cut_off: list[Path] = field(default_factory=list)
    skipped: list[Path] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """True if all spans of all files are in the folder."""
        return not self.refused and not self.problems

    def note(self, problem: str) -> None:
        """Keep a problem."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


def find_files(given: Iterable[Path], into: Path) -> list[tuple[Path, bool]]:
    """Return the files to import, in folders in the order of their names, each with True if it was named itself.

    Args:
        given: Files and folders.
        into: The trace folder, whose own files are left out.

    Raises:
        NoTracesError: There is no such file or folder, or nothing in a folder.
    """
    found: dict[Path, bool] = {}
    target = into.resolve()
    for each in given:
        if each.is_dir():
            files = [path for path in _walk(each.resolve()) if not path.is_relative_to(target)]
            if not files:
                raise NoTracesError(f"the folder {each} has no files to import")
            for path in files:
                found.setdefault(path, False)
        elif each.exists():
            found[each.resolve()] = True
        else:
            raise NoTracesError(f"there is no file or folder {each}")
    return list(found.items())


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        # A trajectory that is open elsewhere is in no step yet, and would count as finished here.
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != OPEN)
        for name in sorted(names):
            if not name.startswith(".") and not name.endswith((INDEX, CLOSED_INDEX)):
                yield Path(root, name)


def import_files(files: Iterable[tuple[Path, bool]], into: Path, on_progress: Callable[[int], object]) -> ImportReport:
    """Add the spans of files to a trace folder; those that it has are left out.

    Args:
        files: The files, and whether each was named itself; others may hold something else.
        into: The trace folder.
        on_progress: Called with the bytes read since the last call.

    Raises:
        NoOtlpFileError: A file that was named holds something else.
        OSError: A file can't be read, or the folder can't be written to; what was added until then stays.
        MissingExtraError: zstandard isn't installed.
    """
    report = ImportReport()
    # The second of two files may have all that the first one has.
    folder = open_folder(into, idle_seconds=NEVER, max_written_memory=sys.maxsize)
    traces: set[bytes] = set()
    is_done = False
    try:
        # An import that was killed has left spans in a journal.
        for _ in adopt(folder):
            pass
        found: list[TraceFile] = []
        with suppress(NoTracesError):
            found = find_trace_files(into)
        stored = StoredSpans(folder, found)
        for path, is_named in files:
            try:
                file = OtlpFile(path)
            except NoOtlpFileError:
                if is_named:
                    raise
                report.skipped.append(path)
                continue
            for spans in _batches(file, report, on_progress):
                trace_ids = {span.trace_id for span in spans}
                stored.note(trace_ids)
                started = monotonic()
                new, doubles = folder.take(spans)
                report.spans += new
                report.doubles += doubles
                known = {trace_id: folder.traces.get(trace_id) for trace_id in trace_ids}
                traces.update(trace_id for trace_id, trace in known.items() if trace and trace.last_seen >= started)
                folder.write_due()
            report.files += 1
        is_done = True
    finally:
        report.traces = len(traces)
        folder.close(keeps_running=not is_done)
    return report


def _batches(file: OtlpFile, report: ImportReport, on_progress: Callable[[int], object]) -> Iterator[list[EncodedSpan]]:
    """Yield the spans of a file, a large request's in groups."""
    position = 0
    for each in file.requests():
        if each.request is None:
            if each.is_cut_off:
                report.cut_off.append(file.path)
            else:
                report.note(f"{file.path}: byte {each.offset:,}: {each.fault}")
            continue
        report.requests += 1
        try:
            batch = SpanBatch(each.request, is_json=each.is_json)
        except ValueError as error:
            report.note(f"{file.path}: byte {each.offset:,}: {error}")
        else:
            has_spans = False
            for spans in batch.groups():
                has_spans = True
                yield spans
            report.refused += batch.refused
            if batch.refused:
                report.note(f"{file.path}: byte {each.offset:,}: {batch.reason}")
            report.other_requests += not has_spans and not batch.refused
        on_progress(file.position - position)
        position = file.position
    on_progress(file.position - position)
