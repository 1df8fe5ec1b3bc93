"""Counts of Python calls, and of files entered, on the ways that every span or page takes.

    python -m tests.call_counts             # what is counted now, beside the table
    python -m tests.call_counts --record    # write the column of this Python into the table

A count is of functions of ours alone, after a first time: it is the same on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

TABLE: Final = Path(__file__).with_suffix(".txt")
VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
OPS: Final = 10
KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")


class Count(NamedTuple):
    """Python calls, and the files that they enter."""

    calls: int
    files: int


class Counter:
    """Counts calls of our functions in the threads that it is installed in.

    Args:
        root: Only calls below a function of this folder count, itself included; None counts all.
    """

    def __init__(self, root: str | None = None) -> None:
        from tests.installed import CORE, EXPORTERS

        self._ours = (f"{CORE}{os.sep}", *(f"{folder}{os.sep}" for folder in EXPORTERS))
        self._root = root and f"{CORE / root}{os.sep}"
        self._depths = threading.local()
        self.calls = 0
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Count an event of `sys.setprofile`."""
        if event not in ("call", "return"):
            return
        file = frame.f_code.co_filename
        if self._root is not None:
            depth = getattr(self._depths, "value", 0)
            if event == "return":
                self._depths.value = depth - 1 if depth else 0
                return
            if not depth and not file.startswith(self._root):
                return
            self._depths.value = depth + 1
        if event == "call" and file.startswith(self._ours):
            self.calls += 1
            self.files.add(file)

    def of(self, work: Callable[[], object]) -> Count:
        """Return the count of what a function does in this thread, and in the threads that it starts."""
        self.calls, self.files = 0, set()
        threading.setprofile(self)
        sys.setprofile(self)
        try:
            work()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
        return Count(self.calls, len(self.files))


def difference(few: Count, many: Count, times: int) -> Count:
    """Return what one more of something costs, and all files that it enters."""
    return Count(round((many.calls - few.calls) / times), many.files)


def on_the_callers_thread() -> Count:
    """Count an op with 2 KB in and out."""
    with tracing(Kept()):
        import otel_rollout

        op = otel_rollout.rollout_trace_op(kind="LLM")(answer)
        with otel_rollout.rollout_trace_attr(step=1, sample_index=1, rollout_n=0):
            for _ in range(3):
                op(MESSAGES)
            return Counter().of(lambda: op(MESSAGES))


def of_finishing() -> Count:
    """Count the finishing of its span."""
    counter = Counter("finish")

    def finish(ops: int) -> Count:
        def work() -> None:
            with tracing(Kept()):
                trace(ops)

        return counter.of(work)

    finish(1)
    return difference(finish(1), finish(1 + OPS), OPS)


def into_the_folder() -> Count:
    """Count the way of a finished span into the trace folder."""
    from otel_rollout_file import FileSpanExporter

    with tempfile.TemporaryDirectory() as folder:
        exporter = FileSpanExporter(folder=folder)
        counter = Counter()
        exporter.export(spans(1))
        few, many = (spans(ops) for ops in (1, 1 + OPS))
        count = difference(counter.of(lambda: exporter.export(few)), counter.of(lambda: exporter.export(many)), OPS)
        exporter.shutdown()
    return count


def into_mlflows_rows() -> Count:
    """Count the way of a finished span into the rows of MLflow's SQLite store."""
    from otel_rollout_mlflow.sql_store import SqlStore
    from otel_rollout_mlflow.tracking_uri import parse_tracking_uri

    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(parse_tracking_uri(f"sqlite:///{folder}/mlflow.db"))
        experiment = store.ensure_experiment("counts")
        counter = Counter()
        store.write(experiment, spans(1))
        few, many = (spans(ops) for ops in (1, 1 + OPS))
        count = difference(
            counter.of(lambda: store.write(experiment, few)), counter.of(lambda: store.write(experiment, many)), OPS
        )
        store.close()
    return count


def of_ls() -> Count:
    """Count `otel-rollout ls --step` of a step of four trajectories, its tables made before; imports count too."""
    with run() as folder:
        command = ["ls", "--step", "1", str(folder)]
        subprocess.run([sys.executable, "-m", "otel_rollout.cli", *command], check=True, stdout=subprocess.DEVNULL)

        def work() -> None:
            from otel_rollout.cli.main import main

            assert main(command) == 0

        return Counter().of(work)


