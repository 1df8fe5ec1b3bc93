"""An exporter for `otel-rollout doctor`, which a traced process doesn't load."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.export.exporter import ReadBack
from otel_rollout_file.exporter import FileSpanExporter

__all__ = ["TrialExporter"]


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
