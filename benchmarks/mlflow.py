"""`python -m benchmarks.mlflow`: tracing to MLflow, verl's way and ours, side by side in one run.

verl's way is its own wrapper's: mlflow's live tracing with asynchronous logging, five `set_trace_tag` per trajectory,
and for each op `start_span`, `set_inputs`, `set_outputs`. Both write to the same kinds of destination, in processes of
their own that take turns: a fresh sqlite file, a real `mlflow server`, PostgreSQL and MariaDB with their files in a
temporary folder. What was stored is counted in the database.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENT = "exp-1"
OPS = 4  # and the root
SECONDS_TO_STORE = 240
SECONDS_WITHOUT_NEWS = 15


class Load(NamedTuple):
    """Payload of one op, half of it given and half returned, and how many trajectories are traced."""

    title: str
    characters: int
    trajectories: int
    ops: int = OPS


KINDS = ("sqlite", "server", "postgresql", "mariadb")
LOADS = {
    "1": Load("1 KB", 1_000, 60),
    "50": Load("50 KB", 50_000, 16),
    "500": Load("500 KB", 500_000, 10),
    "burst": Load("burst", 800, 600, 9),
}


def payload(characters: int) -> dict[str, Any]:
    """Return a value of about that many characters of JSON: half a text, half token ids."""
    generator = random.Random(characters)
    ids = [generator.randrange(152_000) for _ in range(characters // 4 // 7)]
    return {"text": "lorem ipsum " * (characters // 4 // 12), "ids": ids}


# --- one process that traces


class Agent:
    """What is traced: an op that gives a value back at once."""

    def __init__(self, result: Any) -> None:
        self.result = result

    async def generate(self, prompt: Any, sampling: dict[str, Any]) -> Any:
        """Return the result."""
        return self.result


def verl_way(uri: str, project: str) -> tuple[Callable[..., Any], Callable[[], Any], Callable[[], Any]]:
    """Return verl's trajectory, its op, and what waits for everything to be sent."""
    import mlflow

    mlflow.config.enable_async_logging()
    mlflow.set_tracking_uri(uri)
    mlflow.set_experiment(project)

    @contextmanager
    def trajectory(**tags: Any) -> Iterator[None]:
        with mlflow.start_span(name="trajectory") as span:
            for key, value in tags.items():
                mlflow.set_trace_tag(span.trace_id, key, str(value))
            yield

    def traced(function: Any) -> Any:
        async def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
            bound = inspect.signature(function).bind(self, *arguments, **named)
            bound.apply_defaults()
            inputs = dict(bound.arguments)
            del inputs["self"]
            with mlflow.start_span(name=function.__qualname__) as span:
                span.set_inputs(inputs)
                result = await function(self, *arguments, **named)
                span.set_outputs(result)
            return result

        return wrapper

    return trajectory, traced(Agent.generate), mlflow.flush_trace_async_logging  # type: ignore[return-value]


def our_way(uri: str, project: str) -> tuple[Callable[..., Any], Callable[[], Any], Callable[[], Any]]:
    """Return our trajectory, our op, and what waits for everything to be sent."""
    import otel_rollout

    os.environ["MLFLOW_TRACKING_URI"] = uri
    otel_rollout.init(project, EXPERIMENT, backend="mlflow")

    def trajectory(experiment_name: str, **tags: Any) -> Any:
        return otel_rollout.rollout_trace_attr(**tags)

    op = otel_rollout.rollout_trace_op(Agent.generate)
    return trajectory, op, lambda: otel_rollout.flush(timeout=SECONDS_TO_STORE)


async def trace(trajectory: Any, op: Any, agent: Agent, value: Any, first: int, count: int, ops: int) -> None:
    """Trace `count` trajectories, one after the other."""
    for number in range(first, first + count):
        tags = {"sample_index": number, "step": 1, "rollout_n": 0, "validate": False, "experiment_name": EXPERIMENT}
        with trajectory(**tags):
            for _ in range(ops):
                await op(agent, value, {"temperature": 1.0})
        await asyncio.sleep(0)