def of_a_page() -> Count:
    """Count the answer to a trajectory's page, in a viewer that has just started."""
    from starlette.testclient import TestClient

    from otel_rollout.look.view import RunState, make_application

    def ask(counter: Counter | None) -> Count:
        state = RunState([folder])
        client = TestClient(make_application(state, "token", ["testserver"]))

        def work() -> None:
            answer = client.get(f"/api/trajectory/{trace_id}", headers={"Authorization": "Bearer token"})
            assert answer.status_code == 200, answer.text

        if counter is None:
            work()
            return Count(0, 0)
        return counter.of(work)

    with run() as folder:
        from otel_rollout import read_trajectories

        trace_id = next(iter(read_trajectories(folder))).trace_id
        ask(None)
        return ask(Counter())


ROWS: Final[dict[str, Callable[[], Count]]] = {
    "op of 2 KB, caller's thread": on_the_callers_thread,
    "finishing of its span": of_finishing,
    "span into the folder": into_the_folder,
    "span into MLflow's rows": into_mlflows_rows,
    "ls --step": of_ls,
    "page of a trajectory": of_a_page,
}
"""What is counted, in the order of the data."""

MESSAGES: Final = [
    {"role": "system", "content": "You are a careful assistant who looks things up. " * 20},
    {"role": "user", "content": "Which of the two rivers is longer, and by how much? " * 20},
]


def answer(messages: list[dict[str, str]]) -> dict[str, Any]:
    """Return an answer of a model, without a model."""
    return {"role": "assistant", "content": f"The first one, by {len(messages)} km.", "usage": USAGE}


USAGE: Final = {"prompt_tokens": 480, "completion_tokens": 12}


class Kept:
    """Makes an exporter that keeps spans, and takes records as that of a folder; the class is imported late."""

    def __new__(cls) -> Any:
        """Return an exporter."""
        from otel_rollout.testing import InMemorySpanExporter

        return type("Kept", (InMemorySpanExporter,), {"takes_records": True})()


@contextmanager
def tracing(backend: Any) -> Iterator[None]:
    """Trace into a backend, and deliver everything before the end."""
    import otel_rollout

    otel_rollout.init("project", "experiment", backend=backend)
    try:
        yield
        assert otel_rollout.flush(60)
    finally:
        otel_rollout.shutdown(20)
        otel_rollout.RolloutTraceConfig.reset()


def trace(ops: int, step: int = 1, sample: int = 0, rollout: int = 0) -> None:
    """Trace a trajectory of some ops."""
    import otel_rollout

    op = otel_rollout.rollout_trace_op(kind="LLM")(answer)
    with otel_rollout.rollout_trace_attr(step=step, sample_index=sample, rollout_n=rollout):
        for _ in range(ops):
            op(MESSAGES)
        otel_rollout.annotate(reward=1.0)


def spans(ops: int) -> list[Any]:
    """Return the finished spans of a trajectory."""
    kept = Kept()
    with tracing(kept):
        trace(ops)
    return list(kept.spans)


@contextmanager
def run() -> Iterator[Path]:
    """Make a trace folder of two steps of four trajectories."""
    from otel_rollout_file import FileSpanExporter

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "traces")
        os.environ["XDG_CACHE_HOME"] = place
        with tracing(FileSpanExporter(folder=folder)):
            for number in range(8):
                trace(3, 1 + number // 4, number // 2 % 2, number % 2)
        yield folder


def counted(row: str) -> Count:
    """Count a row in a fresh interpreter without variables of the environment's."""
    environment = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    program = [sys.executable, "-m", "tests.call_counts", "--row", row]
    done = subprocess.run(
        program,
        env={**environment, "PYTHONHASHSEED": "0", "MLFLOW_DISABLE_TELEMETRY": "true"},
        cwd=TABLE.parent.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Count(*map(int, done.stdout.splitlines()[-1].split()))


def recorded() -> dict[str, dict[str, Count]]:
    """Return the table: the counts of each row, by the Python's version."""
    table: dict[str, dict[str, Count]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            version, calls, files, row = line.split(maxsplit=3)
            table.setdefault(row, {})[version] = Count(int(calls), int(files))
    return table


def record(counts: dict[str, Count]) -> None:
    """Write the column of this Python."""
    head = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    table = recorded()
    lines = []
    for row in ROWS:
        versions = {**table.get(row, {}), VERSION: counts[row]}
        lines += [f"{version:<8}{count.calls:>6}{count.files:>7}  {row}" for version, count in sorted(versions.items())]
    TABLE.write_text("\n".join([*head, *lines, ""]), encoding="utf-8")


def main() -> None:
    """Count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write them into the table")
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(*ROWS[options.row]())
        return
    table, counts = recorded(), {}
    for row in ROWS:
        counts[row] = counted(row)
        print(f"{row:<30} {counts[row]}, recorded {table.get(row, {}).get(VERSION)}", flush=True)
    if options.record:
        record(counts)


if __name__ == "__main__":
    main()
