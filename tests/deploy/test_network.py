"""docker-compose.yml at work: its own commands and variables, each service on a machine of its own with its own name.

No engine is needed: the servers come from PyPI in the same versions, the collector is a program. Jaeger is neither, so
nothing here shows that it starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import otel_rollout
from tests.deploy import network
from tests.run.asked import count_folder
from tests.servers.span_trees import trees

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
TRAINING = ROOT / "tests" / "integration" / "programs" / "group.py"
TRACES, SPANS = 7, 42
# What each trajectory of the training program holds.
NAMES = ["calculator", "generate", "generate", "lookup", "run", "trajectory"]


READS = {**os.environ, "PYTHONPATH": str(ROOT)}


def namespaces():
    """Return the network namespaces that a process of this machine is in."""
    found = set()
    for process in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            found.add(str(process.readlink()))
    return found


@pytest.fixture
def train(tmp_path):
    """Runs a program that traces a training step, on the trainer's machine of a stack."""

    def run(stack, project, **variables):
        report = tmp_path / "report.json"
        finished = stack.run(
            [sys.executable, str(TRAINING)], SCENARIO_PROJECT=project, SCENARIO_REPORT=str(report), **variables
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr

    return run


def read(stack, program, *arguments):
    """Return what a program of programs/ printed on the trainer's machine."""
    command = [sys.executable, str(PROGRAMS / f"{program}.py"), *map(str, arguments)]
    finished = stack.run(command, PYTHONPATH=str(ROOT))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return json.loads(finished.stdout)


def otlp(host, protocol):
    """Return the variables that send traces to a collector."""
    port = {"grpc": 4317, "http/protobuf": 4318}[protocol]
    return {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{host}:{port}",
    }


class TestNetwork:
    """The machines that the tests run on."""

    def test_leaves_nothing_when_the_tests_are_killed(self):
        """When the process that made a network is killed, what ran on its machines ends, and no namespace is left."""
        reason = network.why_not()
        if reason:
            pytest.skip(reason)
        holder = subprocess.Popen(
            [sys.executable, str(PROGRAMS / "hold_network.py")], stdout=subprocess.PIPE, env=READS
        )
        made = holder.stdout.readline().decode().strip()
        assert made in namespaces()

        holder.kill()
        holder.communicate()

        deadline = time.monotonic() + 60
        while made in namespaces():
            assert time.monotonic() < deadline, "a namespace of the network is still there"
            time.sleep(0.05)


class TestHealth:
    """The healthchecks, which the stacks were waited for with."""

    def test_published_ports_are_listened_on(self, stacks):
        """Each published port leads to something."""
        stack = stacks["both"]
        connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5)"

        for name, service in stack.services.items():
            for port in service["ports"]:
                command = [sys.executable, "-c", connect, name, str(port["target"])]
                assert stack.run(command).returncode == 0, (name, port)

    @pytest.mark.parametrize("name", ["phoenix", "mlflow"])
    def test_healthcheck_fails_where_nothing_answers(self, stacks, name):
        """The healthcheck of a backend, run on a machine where it does not run, says that it is not healthy."""
        test = stacks["both"].services[name]["healthcheck"]["test"]

        assert test[:2] == ["CMD", "python"]
        assert stacks["both"].run([sys.executable, *test[2:]]).returncode != 0


class TestCollector:
    """From a trainer through the collector to the backends."""

    @pytest.mark.parametrize(
        ("host", "protocol"),
        [("collector", "http/protobuf"), ("127.0.0.1", "http/protobuf"), ("127.0.0.1", "grpc")],
        ids=["gateway", "agent and gateway", "agent and gateway, gRPC"],
    )
    def test_trajectories_arrive_in_both(self, stacks, train, host, protocol):
        """All trajectories are in Phoenix and, in experiment 0, in MLflow, none twice, by either way and protocol."""
        stack, project = stacks["both"], f"compose-{host[:4]}-{protocol[:4]}"
        before = len(read(stack, "read_mlflow", "http://mlflow:5000", "Default", 0))

        train(stack, project, **otlp(host, protocol))

        spans = read(stack, "read_phoenix", "http://phoenix:6006", project, SPANS)
        roots = trees(spans)
        assert len(spans) == SPANS
        assert [sorted(node.name.rpartition(".")[2] for node in root.walk()) for root in roots.values()] == [
            NAMES
        ] * TRACES
        traces = read(stack, "read_mlflow", "http://mlflow:5000", "Default", before + TRACES)
        assert [trace["spans"] for trace in traces] == [NAMES] * (before + TRACES)


class TestFolder:
    """The profile whose backend is a trace folder."""

    def test_trajectories_arrive_in_the_folder(self, stacks, train):
        """All trajectories sent to the name `collector` are in the receiver's folder, none twice, and whole."""
        stack = stacks["folder"]

        train(stack, "compose-folder", **otlp("collector", "http/protobuf"))

        folder = stack.volume("receiver")
        deadline = time.monotonic() + 60
        while not list(folder.iterdir()) or count_folder(folder).spans < SPANS:
            assert time.monotonic() < deadline, "the spans are not in the folder"
            time.sleep(0.2)
        names = [
            sorted(span.name.rpartition(".")[2] for span in each.spans)
            for each in otel_rollout.read_trajectories(folder)
        ]
        assert names == [NAMES] * TRACES
        assert count_folder(folder).spans == SPANS

    def test_receiver_wants_the_token(self, stacks, tmp_path):
        """A sender that does not have the token is refused."""
        body = tmp_path / "request.binpb"
        body.write_bytes(request().SerializeToString())
        command = [sys.executable, str(PROGRAMS / "post.py"), "http://receiver:4318", str(body)]

        assert stacks["folder"].run(command).stdout.strip() == "401"


class TestMlflow:
    """MLflow, reached by the name that the compose file gives it."""

    def test_exporter_goes_straight_to_the_server(self, stacks, train):
        """The exporter `mlflow` needs no collector and no experiment's id, and its traces have the tags."""
        stack = stacks["both"]

        train(stack, "straight", OTEL_TRACES_EXPORTER="mlflow", MLFLOW_TRACKING_URI="http://mlflow:5000")

        traces = read(stack, "read_mlflow", "http://mlflow:5000", "straight", TRACES)
        assert [(trace["tags"]["step"], trace["spans"]) for trace in traces] == [("7", NAMES)] * TRACES

    @pytest.mark.parametrize(("name", "status"), [("both", "200"), ("careless", "403")])
    def test_otlp_by_the_service_name_needs_allowed_hosts(self, stacks, tmp_path, name, status):
        """MLflow takes OTLP sent to `mlflow:5000`, and refuses it without its --allowed-hosts, though it is healthy."""
        body = tmp_path / "request.binpb"
        body.write_bytes(request().SerializeToString())
        command = [sys.executable, str(PROGRAMS / "post.py"), "http://mlflow:5000", str(body)]

        assert stacks[name].healthy("mlflow")
        assert stacks[name].run(command).stdout.strip() == status


def request():
    """Return an OTLP request with one span."""
    message = ExportTraceServiceRequest()
    span = message.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id, span.name = bytes(range(16)), bytes(range(8)), "posted"
    span.start_time_unix_nano, span.end_time_unix_nano = 1_767_225_600_000_000_000, 1_767_225_601_000_000_000
    return message