def stored_spans(engine: Any, project: str) -> int:
    """Return how many spans of the project the database holds."""
    import sqlalchemy

    query = "select count(*) from spans join experiments using (experiment_id) where experiments.name = :name"
    try:
        with engine.connect() as connection:
            return int(connection.execute(sqlalchemy.text(query), {"name": project}).scalar_one())
    except sqlalchemy.exc.DBAPIError:
        return 0


def wait_until_stored(database: str, project: str, expected: int) -> int:
    """Return how many spans are stored, as soon as all are, or nothing more comes."""
    import sqlalchemy

    engine = sqlalchemy.create_engine(database)
    best, last_news = -1, time.monotonic()
    while True:
        count = stored_spans(engine, project)
        if count >= expected:
            return count
        if count > best:
            best, last_news = count, time.monotonic()
        elif time.monotonic() - last_news > SECONDS_WITHOUT_NEWS:
            return count
        time.sleep(0.02)


def measure(way: str, uri: str, database: str, project: str, load: Load) -> dict[str, float]:
    """Trace one load and return what it took per span."""
    trajectory, op, flush = (verl_way if way == "verl" else our_way)(uri, project)
    half = payload(load.characters)
    agent = Agent(half)
    asyncio.run(trace(trajectory, op, agent, half, 0, 3, load.ops))
    flush()
    per_trajectory = load.ops + 1
    warm = wait_until_stored(database, project, 3 * per_trajectory)
    expected = load.trajectories * per_trajectory

    cpu, start = time.process_time(), time.perf_counter()
    asyncio.run(trace(trajectory, op, agent, half, 3, load.trajectories, load.ops))
    hot = time.perf_counter() - start
    flush()
    stored = wait_until_stored(database, project, warm + expected) - warm
    total = time.perf_counter() - start
    if stored < expected:
        total -= SECONDS_WITHOUT_NEWS
    milliseconds = 1000 / expected
    return {
        "caller": hot * milliseconds,
        "stored": total * milliseconds,
        "cpu": (time.process_time() - cpu) * milliseconds,
        "spans": stored,
        "expected": expected,
        "seconds": total,
    }


# --- the run


def run_process(way: str, uri: str, database: str, load: str) -> dict[str, float]:
    """Measure in a process of its own."""
    project = f"{way}-{load}-{time.monotonic_ns()}"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.mlflow", "--measure", way, uri, database, project, load],
        cwd=ROOT,
        env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "PYTHONWARNINGS": "ignore"},
        capture_output=True,
        text=True,
        timeout=SECONDS_TO_STORE * 2,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return dict(json.loads(done.stdout.splitlines()[-1]))


