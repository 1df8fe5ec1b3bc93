"""Spans to send, a real trace server to send them to, and the weave client that reads them back."""

from __future__ import annotations

import itertools
import json
import os
import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout.record import SystemIdGenerator
from otel_rollout_weave import WeaveSpanExporter
from tests.servers.process import free_port
from tests.servers.weave_server import WeaveServer

WITH_CLICKHOUSE = "TEST_WEAVE_CLICKHOUSE"
STORES = ["memory", "clickhouse"] if os.environ.get(WITH_CLICKHOUSE) == "1" else ["memory"]

IDS = SystemIdGenerator()
START = 1_767_225_600_123_456_789
"""2026-01-01T00:00:00.123456789Z in nanoseconds."""


class Spans:
    """Makes finished spans as otel-rollout hands them to an exporter.

    Args:
        project: What `rollout.project_name` says.
    """

    def __init__(self, project: str) -> None:
        self.resource = Resource({"service.name": "test", "rollout.project_name": project, "rollout.run_id": "run-1"})
        self._sequence = itertools.count()

    def span(
        self,
        name: str = "AgentLoop.run",
        attributes: Mapping[str, Any] | None = None,
        *,
        trace_id: int | None = None,
        parent: ReadableSpan | int | None = None,
        error: str | None = None,
        events: Sequence[Event] = (),
        scope: str = "otel_rollout",
    ) -> ReadableSpan:
        """Return a span; its parent is another span or a span id."""
        start = START + next(self._sequence) * 1_000_000
        if isinstance(parent, ReadableSpan):
            trace_id, parent = parent.context.trace_id, parent.context.span_id
        trace_id = trace_id or IDS.generate_trace_id()
        return ReadableSpan(
            name=name,
            context=SpanContext(trace_id, IDS.generate_span_id(), is_remote=False, trace_flags=TraceFlags(1)),
            parent=SpanContext(trace_id, parent, is_remote=False) if parent else None,
            resource=self.resource,
            attributes=dict(attributes or {}),
            events=events,
            status=Status(StatusCode.ERROR, error) if error else Status(),
            start_time=start,
            end_time=start + 500_000,
            instrumentation_scope=InstrumentationScope(scope),
        )

    def op(self, root: ReadableSpan, name: str = "Tool.call", **more: Any) -> ReadableSpan:
        """Return an op of a trajectory, with the tags of its root."""
        tags = {key: root.attributes[key] for key in TAGS if key in root.attributes}
        payload = payload_attributes(more.pop("input", {"x": 1}), more.pop("output", {"y": 2}))
        kind = {"openinference.span.kind": more.pop("kind", "TOOL")}
        return self.span(name, {**tags, **kind, **payload, **more.pop("attributes", {})}, parent=root, **more)

    def root(self, *, step: int = 3, sample: int = 7, rollout: int = 0, **more: Any) -> ReadableSpan:
        """Return the root of a trajectory."""
        trace_id = IDS.generate_trace_id()
        attributes = {
            "rollout.step": step,
            "rollout.sample_index": sample,
            "rollout.rollout_n": rollout,
            "rollout.validate": more.pop("validate", False),
            "rollout.experiment_name": more.pop("experiment", "exp-1"),
            "rollout.status": "completed",
            "openinference.span.kind": "AGENT",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": f"{trace_id:032x}",
            "session.id": f"exp-1/{step}/{sample}",
            "metadata": '{"step":3}',
            **payload_attributes(more.pop("input", {"prompt": "2+2"}), more.pop("output", {"answer": "4"})),
        }
        reward = more.pop("reward", None)
        if reward is not None:
            attributes["rollout.reward"] = reward
        attributes.update(more.pop("attributes", {}))
        return self.span(more.pop("name", "agent_loop"), attributes, trace_id=trace_id, **more)

    def trajectory(self, ops: int = 2, **more: Any) -> list[ReadableSpan]:
        """Return the spans of a trajectory in the order in which they end: the ops, then the root."""
        root = self.root(**more)
        return [*(self.op(root) for _ in range(ops)), root]


