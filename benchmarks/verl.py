"""`python -m benchmarks.verl`: what tracing costs a rollout of verl: off, verl's MLflow backend, ours.

verl's own worker, tool agent loop, client, balancer and reward worker run in one process, over fake engines: 64
samples, 4 rollouts each, 3 tool turns and an answer, all 256 trajectories at once. An engine takes `--latency`
seconds for a turn; with 0 nothing hides what tracing costs. Beside them stand spans of OpenTelemetry's SDK around
the same calls, without one attribute and exported nowhere: what any tracer pays before it records anything. Each
measurement is a process of its own; the modes take turns. Each figure is the median over the rounds, of the seconds
and of the ratio to tracing off in the same round: a shared machine is faster in one minute than in the next. The
CPU of all processes includes that of the one that writes to SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "integrations" / "verl" / "programs"
TICK = 0.005

MODES = {
    "off": "tracing off",
    "bare": "OpenTelemetry spans, empty",
    "verl-mlflow": "verl's mlflow backend, sqlite",
    "ours-mlflow": "ours, mlflow on sqlite",
    "ours-file": "ours, a trace folder",
    "ours-otlp": "ours, OTLP to a sink",
}
FIGURES = {
    "rollout_wall": "rollout, wall",
    "total_wall": "with flush, wall",
    "rollout_cpu": "rollout, CPU of its process",
    "total_cpu": "with flush, CPU of all",
    "stall": "longest stall of the event loop",
}
ENTRY_POINTS = """
[verl.plugins]
otel_rollout = otel_rollout.hooks.verl.plugin

[opentelemetry_traces_exporter]
mlflow = otel_rollout_mlflow:MlflowSpanExporter
"""


# --- one measurement, in verl's environment


def measure(mode: str, samples: int, rollouts: int, latency: float, folder: Path) -> dict[str, float]:
    """Roll out one step and return the seconds that it took."""
    import harness

    harness.TOOL_CALLS["bench"] = [
        ("add", {"a": 1, "b": 2}),
        ("calculator", {"expression": "2*3"}),
        ("add", {"a": 3, "b": 4}),
    ]
    backend = {"off": "null", "bare": "null"}.get(mode, mode.rpartition("-")[2])
    config = harness.make_config(
        harness.make_model(folder / "model"),
        f"actor_rollout_ref.rollout.trace.backend={backend}",
        "actor_rollout_ref.rollout.response_length=2048",
    )
    return asyncio.run(_measure(harness, config, mode, samples, rollouts, latency))


async def _measure(
    harness: Any, config: Any, mode: str, samples: int, rollouts: int, latency: float
) -> dict[str, float]:
    if mode == "bare":
        _make_bare_spans()
    worker = harness.make_worker(config, delay=latency)
    # Makes the store's tables and whatever else is made once.
    await worker.generate_sequences(harness.make_batch(["bench warm-up"], 2, step=0))
    _flush(mode)
    batch = harness.make_batch([f"bench {number}" for number in range(samples)], rollouts, step=1)
    stalls: list[float] = []
    ticker = asyncio.create_task(_tick(stalls))
    wall, cpu, own_cpu = time.perf_counter(), _cpu_seconds(), time.process_time()
    output = await worker.generate_sequences(batch)
    rollout_wall, rollout_cpu = time.perf_counter() - wall, time.process_time() - own_cpu
    ticker.cancel()
    _flush(mode)
    return {
        "rollout_wall": rollout_wall,
        "rollout_cpu": rollout_cpu,
        "total_wall": time.perf_counter() - wall,
        "total_cpu": _cpu_seconds() - cpu,
        "stall": max(stalls, default=0.0),
        "digest": harness.digest(output),
    }


def _make_bare_spans() -> None:
    """Put an empty span around each call of verl's that is traced, the trajectory included."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from verl.experimental.agent_loop import agent_loop, tool_agent_loop, tool_parser
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker
    from verl.workers.rollout.llm_server import LLMServerClient

    class Nowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=2**20))
    tracer = provider.get_tracer("bare")

    def traced(function: Any) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            with tracer.start_as_current_span(function.__qualname__):
                return await function(*args, **kwargs)

        return call

    for owner, name in (
        (agent_loop.AgentLoopWorker, "_run_agent_loop"),
        (tool_agent_loop.ToolAgentLoop, "run"),
        (tool_agent_loop.ToolAgentLoop, "_call_tool"),
        (tool_parser.HermesToolParser, "extract_tool_calls"),
        (LLMServerClient, "generate"),
        (RewardLoopWorker, "compute_score"),
    ):
        setattr(owner, name, traced(getattr(owner, name)))


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it has started."""
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[1]) == os.getpid():
                ticks += int(fields[11]) + int(fields[12])
    return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")


async def _tick(stalls: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(TICK)
        stalls.append(time.perf_counter() - before - TICK)


def _flush(mode: str) -> None:
    if mode == "verl-mlflow":
        import mlflow

        mlflow.flush_trace_async_logging()
    elif mode.startswith("ours"):
        import otel_rollout

        if not otel_rollout.flush(300):
            raise RuntimeError(f"not everything was delivered: {otel_rollout.stats()}")


# --- the sink


class Sink(BaseHTTPRequestHandler):
    """Takes what comes and says that all is well."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *unused: object) -> None:
        pass


