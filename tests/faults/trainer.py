"""The test's side of programs/trainer.py: a training process to give orders to, and the account of its spans."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["PROGRAM", "Trainer", "account", "spooled"]

PROGRAM = Path(__file__).parent / "programs" / "trainer.py"
SECONDS = 120.0
"""A training process that takes longer for an answer, or for its end, hangs: it is killed, and the test fails."""


class Trainer:
    """One training process.

    Args:
        folder: Where its files are.
        variables: Its environment, beside this process's.
        settings: Arguments of `init`.
        launcher: Another program of the folder, that runs this one.
    """

    def __init__(
        self, folder: Path, variables: Mapping[str, str], settings: Mapping[str, Any], *, launcher: str = ""
    ) -> None:
        folder.mkdir(parents=True)
        self._sent = folder / "sent"
        self._report = folder / "report.json"
        self._errors = (folder / "stderr").open("w+")
        # Nothing leaves on its own within a test: what is queued stays so until a flush, a full batch or the end.
        settings = {"schedule_delay_ms": 600_000, **settings}
        own = {"SENT": str(self._sent), "REPORT": str(self._report), "SETTINGS": json.dumps(settings)}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        self.process = subprocess.Popen(
            [sys.executable, *([str(PROGRAM.with_name(launcher))] if launcher else []), str(PROGRAM)],
            env={**inherited, "PROJECT": "faults", **own, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=folder,
        )

    @contextmanager
    def _within_deadline(self) -> Iterator[None]:
        watchdog = threading.Timer(SECONDS, self.process.kill)
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()
            watchdog.join()

    def ask(self, what: str, **given: Any) -> Any:
        """Give an order and return the answer to it."""
        self.tell(what, **given)
        return self.answer()

    def tell(self, what: str, **given: Any) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **given}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to the oldest order that has none yet."""
        assert self.process.stdout is not None
        with self._within_deadline():
            line = self.process.stdout.readline()
        assert line, f"the trainer ended with {self.process.wait()}: {self.errors}"
        return json.loads(line)

    def train(self, trajectories: int = 8, *, size: int = 200, bads: int = 0, concurrency: int = 8) -> dict[str, Any]:
        """Run some rollouts and return their results, how long they took and the memory after them.

        Args:
            trajectories: How many; each has three spans.
            size: Bytes of the answer of the model, random ones.
            bads: How many of the trajectories have a fourth span, called `bad`.
            concurrency: How many run at a time.
        """
        return self.ask("train", trajectories=trajectories, size=size, bads=bads, concurrency=concurrency)

    def flush(self, seconds: float = 30.0) -> bool:
        """Flush, and return what it said."""
        return self.ask("flush", seconds=seconds)

    def stats(self, exporter: str | None = None) -> dict[str, Any]:
        """Return the counts so far, or one exporter's."""
        found = self.ask("stats")
        return found["exporters"][exporter] if exporter else found

    def await_counts(self, exporter: str, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until one exporter's counts are so, and return them."""
        deadline = time.monotonic() + SECONDS
        while not condition(counts := self.stats(exporter)):
            assert time.monotonic() < deadline, counts
            time.sleep(0.05)
        return counts

    def await_trouble(self, exporter: str) -> str:
        """Wait until an exporter has met trouble, and return what the backend said."""
        self.flush(0.0)
        return str(self.await_counts(exporter, lambda counts: bool(counts["last_error"]))["last_error"])

    def finish(self) -> int:
        """Let the program come to its end, and return its exit status.

        A process that writes for it ends after its current request, which is waited for too.
        """
        writers = self._children()
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        status = self.wait()
        deadline = time.monotonic() + SECONDS
        # A process that has ended stays in the list until its parent asks for its status, but without a folder.
        while writers := [pid for pid in writers if Path(f"/proc/{pid}/cwd").exists()]:
            assert time.monotonic() < deadline, f"processes {writers} of the trainer still run"
            time.sleep(0.02)
        return status

    def _children(self) -> list[str]:
        """Return the ids of the processes that the program has started and that run."""
        children = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                _, parent, *_ = path.read_text().rpartition(")")[2].split()
                if int(parent) == self.process.pid:
                    children.append(path.parent.name)
        return children

    def wait(self) -> int:
        """Wait for the program's end and return its exit status."""
        with self._within_deadline():
            return self.process.wait()

    @property
    def sent(self) -> set[str]:
        """The ids of all spans that ended, as the program itself knows them."""
        ids = self._sent.read_bytes()
        return {ids[place : place + 8].hex() for place in range(0, len(ids), 8)}

    @property
    def report(self) -> dict[str, Any]:
        """The counts after the program's end."""
        return json.loads(self._report.read_text())

    @property
    def has_report(self) -> bool:
        """Whether the program came to its own end."""
        return self._report.exists()

    @property
    def errors(self) -> str:
        """What the program wrote to standard error."""
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def close(self) -> None:
        """End the program, whatever it does."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            with suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()


def account(
    sent: set[str],
    stored: Mapping[str, int],
    counts: Mapping[str, Any],
    on_disk: Sequence[str] = (),
    *,
    unanswered: int = 0,
) -> dict[str, int]:
    """Check that what a process sent is what a backend stored and what was counted as lost; return the losses.

    Args:
        sent: The ids of the spans that ended.
        stored: How often the backend has each span.
        counts: One exporter's part of `stats()`.
        on_disk: The ids of the spans that wait in a spool.
        unanswered: How many spans may be stored at most that are counted as lost, because a part of their batch was
            not stored, or the answer did not come.
    """
    assert set(stored) | set(on_disk) <= sent
    assert counts["queued"] == 0
    assert counts["recorded"] == len(sent)
    assert counts["delivered"] <= len(stored) <= counts["delivered"] + unanswered
    assert counts["spooled"] == len(on_disk) == len(set(on_disk))
    assert not set(stored) & set(on_disk)
    lost = counts["lost"]
    assert len(sent) == counts["delivered"] + len(on_disk) + sum(lost.values())
    return lost


def spooled(folder: Path) -> list[str]:
    """Return the ids of the spans in a spool, torn frames left out."""
    from otel_rollout.folder import scan_frames
    from otel_rollout.otlp import decode_spans

    return [
        f"{span.context.span_id:016x}"
        for path in sorted(folder.rglob("*.otlp.zst"))
        for frame in scan_frames(path)
        if frame.request is not None
        for span in decode_spans(frame.request)
    ]
