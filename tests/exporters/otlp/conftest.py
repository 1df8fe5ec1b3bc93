"""An OTLP receiver over HTTP or gRPC that fails as it is told: for the faults that real receivers don't show."""

from __future__ import annotations

import gzip
import http.server
import threading
import zlib
from concurrent import futures

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

_DECODERS = {None: bytes, "gzip": gzip.decompress, "deflate": zlib.decompress}
_RESOURCE = Resource({"service.name": "test"})


class _Receiver:
    """A receiver's requests and its answer; `rejected` spans are rejected by a partial success."""

    def __init__(self):
        self.requests = []
        self.headers = []
        self.sizes = []
        self.rejected = 0
        self.answers = []
        self.peers = set()

    @property
    def names(self):
        """The names of the spans, in the order of their arrival."""
        return [
            span.name
            for request in self.requests
            for resource_spans in request.resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]

    @property
    def response(self):
        """The answer to a request that is taken."""
        partial = ExportTracePartialSuccess(rejected_spans=self.rejected, error_message="odd" if self.rejected else "")
        return ExportTraceServiceResponse(partial_success=partial)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["content-length"]))
        receiver.sizes.append(len(body))
        receiver.peers.add(self.client_address)
        receiver.headers.append({name.lower(): value for name, value in self.headers.items()} | {":path": self.path})
        status, headers, answer = receiver.answers.pop(0) if receiver.answers else (200, {}, None)
        if status == 200:
            decoded = _DECODERS[self.headers["content-encoding"]](body)
            receiver.requests.append(ExportTraceServiceRequest.FromString(decoded))
        answer = receiver.response.SerializeToString() if answer is None else answer
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(answer))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def http_receiver():
    """An OTLP/HTTP receiver; `answers` holds (status, headers, body) for the next requests."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    server.receiver = receiver = _Receiver()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield receiver
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def start_grpc_receiver():
    """Starts an OTLP/gRPC receiver on a port: any free one for 0."""
    grpc = pytest.importorskip("grpc")
    servers = []

    def start(port=0):
        receiver = _Receiver()

        def export(request, context):
            receiver.sizes.append(request.ByteSize())
            receiver.peers.add(context.peer())
            receiver.headers.append(dict(context.invocation_metadata()))
            if receiver.answers:
                code, details, *metadata = receiver.answers.pop(0)
                context.set_trailing_metadata(tuple(metadata))
                context.abort(code, details)
            receiver.requests.append(request)
            return receiver.response

        handler = grpc.unary_unary_rpc_method_handler(
            export,
            request_deserializer=ExportTraceServiceRequest.FromString,
            response_serializer=ExportTraceServiceResponse.SerializeToString,
        )
        service = "opentelemetry.proto.collector.trace.v1.TraceService"
        server = grpc.server(futures.ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": handler})])
        receiver.url = f"http://127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
        server.start()
        servers.append(server)
        return receiver

    yield start
    for server in servers:
        server.stop(0).wait()


@pytest.fixture
def grpc_receiver(start_grpc_receiver):
    """An OTLP/gRPC receiver with the default limit of 4 MiB; `answers` are (status code, text, metadata…)."""
    return start_grpc_receiver()


@pytest.fixture
def bad_span():
    """A span that can't be encoded."""
    context = SpanContext(1, 2, False, TraceFlags(1))
    return ReadableSpan("bad", context, events=[Event("no time", timestamp="not a number")], start_time=1, end_time=2)


@pytest.fixture
def make_spans():
    """Makes finished spans named 0, 1, … with a payload of so many characters each."""

    def make(count, characters=10):
        return [
            ReadableSpan(
                str(number),
                SpanContext(1, number + 1, False, TraceFlags(1)),
                resource=_RESOURCE,
                attributes={"input.value": "x" * characters},
                start_time=1,
                end_time=2,
            )
            for number in range(count)
        ]

    return make