TAGS = ("rollout.step", "rollout.sample_index", "rollout.rollout_n", "rollout.validate", "rollout.experiment_name")


def payload_attributes(given: Any, result: Any) -> dict[str, str]:
    """Return the payload attributes of an op."""
    found = {}
    for side, value in (("input", given), ("output", result)):
        if value is not None:
            found[f"{side}.value"] = json.dumps(value, separators=(",", ":"))
            found[f"{side}.mime_type"] = "application/json"
    return found


class WeaveReader:
    """The current weave client in a process of its own, asked over its standard input.

    Args:
        python: The interpreter that has weave.
        variables: Environment variables that lead it to the server.
    """

    def __init__(self, python: Path, variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("read_back.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **variables},
        )

    def ask(self, what: str, *arguments: Any) -> Any:
        """Ask one question of read_back.py and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"ask": what, "with": arguments}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["answer"]

    def calls(self, project: str, **arguments: Any) -> list[dict[str, Any]]:
        """Return the calls that `client.get_calls(**arguments)` finds in a project."""
        return self.ask("calls", project, arguments)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class Line:
    """A TCP connection to the server that can be cut and mended.

    Args:
        target: The server's address.
    """

    def __init__(self, target: str) -> None:
        self._target = (urlsplit(target).hostname, urlsplit(target).port)
        self._server: socketserver.ThreadingTCPServer | None = None
        self._open: list[socket.socket] = []
        # See free_port: the exporter tries it while nobody listens.
        self._port = free_port()
        self.mend()
        self.url = f"http://127.0.0.1:{self._port}"

    def mend(self) -> None:
        """Let connections through."""
        line = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(line._target) as there:
                    line._open += [self.request, there]
                    back = threading.Thread(target=pump, args=(there, self.request))
                    back.start()
                    pump(self.request, there)
                    back.join()

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", self._port), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.02,)).start()

    def cut(self) -> None:
        """Break the connections that there are and refuse new ones."""
        server, self._server = self._server, None
        if server is not None:
            for one in self._open:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._open.clear()
            server.shutdown()
            server.server_close()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until one side is closed."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="session", params=STORES)
def running_server(
    request: pytest.FixtureRequest, environment: Callable[[str], Path], uncaptured: Any
) -> Iterator[WeaveServer]:
    """A trace server of these tests' own, which tell it to fail."""
    with WeaveServer(environment("weave"), store=request.param, uncaptured=uncaptured) as server:
        yield server


@pytest.fixture
def server(running_server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The trace server, with this process's environment leading to it and no faults left."""
    for variable in ("WANDB_ENTITY", "WANDB_PROJECT", "WANDB_RUN_ID", "WANDB_CONFIG_DIR", "WEAVE_HTTP_TIMEOUT"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in running_server.variables.items():
        monkeypatch.setenv(variable, value)
    running_server.set_faults("")
    running_server.take_requests()
    return running_server


@pytest.fixture(scope="session")
def reader(running_server: Any, environment: Callable[[str], Path]) -> Iterator[WeaveReader]:
    """The weave client that reads from the server."""
    reader = WeaveReader(environment("weave_client") / "bin" / "python", running_server.variables)
    yield reader
    reader.close()


@pytest.fixture
def project(request: pytest.FixtureRequest) -> str:
    """The name of a project that only this test uses."""
    return f"team/{abs(hash(request.node.nodeid)):x}"


@pytest.fixture
def spans(project: str) -> Spans:
    """Makes spans of this test's project."""
    return Spans(project)


@pytest.fixture
def exporter() -> Iterator[WeaveSpanExporter]:
    """An exporter that reads its settings from the environment."""
    exporter = WeaveSpanExporter()
    yield exporter
    exporter.shutdown()


@pytest.fixture
def line(server: Any) -> Iterator[Line]:
    """A line to the server."""
    line = Line(server.url)
    yield line
    line.cut()
