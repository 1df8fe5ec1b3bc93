"""A pass-through in front of an OTLP/HTTP receiver that counts the spans it saw taken.

Phoenix shows a span once, however often it was sent; here a repetition can be seen.
"""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

__all__ = ["RecordingProxy"]


class RecordingProxy:
    """Forwards every POST, and counts the spans of those that were answered with a 2xx status.

    Args:
        target: The receiver's base address.
    """

    def __init__(self, target: str) -> None:
        self.taken: Counter[str] = Counter()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(target, self.taken, threading.Lock()))
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    def endpoint(self, protocol: str) -> str:
        """Return the OTLP endpoint; there is one for HTTP only."""
        assert protocol == "http/protobuf"
        return self.address

    def __enter__(self) -> RecordingProxy:  # noqa: PYI034 - typing.Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(target: str, taken: Counter[str], lock: threading.Lock) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {"Content-Type": self.headers["Content-Type"]}
            try:
                answer = requests.post(target + self.path, data=body, headers=headers, timeout=30)
            except requests.ConnectionError:
                # As the receiver would: no answer.
                self.close_connection = True
                return
            if answer.ok:
                with lock:
                    taken.update(_span_ids(body))
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers.get("Content-Type", "text/plain"))
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        def log_message(self, *unused: object) -> None:
            pass

    return Handler


def _span_ids(body: bytes) -> list[str]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        span.span_id.hex()
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