# --- the whole run


def main() -> int:
    """Run what the command line asks for; 1 where the tokens were not the same in all modes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verl", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each mode is run (default: %(default)s)")
    parser.add_argument("--samples", type=int, default=64, help="prompts (default: %(default)s)")
    parser.add_argument("--rollouts", type=int, default=4, help="rollouts of each prompt (default: %(default)s)")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds that an engine takes for a turn")
    parser.add_argument("--python", help="the Python of verl's environment (default: it is made if need be)")
    parser.add_argument("--measure", choices=MODES, help=argparse.SUPPRESS)
    parser.add_argument("--sink", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.sink:
        server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
        print(server.server_port, flush=True)
        server.serve_forever()
    if arguments.measure:
        with tempfile.TemporaryDirectory() as folder:
            figures = measure(arguments.measure, arguments.samples, arguments.rollouts, arguments.latency, Path(folder))
        print("FIGURES " + json.dumps(figures))
        return 0
    python = arguments.python or str(_verl_python())
    sink = subprocess.Popen([sys.executable, __file__, "--sink"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(sink.stdout.readline())  # type: ignore[union-attr]  # it is a pipe
        rounds = [
            {mode: _run(python, mode, port, arguments) for mode in MODES} for _ in range(max(1, arguments.rounds))
        ]
    finally:
        sink.kill()
        sink.wait()
    return _show(rounds)


def _verl_python() -> Path:
    sys.path.insert(0, str(ROOT / "scripts"))
    from environments import ensure

    return ensure("verl") / "bin" / "python"


def _run(python: str, mode: str, port: int, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        info = folder / "site" / "otel_rollout-0.1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: otel-rollout\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text(ENTRY_POINTS)
        path = [info.parent, ROOT, ROOT / "exporters", PROGRAMS]
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "MLFLOW_"))},
            "PYTHONPATH": os.pathsep.join(map(str, path)),
            "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
            "OTEL_ROLLOUT_VERL": "" if mode.startswith("ours") else "off",
            "OTEL_ROLLOUT_DIR": str(folder / "traces"),
            "VERL_TEST_FOLDER": name,
        }
        # Not as a script: its folder would come first on the path, and `import verl` would be this file.
        start = f"import runpy; runpy.run_path({__file__!r}, run_name='__main__')"
        if mode == "ours-otlp":
            # In verl's own run, MLflow would send its traces there.
            environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{port}"
        command = [python, "-c", start, "--measure", mode]
        command += ["--samples", str(arguments.samples), "--rollouts", str(arguments.rollouts)]
        command += ["--latency", str(arguments.latency)]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
    for line in done.stdout.splitlines():
        if line.startswith("FIGURES "):
            figures: dict[str, Any] = json.loads(line.removeprefix("FIGURES "))
            print(mode, {key: value for key, value in figures.items() if key != "digest"}, file=sys.stderr)
            return figures
    raise RuntimeError(f"{mode} was not measured:\n{(done.stdout + done.stderr)[-3000:]}")


def _show(rounds: list[dict[str, dict[str, Any]]]) -> int:
    print(f"{'':34}" + "".join(f"{title:>33}" for title in FIGURES.values()))
    for mode, title in MODES.items():
        cells = (
            f"{median(each[mode][figure] for each in rounds):8.2f} s, "
            f"{median(each[mode][figure] / max(each['off'][figure], 1e-9) for each in rounds):5.2f} x"
            for figure in FIGURES
        )
        print(f"{title:34}" + "".join(f"{cell:>33}" for cell in cells))
    digests = {each[mode]["digest"] for each in rounds for mode in MODES}
    print("tokens are the same in all modes" if len(digests) == 1 else f"TOKENS DIFFER: {digests}")
    return 0 if len(digests) == 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
