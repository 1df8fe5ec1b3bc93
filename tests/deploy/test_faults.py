"""The agent and the gateway of deploy/ as the OpenTelemetry Collector runs them, while things fail."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from otel_rollout import read_trajectories
from tests.servers.otelcol_server import Otelcol, Sink
from tests.servers.process import ServerFailedError, ServerProcess, answers_http, free_port

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
LOAD = ROOT / "tests" / "deploy" / "programs" / "load.py"
SPANS = 8
MIB = 2**20
DEADLINE = 90.0
SOON = {f"exporters::otlp_http/{name}::retry_on_failure::max_interval": "1s" for name in ("folder", "mlflow")}
SOON_OF_AGENT = {"exporters::otlp_grpc::retry_on_failure::max_interval": "1s"}


def start_load(endpoint, trajectories, size=2000, pause=0.0, spans=SPANS, **options):
    """Start a worker that traces trajectories, and return its process."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    command = [sys.executable, str(LOAD), str(trajectories), str(spans), str(size), str(pause)]
    environment = {**inherited, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "LOAD_OPTIONS": json.dumps(options)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def finish(worker):
    """Return what a worker says of its spans, once it has ended."""
    output, _ = worker.communicate(timeout=180)
    assert worker.returncode == 0
    return json.loads(output)


def spans_of(sink, count):
    """Return the spans of a sink as soon as it has so many different ones, or after the deadline."""
    deadline = time.monotonic() + DEADLINE
    spans = sink.spans()
    while len(spans) < count and time.monotonic() < deadline:
        time.sleep(0.2)
        spans = sink.spans()
    return spans


def small_queue(exporter):
    """Return the values that give an exporter a queue of 2 MiB, in small batches."""
    queue = f"exporters::{exporter}::sending_queue"
    return {f"{queue}::queue_size": 2 * MIB, f"{queue}::batch::min_size": MIB // 4}


@contextmanager
def running(program, folder, agent=None):
    """Start an agent, a gateway behind it and a sink behind that, with values of the agent's configuration."""
    with ExitStack() as stack:
        sink = stack.enter_context(Sink(program, folder / "sink"))
        behind = Otelcol.gateway(program, {"folder": sink.address}, folder / "gateway", SOON)
        stack.enter_context(behind)
        address = behind.grpc_address.removeprefix("http://")
        before = stack.enter_context(
            Otelcol.agent(program, address, folder / "agent", {**SOON_OF_AGENT, **(agent or {})})
        )
        yield before, behind, sink


class TestEnds:
    """Agent and gateway end and start again while workers trace."""

    @pytest.mark.parametrize(("trajectories", "ends"), [(150, 4), (1500, 30)])
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_loses_nothing(self, collector_program, tmp_path, number, trajectories, ends):
        """Whichever is ended while spans come, each span that workers count as delivered is in the backend."""
        rng = random.Random(number)
        with running(collector_program, tmp_path) as (agent, gateway, sink):
            workers = [start_load(agent.address, trajectories, pause=0.03) for _ in range(2)]
            for _ in range(ends):
                chosen = rng.choice([agent, gateway])
                # Long enough for some spans to come through, and for others to be on their way.
                before = len(sink.spans())
                deadline = time.monotonic() + rng.uniform(0.3, 1.5)
                while time.monotonic() < deadline or len(sink.spans()) == before:
                    assert time.monotonic() < deadline + DEADLINE, "nothing arrives"
                    if all(worker.poll() is not None for worker in workers):
                        break
                    time.sleep(0.05)
                chosen.end(number)
                chosen.process.start()
            reports = [finish(worker) for worker in workers]
            spans = spans_of(sink, 2 * trajectories * SPANS)

        assert [(report["delivered"], report["lost"]) for report in reports] == [(trajectories * SPANS, {})] * 2
        assert len(spans) == 2 * trajectories * SPANS


class TestReceiver:
    """`otel-rollout receive` behind agent and gateway."""

    def test_kills_of_any_tier_lose_nothing(self, collector_program, tmp_path):
        """Agent, gateway and receiver are each killed while spans come: all spans are in the folder, read once."""
        trajectories, rng = 150, random.Random(1)
        port, traces = free_port(), tmp_path / "traces"
        command = [sys.executable, "-m", "otel_rollout.cli", "receive", "--port", str(port), str(traces)]
        url = f"http://127.0.0.1:{port}"
        (tmp_path / "receiver").mkdir()
        receiver = ServerProcess(
            "receiver",
            command,
            lambda: answers_http(f"{url}/health"),
            folder=tmp_path / "receiver",
        )
        gateway = Otelcol.gateway(collector_program, {"folder": url}, tmp_path / "gateway", SOON)
        address = gateway.grpc_address.removeprefix("http://")
        agent = Otelcol.agent(collector_program, address, tmp_path / "agent", SOON_OF_AGENT)
        with receiver, gateway, agent:
            workers = [start_load(agent.address, trajectories, pause=0.03) for _ in range(2)]
            tiers = [agent.process, gateway.process, receiver]
            for tier in rng.sample(tiers, len(tiers)):
                before, deadline = stored(traces), time.monotonic() + DEADLINE
                while stored(traces) == before and any(worker.poll() is None for worker in workers):
                    assert time.monotonic() < deadline, "nothing arrives"
                    time.sleep(0.1)
                tier.end(signal.SIGKILL)
                tier.start()
            reports = [finish(worker) for worker in workers]
            deadline = time.monotonic() + DEADLINE
            while stored(traces) < 2 * trajectories * SPANS and time.monotonic() < deadline:
                time.sleep(0.5)

        assert [(report["delivered"], report["lost"]) for report in reports] == [(trajectories * SPANS, {})] * 2
        assert [len(each.spans) for each in read_trajectories(traces)] == [SPANS] * 2 * trajectories


def stored(folder):
    """Return the number of different spans of a folder."""
    if not folder.exists() or not list(folder.iterdir()):
        return 0
    return sum(len({span.context.span_id for span in each.spans if span.context}) for each in read_trajectories(folder))


class TestFullQueues:
    """A backend that is away."""

    def test_other_backend_waits_and_nothing_is_lost(self, collector_program, tmp_path):
        """With one backend away until gateway's and agent's queues are full, both have all spans in the end."""
        of_agent, *of_gateway = map(small_queue, ("otlp_grpc", "otlp_http/folder", "otlp_http/mlflow"))
        count = 80 * SPANS
        with ExitStack() as stack:
            here, away = (Sink(collector_program, tmp_path / name) for name in ("here", "away"))
            stack.enter_context(here)
            backends = {"folder": here.address, "mlflow": away.address}
            values = {**SOON, **of_gateway[0], **of_gateway[1]}
            gateway = stack.enter_context(Otelcol.gateway(collector_program, backends, tmp_path / "gateway", values))
            address = gateway.grpc_address.removeprefix("http://")
            agent = Otelcol.agent(collector_program, address, tmp_path / "agent", {**SOON_OF_AGENT, **of_agent})
            stack.enter_context(agent)
            # 13 MB for queues of 2 MiB; a request has to fit into either.
            worker = start_load(agent.address, 80, size=20_000, max_batch_bytes=MIB // 4)
            deadline = time.monotonic() + DEADLINE
            while "sending queue is full" not in agent.log():
                assert time.monotonic() < deadline, "the agent's queue never got full"
                time.sleep(0.1)
            stack.enter_context(away)
            report = finish(worker)
            spans = [spans_of(sink, count) for sink in (here, away)]

        assert (report["delivered"], report["lost"]) == (count, {})
        assert [len(each) for each in spans] == [count, count]


class TestFullDisk:
    """The disk of an agent's queue."""

    def test_loses_nothing(self, collector_program, tmp_path):
        """With the gateway away and the agent's disk full, workers keep their spans; all arrive once there is room."""
        disk = tmp_path / "disk"
        disk.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
        if mounted.returncode:
            pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
        try:
            values = {
                "extensions::file_storage::directory": str(disk / "queue"),
                "extensions::file_storage::compaction::directory": str(disk / "queue"),
            }
            with running(collector_program, tmp_path, values) as (agent, gateway, sink):
                gateway.kill()
                worker = start_load(agent.address, 100, size=20_000)
                deadline = time.monotonic() + DEADLINE
                while "no space left on device" not in agent.log():
                    assert time.monotonic() < deadline, "the disk never got full"
                    time.sleep(0.1)
                subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
                gateway.process.start()
                report = finish(worker)
                spans = spans_of(sink, 100 * SPANS)
        finally:
            subprocess.run(["umount", "--lazy", str(disk)], check=True)

        assert (report["delivered"], report["lost"]) == (100 * SPANS, {})
        assert len(spans) == 100 * SPANS


class TestDamagedQueue:
    """A queue file that a disk has damaged."""

    def test_is_moved_away(self, collector_program, tmp_path):
        """With a damaged file the agent does not start; with the file moved away it does, and lost what was in it."""
        with running(collector_program, tmp_path) as (agent, gateway, sink):
            gateway.kill()
            assert finish(start_load(agent.address, 20))["delivered"] == 20 * SPANS
            agent.kill()
            (queue,) = (path for path in (tmp_path / "agent" / "queue").iterdir() if path.is_file())
            with queue.open("r+b") as file:
                file.truncate(queue.stat().st_size // 2)
            with pytest.raises(ServerFailedError):
                agent.process.start()
            queue.rename(tmp_path / "damaged")
            agent.process.start()
            gateway.process.start()
            assert finish(start_load(agent.address, 3))["delivered"] == 3 * SPANS
            spans = spans_of(sink, 3 * SPANS)

        assert len(spans) == 3 * SPANS


class TestLargeSpans:
    """Spans that are larger than a batch."""

    def test_arrives(self, collector_program, tmp_path):
        """A span of 12 MB, larger than any batch of the queues, goes through agent and gateway."""
        options = {"max_payload_bytes": 16 * MIB, "max_batch_bytes": 32 * MIB}
        with running(collector_program, tmp_path) as (agent, _, sink):
            report = finish(start_load(agent.address, 1, size=12 * MIB, spans=3, **options))
            spans = spans_of(sink, 3)
            size = sink.file.stat().st_size

        assert report["delivered"] == 3
        assert Counter(spans.values()) == {1: 3}
        assert size > 2 * 12 * MIB
