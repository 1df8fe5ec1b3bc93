"""`python -m benchmarks.weave`: tracing to W&B Weave, verl's way and ours, against the same sink in one run.

verl's way is its own wrapper's: `create_call` before the op, `finish_call` after it, both in the caller's thread. The
sink is a server in a process of its own that answers as Weave does and counts the calls that come.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "team/bench"
ANSWER_SECONDS = 180


class Load(NamedTuple):
    """What one op takes and gives, and how often it is called by each tracer."""

    title: str
    given: Any
    result: Any
    ours: int
    verl: int
    exported: int


def loads(scale: float) -> dict[str, Load]:
    """Return the loads; `scale` 1 is the full measurement."""
    generator = random.Random(7)
    ids = [generator.randrange(152_000) for _ in range(6250)]

    def times(count: int) -> int:
        return max(2, int(count * scale))

    small = [{"role": "user", "content": "What is 17 * 23? Use the tool and answer with the number alone."}]
    text = [{"role": "user", "content": "lorem ipsum dolor " * 2200}]
    return {
        "small": Load("0.3 KB", small, {"text": "391 " * 40}, times(2000), times(300), times(10_000)),
        "text": Load("50 KB text", text, {"text": "sit amet " * 1200}, times(400), times(100), times(1000)),
        "ids": Load("50 KB ids", ids[:5000], {"token_ids": ids[5000:]}, times(400), times(6), times(1000)),
    }


# --- the sink


class Sink(BaseHTTPRequestHandler):
    """Answers every request of either client at once."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    calls = 0

    def do_GET(self) -> None:
        self.answer({"min_required_weave_python_version": "0.0.1", "trace_server_version": "0.0.99"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path.endswith("/calls/complete"):
            Sink.calls += body.count(b'"started_at":')
            self.answer({})
        elif self.path == "/_count":
            self.answer({"calls": Sink.calls})
        elif self.path == "/graphql":
            model = {"name": PROJECT.partition("/")[2]}
            viewer = {"username": "bench", "defaultEntity": {"name": "team"}}
            self.answer({"data": {"upsertModel": {"model": model}, "project": model, "viewer": viewer}})
        else:
            self.answer({"digest": "0" * 43})

    def answer(self, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def run_sink() -> None:
    """Serve until the process is ended; the port is printed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    print(json.dumps(server.server_address[1]), flush=True)
    server.serve_forever()


def count_at_sink() -> int:
    """Return how many calls the sink has seen."""
    import urllib.request

    with urllib.request.urlopen(f"{os.environ['WF_TRACE_SERVER_URL']}/_count", b"", timeout=10) as answer:
        return int(json.load(answer)["calls"])


# --- the op, traced either way


class Policy:
    """The op's owner."""

    def __init__(self, result: Any) -> None:
        self.result = result

    async def generate(self, prompt: Any, temperature: float) -> Any:
        return self.result


def trace_as_verl(function: Callable[..., Any], client: Any) -> Callable[..., Any]:
    """Trace an async method as verl's decorator does for its Weave backend."""
    import weave

    async def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        bound = inspect.signature(function).bind(self, *arguments, **named)
        bound.apply_defaults()
        inputs = dict(bound.arguments)
        del inputs["self"]
        with weave.attributes({"step": 1, "sample_index": 7, "rollout_n": 0, "validate": False}):
            call = client.create_call(op=function.__qualname__, inputs=inputs)
            result = await function(self, *arguments, **named)
            client.finish_call(call, output=result)
        return result

    return wrapper


async def timed(function: Callable[..., Any], policy: Policy, given: Any, calls: int) -> list[float]:
    """Return the seconds of each call."""
    seconds = []
    for _ in range(calls):
        start = time.perf_counter()
        await function(policy, given, 0.7)
        seconds.append(time.perf_counter() - start)
    return seconds


def burst(function: Callable[..., Any], load: Load, calls: int, flush: Callable[[], Any]) -> dict[str, float]:
    """Call the op, flush, and return what that cost per call; every call must have reached the sink."""
    policy, before = Policy(load.result), count_at_sink()
    cpu, start = time.process_time(), time.perf_counter()
    seconds = asyncio.run(timed(function, policy, load.given, calls))
    caller = sum(seconds)
    flush()
    deadline = time.monotonic() + 60
    while (arrived := count_at_sink() - before) < calls and time.monotonic() < deadline:
        time.sleep(0.01)
    if arrived < calls:
        raise RuntimeError(f"{arrived} of {calls} calls arrived")
    return {
        "p50": statistics.median(seconds),
        "mean": caller / calls,
        "cpu": (time.process_time() - cpu) / calls,
        "per_second": calls / (time.perf_counter() - start),
    }


def work_as_verl(scale: float) -> None:
    """Answer measuring commands with weave's client."""
    import weave
    from weave.version import VERSION

    client = weave.init(PROJECT)
    function = trace_as_verl(Policy.generate, client)
    everything = loads(scale)

    def measure(name: str) -> dict[str, float]:
        return burst(function, everything[name], everything[name].verl, client.flush)

    serve(measure, f"weave {VERSION}")


def work_as_ours(scale: float) -> None:
    """Answer measuring commands with otel-rollout."""
    import otel_rollout

    otel_rollout.init(PROJECT, "bench", backend="weave")
    function = otel_rollout.rollout_trace_op(kind="LLM")(Policy.generate)
    everything = loads(scale)

    def traced(policy: Policy, given: Any, temperature: float) -> Any:
        return function(policy, given, temperature)

    def measure(name: str) -> dict[str, float]:
        load = everything[name]
        # The root comes on top of the calls: without it, theirs and ours would not be the same number.
        with otel_rollout.rollout_trace_attr(sample_index=7, step=1, rollout_n=0):
            return burst(traced, load, load.ours, lambda: otel_rollout.flush(60)) | export(load)

    serve(measure, f"otel-rollout {otel_rollout.__version__}")


def export(load: Load) -> dict[str, float]:
    """Return what the export alone costs: finished spans to the sink, in batches as delivery makes them."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext

    from otel_rollout_weave import WeaveSpanExporter

    attributes = {
        "rollout.step": 1,
        "rollout.sample_index": 7,
        "rollout.rollout_n": 0,
        "rollout.validate": False,
        "rollout.experiment_name": "bench",
        "openinference.span.kind": "LLM",
        "input.value": json.dumps({"prompt": load.given, "temperature": 0.7}, separators=(",", ":")),
        "input.mime_type": "application/json",
        "output.value": json.dumps(load.result, separators=(",", ":")),
        "output.mime_type": "application/json",
    }
    resource, scope = Resource({"rollout.project_name": PROJECT}), InstrumentationScope("otel_rollout")
    trace_id, parent = random.getrandbits(128), SpanContext(1, 1, is_remote=False)
    spans = [
        ReadableSpan(
            name="Policy.generate",
            context=SpanContext(trace_id, random.getrandbits(64), is_remote=False),
            parent=parent,
            resource=resource,
            attributes=attributes,
            start_time=1_767_225_600_000_000_000,
            end_time=1_767_225_601_000_000_000,
            instrumentation_scope=scope,
        )
        for _ in range(load.exported)
    ]
    size = sum(len(str(value)) for value in attributes.values())
    batch = min(512, max(1, 4 * 2**20 // size))
    exporter = WeaveSpanExporter()
    exporter.send(spans[:1])
    before, cpu, start = count_at_sink(), time.process_time(), time.perf_counter()
    for first in range(0, len(spans), batch):
        outcome = exporter.send(spans[first : first + batch])
        if outcome.reason:
            raise RuntimeError(outcome.reason)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    arrived = count_at_sink() - before
    exporter.shutdown()
    if arrived < len(spans):
        raise RuntimeError(f"{arrived} of {len(spans)} calls arrived")
    return {"export_per_second": len(spans) / wall, "export_cpu": cpu / len(spans)}


def serve(measure: Callable[[str], dict[str, float]], version: str) -> None:
    """Answer commands on standard input until it is closed."""
    answers, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps({"version": version, "python": platform.python_version()}), file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = measure(line.strip())
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}  # type: ignore[dict-item]
        print(json.dumps(answer), file=answers, flush=True)
    os._exit(0)  # weave waits for its idle threads


# --- one run


class Worker:
    """A process that measures one way of tracing."""

    def __init__(self, role: str, python: str, scale: float, variables: dict[str, str]) -> None:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "WANDB_", "WEAVE_"))}
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.weave", "--role", role, "--scale", str(scale)],
            cwd=ROOT,
            env={**kept, "PYTHONPATH": str(ROOT), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.hello = self.read()

    def read(self) -> Any:
        line = self._process.stdout.readline()  # type: ignore[union-attr]
        if not line:
            raise RuntimeError(f"a worker ended with {self._process.wait()}")
        return json.loads(line)

    def measure(self, name: str) -> dict[str, float]:
        self._process.stdin.write(name + "\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]
        answer = self.read()
        if "failed" in answer:
            raise RuntimeError(answer["failed"])
        return dict(answer)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def measure_all(rounds: int, scale: float) -> dict[str, Any]:
    """Return the medians over the rounds of every figure, by load and way, with the ratios of each round."""
    from scripts.environments import ensure

    sink = Worker("sink", sys.executable, scale, {})
    url = f"http://127.0.0.1:{sink.hello}"
    variables = {
        "WANDB_BASE_URL": url,
        "WF_TRACE_SERVER_URL": url,
        "WANDB_API_KEY": "0" * 40,
        "WANDB_ERROR_REPORTING": "false",
        "WEAVE_USE_SERVER_CACHE": "false",
        "WEAVE_PRINT_CALL_LINK": "false",
    }
    workers = {
        "verl": Worker("verl", str(ensure("weave_client") / "bin" / "python"), scale, variables),
        "ours": Worker("ours", sys.executable, scale, variables),
    }
    try:
        samples: dict[str, dict[str, list[dict[str, float]]]] = {}
        for number in range(rounds + 1):
            for name in loads(scale):
                for way, worker in workers.items():
                    sample = worker.measure(name)
                    if number:  # the first round warms up
                        samples.setdefault(name, {}).setdefault(way, []).append(sample)
            print(f"round {number} of {rounds} done", file=sys.stderr)
        return {"workers": {way: worker.hello for way, worker in workers.items()}, "samples": samples}
    finally:
        for worker in (*workers.values(), sink):
            worker.close()


def as_text(result: dict[str, Any]) -> str:
    """Return the figures as a table."""
    versions = ", ".join(f"{hello['version']} (Python {hello['python']})" for hello in result["workers"].values())
    lines = [
        f"{versions}; medians, ratios of the same round in brackets: lowest to highest",
        f"{'load':<12} {'figure':<34} {'verl':>12} {'ours':>12}   ratio",
    ]
    figures = [
        ("p50", "caller, ms per call (p50)", 1000, 1),
        ("mean", "caller, ms per call (mean)", 1000, 1),
        ("cpu", "process CPU, ms per call", 1000, 1),
        ("per_second", "calls/s, flush included", 1, -1),
    ]
    loaded = loads(1)
    for name, ways in result["samples"].items():
        title = loaded[name].title
        for key, label, factor, sign in figures:
            pairs = [(a[key], b[key]) for a, b in zip(ways["verl"], ways["ours"], strict=True)]
            ratios = sorted((a / b) ** sign for a, b in pairs)
            theirs, ours = (statistics.median(side) * factor for side in zip(*pairs, strict=True))
            spread = f"{statistics.median(ratios):.1f}x ({ratios[0]:.1f} to {ratios[-1]:.1f})"
            lines.append(f"{title:<12} {label:<34} {theirs:>12,.3f} {ours:>12,.3f}   {spread}")
        for key, label, factor in (
            ("export_per_second", "export alone, calls/s", 1),
            ("export_cpu", "export alone, CPU ms per call", 1000),
        ):
            value = statistics.median(sample[key] for sample in ways["ours"]) * factor
            lines.append(f"{title:<12} {label:<34} {'':>12} {value:>12,.3f}")
    return "\n".join(lines)


def main() -> None:
    """Measure, or be one of the processes that measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weave", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--smoke", action="store_true", help="a short run that shows that everything works")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON in place of the table")
    parser.add_argument("--role", choices=("verl", "ours", "sink"), help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=float, default=1.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    roles = {"verl": work_as_verl, "ours": work_as_ours}
    if arguments.role == "sink":
        run_sink()
    elif arguments.role:
        roles[arguments.role](arguments.scale)
    else:
        result = measure_all(1 if arguments.smoke else arguments.rounds, 0.02 if arguments.smoke else 1.0)
        print(json.dumps(result, indent=2) if arguments.json else as_text(result))


if __name__ == "__main__":
    main()
