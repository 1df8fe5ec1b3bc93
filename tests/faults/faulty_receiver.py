"""An OTLP/HTTP receiver, or a proxy in front of any HTTP backend, that fails as it is told and keeps the account."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.servers.process import free_port

__all__ = ["Fault", "FaultyReceiver"]

_HOP_BY_HOP = frozenset({"connection", "content-length", "host", "transfer-encoding", "content-encoding", "keep-alive"})


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request.

    Args:
        status: The answer instead of the backend's.
        headers: Headers of that answer.
        delay: Seconds before the request is carried out.
        after_commit: Whether the request is carried out all the same.
        reset: `body` to break the connection in the middle of the request, `answer` in the middle of the answer to
            one that was carried out.
        hangs: Whether no answer ever comes.
        path: Only requests whose path holds this meet the fault.
    """

    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    after_commit: bool = False
    reset: str = ""
    hangs: bool = False
    path: str = ""


class FaultyReceiver:
    """Takes OTLP over HTTP, or passes requests on, and fails as it is told.

    Args:
        target: The backend's base address that requests are passed on to; where empty, they end here.
    """

    def __init__(self, target: str = "") -> None:
        self.faults: deque[Fault | None] = deque()
        """For the next requests, one each; None for one that goes well."""
        self.steady: Fault | None = None
        """For every request that `faults` has none for."""
        self.met: Counter[Fault] = Counter()
        """How many requests met each fault."""
        self.refuses: Callable[[Sequence[Any], int], int] = lambda spans, size: 0
        """Returns the status that these spans in a body of that size are refused with; 0 to take them."""
        self.stored: Counter[str] = Counter()
        """How often each span was taken, by its id."""
        self.names: Counter[str] = Counter()
        """The names of the spans that were taken."""
        self.times: dict[bytes, tuple[bytes, int, int]] = {}
        """The parent, the start and the end of each span, by its id."""
        self.requests = 0
        self.errors: list[BaseException] = []
        """Faults of this receiver's own, raised at its end."""
        self._target = target
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._open: set[socket.socket] = set()
        self._server: _Server | None = None
        # Not one that the system hands out: while this is down, a client that tries it could be given it.
        self._port = free_port()
        self.up()
        self.url = f"http://127.0.0.1:{self._port}"

    def endpoint(self, protocol: str) -> str:
        """Return the OTLP endpoint; there is one for HTTP only."""
        assert protocol == "http/protobuf"
        return self.url

    def up(self) -> None:
        """Accept connections."""
        self._server = _Server(("127.0.0.1", self._port), self)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections, and break those that there are; let go of what hangs."""
        server, self._server = self._server, None
        if server is None:
            return
        server.shutdown()
        server.server_close()
        with self._lock:
            connections = list(self._open)
        for connection in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """Let go of what hangs and of what is slow."""
        self.steady = None
        released, self._released = self._released, threading.Event()
        released.set()

    def close(self) -> None:
        """Release what hangs, and end."""
        self.release()
        self.down()
        if self.errors:
            raise self.errors[0]

    def __enter__(self) -> FaultyReceiver:  # noqa: PYI034 - typing.Self needs Python 3.11
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    # --- on the connections' threads

    def fault(self, path: str) -> Fault | None:
        """Return the fault that a request meets."""
        with self._lock:
            self.requests += 1
            if self.faults and (self.faults[0] is None or self.faults[0].path in path):
                fault = self.faults.popleft()
            else:
                fault = self.steady if self.steady is not None and self.steady.path in path else None
            if fault is not None:
                self.met[fault] += 1
            return fault

    def wait(self, seconds: float | None) -> None:
        """Wait so long, or until the end."""
        self._released.wait(seconds)

    def carry_out(self, handler: BaseHTTPRequestHandler, body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        """Do what a request asks for and return the answer to it."""
        if self._target:
            headers = {name: value for name, value in handler.headers.items() if name.lower() not in _HOP_BY_HOP}
            answer = requests.request(
                handler.command, self._target + handler.path, data=body, headers=headers, timeout=60
            )
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            if answer.ok and handler.path.endswith("/v1/traces") and "content-encoding" not in handler.headers:
                self._keep_account(_spans_in(body))
            return answer.status_code, kept, answer.content
        spans = _spans_in(body)
        status = self.refuses(spans, len(body))
        if status:
            return status, {}, b"the receiver does not take this"
        self._keep_account(spans)
        return 200, {}, b""

    def _keep_account(self, spans: Sequence[Any]) -> None:
        with self._lock:
            self.stored.update(span.span_id.hex() for span in spans)
            self.names.update(span.name for span in spans)
            for span in spans:
                self.times[span.span_id] = span.parent_span_id, span.start_time_unix_nano, span.end_time_unix_nano

    def keep(self, connection: socket.socket) -> None:
        """Remember a connection, to break it."""
        with self._lock:
            self._open.add(connection)

    def forget(self, connection: socket.socket) -> None:
        """Forget a connection that has ended."""
        with self._lock:
            self._open.discard(connection)


def _spans_in(body: bytes) -> list[Any]:
    request = ExportTraceServiceRequest.FromString(body)
    return [span for resource in request.resource_spans for scope in resource.scope_spans for span in scope.spans]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], receiver: FaultyReceiver) -> None:
        self.receiver = receiver
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Keep an error for the end of the test; clients that go away belong to it."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            self.receiver.errors.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        self.server.receiver.keep(self.connection)
        try:
            super().handle()
        finally:
            self.server.receiver.forget(self.connection)

    def do_POST(self) -> None:
        receiver = self.server.receiver
        size = int(self.headers.get("content-length") or 0)
        fault = receiver.fault(self.path) or Fault()
        if fault.reset == "body":
            self.rfile.read(size // 2)
            return self._break()
        body = self.rfile.read(size)
        if len(body) < size:
            self.close_connection = True
            return None
        if fault.delay:
            receiver.wait(fault.delay)
        if fault.hangs and not fault.after_commit:
            return self._hang()
        status, headers, answer = fault.status, dict(fault.headers), b"no"
        if not fault.status or fault.after_commit:
            try:
                real = receiver.carry_out(self, body)
            except requests.ConnectionError:
                self.close_connection = True
                return None
            status, headers, answer = (fault.status, dict(fault.headers), b"no") if fault.status else real
        if fault.hangs:
            return self._hang()
        if fault.reset == "answer":
            self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
            return self._break()
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)
        return None

    do_GET = do_PUT = do_PATCH = do_DELETE = do_POST

    def _hang(self) -> None:
        self.close_connection = True
        self.server.receiver.wait(None)

    def _break(self) -> None:
        """Reset the connection: the other side gets no orderly end."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def log_message(self, *unused: object) -> None:
        pass