def cpu_of_server(folder: Path) -> float:
    """Return the CPU seconds of the processes that work in a folder."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").readlink() == folder:
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(loads: list[str], rounds: int, kinds: list[str]) -> dict[tuple[str, str, str], list[dict[str, float]]]:
    """Measure everything, both ways in turn."""
    samples: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        uris, databases, at = started(kinds, stack)
        empty = Path(folder) / "empty.db"
        if "sqlite" in kinds:
            create(f"sqlite:///{empty}")
        for number in range(rounds):
            for kind in kinds:
                for load in loads if number == 0 else [load for load in loads if load != "burst"]:
                    # Who goes first changes: the second finds warm caches.
                    for way in ("verl", "ours") if number % 2 == 0 else ("ours", "verl"):
                        if kind == "sqlite":
                            file = shutil.copy(empty, Path(folder) / f"{way}-{load}-{number}.db")
                            uris[kind] = databases[kind] = f"sqlite:///{file}"
                        before = cpu_of_server(at[kind]) if kind in at else 0.0
                        sample = run_process(way, uris[kind], databases[kind], load)
                        used = cpu_of_server(at[kind]) - before if kind in at else 0.0
                        sample["server_cpu"] = used * 1000 / sample["expected"]
                        samples.setdefault((kind, load, way), []).append(sample)
                        print(f"{kind:11}{load:>6} {way:5}", json.dumps(sample), file=sys.stderr, flush=True)
    return samples


def started(kinds: list[str], stack: ExitStack) -> tuple[dict[str, str], dict[str, str], dict[str, Path]]:
    """Start the servers; return their tracking URIs, their databases, and the folders that they work in."""
    from scripts.environments import ensure
    from tests.servers.databases import Mariadb, Postgresql
    from tests.servers.mlflow_server import Mlflow

    uris, databases, folders = {}, {}, {}
    if "server" in kinds:
        server = stack.enter_context(Mlflow(ensure("mlflow")))
        uris["server"], databases["server"] = server.address, f"sqlite:///{server.database}"
        folders["server"] = server.process.folder.resolve()
    for kind, make in (("postgresql", Postgresql), ("mariadb", Mariadb)):
        if kind in kinds:
            running = stack.enter_context(make())
            uris[kind] = databases[kind] = running.uri(running.new_database())
            create(uris[kind])
    return uris, databases, folders


def create(uri: str) -> None:
    """Make the tables in a process of its own: mlflow's live tracing is not to be charged for that."""
    code = "import sys; from otel_rollout_mlflow import MlflowSpanExporter as E; E(tracking_uri=sys.argv[1])._opened()"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{code}.ensure_experiment('Default')", uri], check=True, cwd=ROOT
    )


def as_text(samples: dict[tuple[str, str, str], list[dict[str, float]]]) -> str:
    """Return the tables: verl's way in milliseconds per span, ours as how many times less."""

    def median(kind: str, load: str, way: str, figure: str) -> float:
        return statistics.median(sample[figure] for sample in samples[kind, load, way])

    kinds = list(dict.fromkeys(key[0] for key in samples))
    loads = list(dict.fromkeys(key[1] for key in samples))
    lines = [
        "| | caller | until stored | CPU of the worker | CPU of worker and server |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for kind in kinds:
        for load in (load for load in loads if load != "burst"):
            cells = []
            for figures in (["caller"], ["stored"], ["cpu"], ["cpu", "server_cpu"]):
                verl, ours = (sum(median(kind, load, way, figure) for figure in figures) for way in ("verl", "ours"))
                cells.append(f"{verl / ours:.1f}x")
            lines.append(f"| {kind}, {LOADS[load].title} | {' | '.join(cells)} |")
    if "burst" in loads:
        lines += ["", "| burst of 6,000 spans | verl's way | otel-rollout |", "| --- | ---: | ---: |"]
        for kind in kinds:
            spans = [
                " / ".join(f"{sample['spans']:,.0f}" for sample in samples[kind, "burst", way])
                for way in ("verl", "ours")
            ]
            lines.append(f"| {kind}: spans stored | {spans[0]} | {spans[1]} |")
            seconds = [f"{median(kind, 'burst', way, 'seconds'):.1f} s" for way in ("verl", "ours")]
            lines.append(f"| {kind}: until stored | {seconds[0]} | {seconds[1]} |")
    versions = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import mlflow; print(mlflow.__version__)"],
        capture_output=True,
        text=True,
        check=True,
    )
    rounds = max(len(found) for found in samples.values())
    lines += ["", f"Python {platform.python_version()}, mlflow {versions.stdout.strip()}, medians of {rounds} rounds."]
    return "\n".join(lines)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mlflow", description=__doc__)
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3, help="how many rounds (default: 3)")
    parser.add_argument("--loads", nargs="+", choices=list(LOADS), default=list(LOADS), help="which loads")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    if arguments.measure:
        way, uri, database, project, load = arguments.measure
        print(json.dumps(measure(way, uri, database, project, LOADS[load])))
        return
    print(as_text(run(arguments.loads, arguments.rounds, arguments.kinds)))


if __name__ == "__main__":
    main()
