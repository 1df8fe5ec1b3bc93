"""`python -m benchmarks.mlflow_server`: what one `mlflow server` on PostgreSQL takes, by its number of workers.

Several trainers send a burst of trajectories each at once; all spans are counted in PostgreSQL at the end. The last row
is the same burst written into that PostgreSQL without a server.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from benchmarks.mlflow import ROOT, SECONDS_TO_STORE, Agent, cpu_of_server, create, our_way, payload, trace

OPS = 9  # and the root
CHARACTERS = 800
WARM_UP = 2  # trajectories of each trainer, so that its start isn't measured


def send(uri: str, project: str, trajectories: int) -> dict[str, Any]:
    """Trace one trainer's burst; return how long it took the caller, and what was lost."""
    import otel_rollout

    trajectory, op, flush = our_way(uri, project)
    half = payload(CHARACTERS)
    asyncio.run(trace(trajectory, op, Agent(half), half, 0, WARM_UP, OPS))
    flush()
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    asyncio.run(trace(trajectory, op, Agent(half), half, WARM_UP, trajectories, OPS))
    seconds = time.perf_counter() - start
    is_flushed = flush()
    found = otel_rollout.stats().exporters["mlflow"]
    otel_rollout.shutdown(timeout=60)
    return {"caller": seconds, "flushed": is_flushed, "lost": sum(found.lost.values())}


def burst(uri: str, trainers: int, trajectories: int, used_cpu: Callable[[], float], count: Callable[[], int]) -> str:
    """Have the trainers send at once; return a row of the table."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.mlflow_server", "--send", uri]
    processes = [
        subprocess.Popen(
            [*command, f"burst-{time.monotonic_ns()}", str(trajectories)],
            cwd=ROOT,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(trainers)
    ]
    for process in processes:
        while process.stdout and process.stdout.readline() != "ready\n":
            if process.poll() is not None:
                raise RuntimeError("a trainer has ended before its burst")
    before, cpu = count(), used_cpu()
    start = time.perf_counter()
    for process in processes:
        if process.stdin:
            process.stdin.write("go\n")
            process.stdin.flush()
    while (stored := count() - before) < trainers * trajectories * (OPS + 1):
        if time.perf_counter() - start > SECONDS_TO_STORE:
            break
        time.sleep(0.1)
    seconds = time.perf_counter() - start
    answers = [
        json.loads(process.communicate(timeout=2 * SECONDS_TO_STORE)[0].splitlines()[-1]) for process in processes
    ]
    expected = trainers * trajectories * (OPS + 1)
    lost = sum(answer["lost"] for answer in answers)
    per_span = 1000 * (used_cpu() - cpu) / expected
    return f"{stored:,} of {expected:,} | {lost} | {seconds:.1f} s | {stored / seconds:,.0f} | {per_span:.2f} ms |"


def run(workers: list[int], trainers: int, trajectories: int) -> None:
    """Measure each number of workers, and the database alone."""
    from scripts.environments import ensure
    from tests.servers.databases import Postgresql
    from tests.servers.mlflow_server import Mlflow

    print("| `mlflow server` | spans stored | lost | until stored | spans/s | CPU of the server per span |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with Postgresql() as database:
        name = database.new_database()
        create(database.uri(name))

        def count() -> int:
            return int(database.execute("SELECT count(*) FROM spans", name))

        for number in workers:
            with serving(Mlflow(ensure("mlflow"), store=database.uri(name), workers=number)) as server:
                at = server.process.folder.resolve()
                row = burst(server.address, trainers, trajectories, lambda at=at: cpu_of_server(at), count)
            print(f"| {number} workers | {row}", flush=True)
        row = burst(database.uri(name), trainers, trajectories, lambda: 0.0, count)
        print(f"| none: straight into PostgreSQL | {row}", flush=True)


@contextmanager
def serving(server: Any) -> Any:
    """Run a server whose workers have all answered."""
    with server:
        time.sleep(5)  # its other workers still import mlflow
        yield server


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mlflow_server", description=__doc__)
    parser.add_argument("--send", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4], help="numbers of server workers")
    parser.add_argument("--trainers", type=int, default=8, help="processes that trace (default: 8)")
    parser.add_argument(
        "--trajectories", type=int, default=250, help="trajectories of each (default: 250, of 10 spans)"
    )
    arguments = parser.parse_args()
    if arguments.send:
        uri, project, trajectories = arguments.send
        print(json.dumps(send(uri, project, int(trajectories))))
        return
    run(arguments.workers, arguments.trainers, arguments.trajectories)


if __name__ == "__main__":
    main()
