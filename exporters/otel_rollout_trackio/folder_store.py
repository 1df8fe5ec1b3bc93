"""trackio's folder, written to by a process of its own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout.export.worker_process import WorkerProcess
from otel_rollout.guard.log_once import warn_once
from otel_rollout_trackio.store import Store, StoreError
from otel_rollout_trackio.translate import Conversation

__all__ = ["DIR", "FolderStore", "default_folder"]

WORKER: Final = "otel_rollout_trackio.worker"
DIR: Final = "TRACKIO_DIR"


def default_folder() -> Path:
    """Return the folder that trackio takes if it is given none."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or str(Path(cache) / "huggingface")
    return Path(os.environ.get(DIR) or Path(os.path.expandvars(home)).expanduser() / "trackio")


class FolderStore(Store):
    """trackio's folder, written to by a child process: trackio's import is not this process's.

    Args:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        # Nothing of trackio's asks the Hub: without the variable, huggingface_hub may.
        self._environment = {DIR: str(folder), "HF_HUB_OFFLINE": "1"}
        self._worker: WorkerProcess | None = None
        self._is_here = False

    def write(self, conversations: Sequence[Conversation]) -> None:
        self._call({"method": "write", "conversations": [conversation._asdict() for conversation in conversations]})

    def read(self, project: str, run_id: str, log_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call(
            {"method": "read", "project": project, "run_id": run_id, "search": log_id}
        )
        return found

    def close(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    def _call(self, request: dict[str, Any]) -> Any:
        body = orjson.dumps(request)
        worker = self._started()
        try:
            answer = _answer_here(body, self._environment) if worker is None else worker.call(body)
        except (OSError, EOFError) as error:
            self.close()
            what = "does not answer" if isinstance(error, TimeoutError) else "has ended"
            reason = f"the process that writes to trackio's folder {what} ({type(error).__name__})"
            raise StoreError(Outcome(Verdict.RETRY, reason)) from error
        result = orjson.loads(answer)
        if "verdict" in result:
            raise StoreError(Outcome(Verdict(result["verdict"]), result["reason"]))
        return result["found"]

    def _started(self) -> WorkerProcess | None:
        """Return the process, and start it if this process has none; None if none can be started."""
        if self._worker is not None and not self._worker.is_ours:
            # Forked: the process is the parent's.
            self.close()
        if self._worker is None and not self._is_here:
            try:
                self._worker = WorkerProcess(WORKER, self._environment)
            except (OSError, EOFError, ValueError, RuntimeError) as error:
                # RuntimeError: since Python 3.12 no process can be started once the interpreter is exiting.
                warn_once(
                    "trackio process",
                    "no process could be started that writes to trackio's folder (%s): it is written to in this one",
                    error,
                )
                self._is_here = True
        return self._worker


def _answer_here(body: bytes, environment: dict[str, str]) -> bytes:
    # trackio reads the folder when it is imported; HF_HUB_OFFLINE would change the program's own downloads.
    os.environ[DIR] = environment[DIR]
    from otel_rollout_trackio.worker import answer

    return answer(body)
