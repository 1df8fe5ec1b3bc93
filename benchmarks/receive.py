"""`python -m benchmarks.receive`: `otel-rollout receive` beside the Collector's `file` exporter.

Both get the same OTLP requests over HTTP, in protobuf without compression: trajectories of 20 spans, 100 of them
running at a time, in requests of up to 512 spans or 4 MB. CPU time is counted until all spans are in the folder, or in
the exporter's file. At last 20,000 trajectories are open at once, each with spans of several requests.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from scripts.otelcol import NotHereError, ensure
from tests.servers.process import free_port

SPANS_A_TRAJECTORY = 20
RUNNING = 100
REQUEST_SPANS, REQUEST_BYTES = 512, 4 * 2**20
CONNECTIONS = 4
OPEN = 20_000
TICKS = os.sysconf("SC_CLK_TCK")
COLLECTOR = """\
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{port}
exporters:
  file:
    path: {path}
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [otlp]
      exporters: [file]
"""


class Load(NamedTuple):
    """Requests, and the number of their spans."""

    bodies: list[bytes]
    spans: int

    @property
    def bytes(self) -> int:
        return sum(map(len, self.bodies))


class Result(NamedTuple):
    """What a server took for a load."""

    cpu_seconds: float
    seconds: float
    peak_bytes: int


def make_text(rng: random.Random, words: list[str], size: int) -> str:
    """Return text of so many characters that compresses as prose does, about."""
    text = []
    while size > 0:
        text.append(rng.choice(words))
        size -= len(text[-1]) + 1
    return json.dumps({"text": " ".join(text)})


def make_load(payload: int, trajectories: int, seed: int = 1) -> Load:
    """Return trajectories whose spans have so many characters of payload, most of them an input."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(20_000)]
    texts = [make_text(rng, words, payload * 9 // 10) for _ in range(200)]
    short = [make_text(rng, words, payload // 10) for _ in range(200)]
    bodies, spans = [], 0
    for first in range(0, trajectories, RUNNING):
        wave = [
            span
            for number in range(first, min(first + RUNNING, trajectories))
            for span in make_trajectory(rng, number, texts, short)
        ]
        rng.shuffle(wave)
        spans += len(wave)
        step = max(1, min(REQUEST_SPANS, REQUEST_BYTES // (payload + 600)))
        bodies += [make_body(wave[place : place + step]) for place in range(0, len(wave), step)]
    return Load(bodies, spans)


def make_trajectory(rng: random.Random, number: int, texts: list[str], short: list[str]) -> list[Span]:
    """Return the spans of a trajectory, with the attributes that ours have."""
    trace_id = rng.randbytes(16)
    ids = [rng.randbytes(8) for _ in range(SPANS_A_TRAJECTORY)]
    spans = []
    for place, span_id in enumerate(ids):
        span = Span(
            trace_id=trace_id,
            span_id=span_id,
            parent_span_id=ids[0] if place else b"",
            name="Policy.generate" if place else "agent_loop",
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=time.time_ns(),
            end_time_unix_nano=time.time_ns(),
            flags=0x101,
        )
        for key, value in {
            "input.value": rng.choice(texts),
            "output.value": rng.choice(short),
            "input.mime_type": "application/json",
            "output.mime_type": "application/json",
            "openinference.span.kind": "LLM",
            "rollout.experiment_name": "benchmark",
        }.items():
            span.attributes.add(key=key).value.string_value = value
        for key, value in {
            "rollout.step": number // 1000,
            "rollout.sample_index": number // 8,
            "rollout.rollout_n": number % 8,
            "llm.token_count.prompt": rng.randint(100, 4000),
            "llm.token_count.completion": rng.randint(1, 400),
        }.items():
            span.attributes.add(key=key).value.int_value = value
        spans.append(span)
    return spans


def make_body(spans: list[Span]) -> bytes:
    """Return a request."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "benchmark"
    scope = resource.scope_spans.add()
    scope.scope.name = "otel_rollout"
    scope.spans.extend(spans)
    return request.SerializeToString()


@contextmanager
def receiver(folder: Path, idle: float) -> Iterator[tuple[int, int, Callable[[int], bool]]]:
    """Run a receiver; gives its process, its port, and a function that tells if all is in the folder."""
    port = free_port()
    command = [sys.executable, "-m", "otel_rollout.cli", "receive", str(folder), "--port", str(port)]
    with run([*command, "--idle", str(idle)], port) as pid:

        def is_done(_: int) -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
                return json.load(answer)["open_traces"] == 0

        yield pid, port, is_done


@contextmanager
def collector(folder: Path) -> Iterator[tuple[int, int, Callable[[int], bool]]]:
    """Run a Collector whose `file` exporter writes; gives the same."""
    port = free_port()
    path, config = folder / "otlp.jsonl", folder / "config.yaml"
    folder.mkdir()
    config.write_text(COLLECTOR.format(port=port, path=path))
    with run([str(ensure()), "--config", str(config)], port) as pid:
        yield pid, port, lambda spans: path.read_bytes().count(b'"spanId":') == spans


@contextmanager
def run(command: list[str], port: int) -> Iterator[int]:
    """Run a server until the end of the context; gives its process once it listens."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                http.client.HTTPConnection("127.0.0.1", port, timeout=1).connect()
                break
            except OSError:
                time.sleep(0.1)
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_bytes(pid: int) -> int:
    """Return the most memory that a process has had."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def send(port: int, bodies: list[bytes]) -> None:
    """Send requests over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for body in bodies:
        while True:
            connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
            answer = connection.getresponse()
            answer.read()
            if answer.status == 200:
                break
            time.sleep(0.2)
    connection.close()


def measure(server: tuple[int, int, Callable[[int], bool]], load: Load) -> Result:
    """Send a load and wait until all of it is stored."""
    pid, port, is_done = server
    before, started = cpu_seconds(pid), time.monotonic()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        list(pool.map(send, [port] * CONNECTIONS, [load.bodies[place::CONNECTIONS] for place in range(CONNECTIONS)]))
    sent = time.monotonic()
    while not is_done(load.spans):
        if time.monotonic() - sent > 300:
            raise TimeoutError("not everything was stored")
        time.sleep(0.5)
    return Result(cpu_seconds(pid) - before, sent - started, peak_bytes(pid))


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.receive", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="a short run that shows that everything works; seconds")
    arguments = parser.parse_args()
    part = 20 if arguments.smoke else 1
    print(
        f"{'payload':>8}  {'server':<9}  {'spans':>7}  {'spans/s and core':>16}  {'MB/s and core':>13}  {'peak MB':>7}"
    )
    for payload, trajectories in ((2_000, 2_000 // part), (20_000, 400 // part)):
        load = make_load(payload, trajectories)
        with tempfile.TemporaryDirectory(prefix="bench-receive-") as own:
            results = {}
            with receiver(Path(own, "traces"), 1) as server:
                results["receive"] = measure(server, load)
            try:
                with collector(Path(own, "collector")) as server:
                    results["collector"] = measure(server, load)
            except NotHereError as error:
                print(error, file=sys.stderr)
        for name, (cpu, _, peak) in results.items():
            print(
                f"{payload:>8,}  {name:<9}  {load.spans:>7,}  {load.spans / cpu:>16,.0f}  "
                f"{load.bytes / 1e6 / cpu:>13,.0f}  {peak / 1e6:>7,.0f}"
            )
    print_open(OPEN // part)
    return 0


def print_open(trajectories: int) -> None:
    """Measure the memory of a receiver with many open trajectories, each with spans of ten requests, without roots."""
    rng = random.Random(2)
    texts = ["x" * 1800]
    with tempfile.TemporaryDirectory(prefix="bench-receive-") as own, receiver(Path(own, "traces"), 900) as server:
        pid, port, _ = server
        spans = [make_trajectory(rng, number, texts, ["y" * 200])[1:11] for number in range(trajectories)]
        for place in range(10):
            wave = [each[place] for each in spans]
            send(port, [make_body(wave[first : first + REQUEST_SPANS]) for first in range(0, len(wave), REQUEST_SPANS)])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
            count = json.load(answer)["open_traces"]
        print(f"{count:,} open trajectories of 10 spans of 2 KB: {peak_bytes(pid) / 1e6:,.0f} MB at the peak")


if __name__ == "__main__":
    sys.exit(main())
