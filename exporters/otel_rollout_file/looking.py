"""Looks into a trace folder, for `doctor` and `find_trajectory`: nothing that a traced process loads."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.errors import NoTracesError, UnreadableTraceError
from otel_rollout.export.exporter import ReadBack
from otel_rollout.folder.reader import read_trajectories
from otel_rollout_file.exporter import FileSpanExporter


def find_trajectories(folder: Path, tags: Mapping[str, object]) -> list[tuple[str, int, str | None]]:
    """Return the trace id, the root's span id and the run of each trajectory with these tags, in order of their starts.

    Args:
        folder: The trace folder.
        tags: The tags, by attribute key.
    """
    step, sample, rollout = (tags.get(key) for key in (semconv.STEP, semconv.SAMPLE_INDEX, semconv.ROLLOUT_N))
    try:
        found = [
            each
            for each in read_trajectories(
                folder,
                step=step if type(step) is int else None,
                sample_index=None if sample is None else str(sample),
                rollout_n=None if rollout is None else str(rollout),
                validate=tags.get(semconv.VALIDATE) is True,
                experiment=str(tags.get(semconv.EXPERIMENT_NAME)),
                on_problem=lambda problem: None,
            )
            if each.has_root
        ]
    except NoTracesError:
        return []
    found.sort(key=lambda each: each.start_time)
    places = []
    for each in found:
        with suppress(UnreadableTraceError):
            roots = (span.context.span_id for span in each.spans if span.parent is None and span.context)
            places.append((each.trace_id, next(roots, 0), each.run_id))
    return places


class TrialExporter(FileSpanExporter):
    """Tries a trace folder, of which nothing is left that lists or replays would find."""

    def __init__(self, folder: Path) -> None:
        self._tried = folder
        self._made = [each for each in (folder, *folder.parents) if not each.exists()]
        # Readers skip hidden folders inside a trace folder.
        super().__init__(folder=folder / f".trial-{secrets.token_hex(4)}")

    @property
    def destination(self) -> str:
        """The folder that is tried."""
        return str(self._tried.resolve())

    def read_back(self, spans: Sequence[ReadableSpan]) -> ReadBack:
        """Count the spans that can be read; the folder is removed later."""
        return ReadBack(super().read_back(spans).found, f"a temporary folder in {self._tried}")

    def shutdown(self) -> None:
        """Close the files and remove them, with the folders that were made for them; idempotent."""
        super().shutdown()
        shutil.rmtree(self.settings.folder, ignore_errors=True)
        for folder in self._made:
            with suppress(OSError):
                folder.rmdir()
