"""An OTLP receiver that counts what it takes, as slowly or as badly as a test wants it."""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["Receiver"]


class Receiver:
    """Takes spans over HTTP.

    Args:
        status: What it answers.
    """

    def __init__(self, status: int = 200) -> None:
        self.taken: Counter[str] = Counter()
        self.requests = 0
        self.status = status
        self.gate = threading.Semaphore(10**6)
        self.arrived = threading.Semaphore(0)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def let_through(self, count: int) -> None:
        """Answer so many requests and leave all others without an answer."""
        self.gate = threading.Semaphore(count)

    def __enter__(self) -> Receiver:  # noqa: PYI034 - typing.Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.gate.release(1000)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.arrived.release()
                receiver.gate.acquire()
                receiver.requests += 1
                if receiver.status == 200:
                    receiver.taken.update(
                        span.span_id.hex()
                        for resource in request.resource_spans
                        for scope in resource.scope_spans
                        for span in scope.spans
                    )
                try:
                    self.send_response(receiver.status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    # Whoever asked is gone.
                    self.close_connection = True

            def log_message(self, *unused: object) -> None:
                pass

        return Handler
