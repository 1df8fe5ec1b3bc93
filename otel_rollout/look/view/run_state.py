"""The state of a run for all requests: its steps, which one thread reads anew when the folder has changed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from otel_rollout.catalog import LiveRun, Run
from otel_rollout.catalog.step_summary import StepSummary
from otel_rollout.errors import NoTracesError
from otel_rollout.folder.stored_file import ReadProblem
from otel_rollout.folder.trace_files import find_trace_files
from otel_rollout.guard.clock import monotonic
from otel_rollout.text.plain_text import counted

SECONDS_BETWEEN_LOOKS: Final = 1.0
SECONDS_BETWEEN_LOCK_CHECKS: Final = 5.0
MAX_LOCK_CHECKS: Final = 64
"""The most files whose lock is tried to find a writer, the latest ones first."""
MAX_PROBLEMS: Final = 20


class Progress(NamedTuple):
    """The progress of reading a run.

    Args:
        done: The files that have been read.
        total: All that must be.
    """

    done: int
    total: int


class RunState:
    """The state of a run: its steps, version, unreadable files and active writers. Thread-safe.

    Args:
        folders: The trace folders; they may come later.
        experiment: The only experiment to show; None for all.
        run: The beginning of the id of the only run to show; None for all.
    """

    def __init__(self, folders: Sequence[Path], *, experiment: str | None = None, run: str | None = None) -> None:
        self.folders = folders
        self.run = Run(folders, self._note, self._progress_is, experiment=experiment, run=run)
        self._run_folders: Mapping[str, str] = {}
        self._attempts: Sequence[str] = ()
        self._lock = threading.Lock()
        self._steps: list[StepSummary] = []
        self._steps_version: str | None = None
        self._failure: Exception | None = None
        self._reading: threading.Event | None = None
        self._progress: Progress | None = None
        self._problems: Counter[tuple[str, Path]] = Counter()
        self._looked_at = ""
        self._version = _Remembered(self._look, SECONDS_BETWEEN_LOOKS)
        self._live = _Remembered(self.run.live, SECONDS_BETWEEN_LOOKS)
        self._is_live = _Remembered(lambda: self.run.is_being_written(MAX_LOCK_CHECKS), SECONDS_BETWEEN_LOCK_CHECKS)

    def version(self) -> str:
        """Return a text that changes when the folders do, or writing begins or ends; looked at once a second."""
        # A crash changes no file, but makes findings of what was open.
        return f"{self._version()}{'-live' if self.is_live() else ''}"

    def is_live(self) -> bool:
        """Return True if a process writes one of the folders; looked for when they change, and every few seconds."""
        version = str(self._version())
        with self._lock:
            has_changed, self._looked_at = version != self._looked_at, version
        if has_changed:
            self._is_live.forget()
        return bool(self._is_live())

    def live(self) -> LiveRun:
        """Return the running trajectories; they are looked for once a second at most."""
        live: LiveRun = self._live()
        return live

    @property
    def progress(self) -> Progress | None:
        """The progress of the reading; None if nothing is being read."""
        return self._progress if self._reading is not None else None

    def steps(self, patience: float | None) -> list[StepSummary]:
        """Return the steps; those known so far if the reading takes longer.

        Args:
            patience: The seconds to wait for it; None for as long as it takes.

        Raises:
            NoTracesError: There is nothing to read yet.
        """
        return self.steps_so_far(patience)[0]

    def steps_so_far(self, patience: float | None) -> tuple[list[StepSummary], bool]:
        """Return the steps, and whether all changes are in them that there were when this was asked.

        Args:
            patience: See `steps`.

        Raises:
            NoTracesError: There is nothing to read yet.
        """
        version = self.version()
        deadline = None if patience is None else monotonic() + patience
        # A reading that is under way may have begun before the last change.
        for _ in range(2):
            with self._lock:
                if self._steps_version == version:
                    if self._failure is not None:
                        raise self._failure
                    return self._steps, True
                if self._reading is None:
                    self._reading, self._progress = threading.Event(), None
                    # A daemon: the end of the process doesn't wait for it.
                    threading.Thread(target=self._read, args=(version, self._reading), daemon=True).start()
                reading = self._reading
            is_read = reading.wait(None if deadline is None else max(0.0, deadline - monotonic()))
        with self._lock:
            if self._failure is not None and not self._steps:
                raise self._failure
            return self._steps, is_read

    def problems(self) -> list[str]:
        """Return sentences about what can't be read."""
        with self._lock:
            known = list(self._problems.items())
        said = [f"{counted(count, what)} skipped in {path}" for (what, path), count in known[:MAX_PROBLEMS]]
        return said + ([f"and {len(known) - MAX_PROBLEMS} more files"] if len(known) > MAX_PROBLEMS else [])

    def attempts(self) -> Sequence[str]:
        """Return sentences about the attempts of resumed runs of which trajectories are left out."""
        return self._attempts

    def run_folders(self) -> Mapping[str, str]:
        """Return the folder of each run that has one of its own, if several runs have the same steps."""
        return self._run_folders

    def waits_for(self) -> str | None:
        """Return a sentence that names the missing folders while there is nothing to read; else None."""
        missing = list(map(_missing, self.folders))
        if not all(missing):
            return None
        return f"{'; '.join(missing)}. This page fills as soon as a trajectory has ended."

    def _look(self) -> str:
        try:
            return self.run.version()
        except NoTracesError:
            return "empty"
        except OSError as error:
            # Answers to requests for data report it.
            return f"unreadable {error.errno}"

    def _read(self, version: str, done: threading.Event) -> None:
        steps: list[StepSummary] | None = None
        failure: Exception | None = None
        try:
            steps = self.run.steps()
            self._run_folders = self.run.folders_of_runs()
            self._attempts = [each.note for each in self.run.overtaken()]
        except Exception as error:
            failure = error
        with self._lock:
            if steps is not None or isinstance(failure, NoTracesError):
                self._steps = steps or []
            self._steps_version, self._failure = version, failure
            self._reading = self._progress = None
        done.set()

    def _note(self, problem: ReadProblem) -> None:
        with self._lock:
            self._problems[problem.what, problem.path] += 1

    def _progress_is(self, done: int, total: int, what: str) -> None:
        # The page of the run waits for no others.
        if what == "file":
            self._progress = Progress(done, total)


def _missing(folder: Path) -> str:
    """Return why a folder has no traces; empty if it has."""
    try:
        find_trace_files(folder)
    except NoTracesError as error:
        return str(error)
    except OSError as error:
        return f"the folder {folder} can't be read: {error.strerror or error}"
    return ""


class _Remembered:
    """Calls a function at most once in a time, whatever the number of askers."""

    def __init__(self, function: Callable[[], Any], seconds: float) -> None:
        self._function = function
        self._seconds = seconds
        self._lock = threading.Lock()
        self._asked = -seconds
        self._answer: Any = None

    def forget(self) -> None:
        """Call the function when the next one asks."""
        with self._lock:
            self._asked = -self._seconds

    def __call__(self) -> Any:
        with self._lock:
            if monotonic() - self._asked >= self._seconds:
                self._answer = self._function()
                self._asked = monotonic()
            return self._answer
