"""Programs that trace to a file, for tests of how a process ends: each has a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

DEADLINE = 300.0


PRELUDE = """
import multiprocessing, os, signal, sys, threading, time
import otel_rollout
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

class File(SpanExporter):
    '''Appends a line for each span: the process that delivers it, and its name.'''

    def export(self, spans):
        with open(os.environ["SPANS"], "a") as file:
            for span in spans:
                file.write(f"{os.getpid()} {span.name}\\n")
        return SpanExportResult.SUCCESS

class Hanging(SpanExporter):
    '''Never returns.'''

    def export(self, spans):
        threading.Event().wait()

def start(exporter=None, **settings):
    otel_rollout.init("project", "experiment", backend=exporter or File(), schedule_delay_ms=60_000, **settings)

def trace(name):
    with otel_rollout.rollout_trace_attr(0, 1, 0, name=name):
        pass

def await_signal():
    # Not in one long sleep: a signal that comes just before that begins doesn't end it.
    while True:
        time.sleep(0.01)
"""


RECEIVER = '''
"""An OTLP receiver; when standard input is closed it prints a line for each span: the connection, and the name."""
import http.server, os, sys, threading
from concurrent import futures
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service

received = []

def note(peer, request):
    for resource_spans in request.resource_spans:
        for scope_spans in resource_spans.scope_spans:
            received.extend(f"{peer} {span.name}" for span in scope_spans.spans)

def export(request, context):
    note(context.peer(), request)
    return trace_service.ExportTraceServiceResponse()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        note(self.client_address[1], trace_service.ExportTraceServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *arguments):
        pass

if sys.argv[1] == "grpc":
    import grpc
    method = grpc.unary_unary_rpc_method_handler(
        export,
        trace_service.ExportTraceServiceRequest.FromString,
        trace_service.ExportTraceServiceResponse.SerializeToString,
    )
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": method})])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
else:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()
print(f"http://127.0.0.1:{port}", flush=True)
sys.stdin.read()
print(*received, sep="\\n", flush=True)
os._exit(0)
'''


class Program:
    """A program that runs, and the spans that it delivered."""

    def __init__(self, folder):
        self.spans = folder / "spans"
        self.folder = folder
        self.process = None

    def start(self, body, *, python=sys.executable):
        """Start a program made of the prelude and `body`."""
        file = self.folder / "program.py"
        file.write_text(PRELUDE + textwrap.dedent(body))
        environment = {**os.environ, "SPANS": str(self.spans), "PYTHONWARNINGS": "ignore::DeprecationWarning"}
        environment.pop("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS", None)
        self.process = subprocess.Popen(
            [python, str(file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def wait(self):
        """Wait for the end; return the exit code and what was written to standard error."""
        try:
            _, errors = self.process.communicate(timeout=DEADLINE)
        except subprocess.TimeoutExpired:
            # Its children too: they hold the pipes.
            os.killpg(self.process.pid, signal.SIGKILL)
            _, errors = self.process.communicate()
            raise AssertionError(f"the program did not end: {errors}") from None
        return self.process.returncode, errors

    def run(self, body):
        """Run a program to its end."""
        self.start(body)
        return self.wait()

    def await_file(self, name):
        """Wait until the program has made a file."""
        deadline = time.monotonic() + DEADLINE
        while not (self.folder / name).exists():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)

    @property
    def delivered(self):
        """The names of the spans that were delivered, by process, in order."""
        lines = self.spans.read_text().splitlines() if self.spans.exists() else []
        processes = {}
        for line in lines:
            process, _, name = line.partition(" ")
            processes.setdefault(process, []).append(name)
        return list(processes.values())


@contextlib.contextmanager
def program_in(folder):
    """Give a program to run in a folder; it is killed at the end."""
    program = Program(folder)
    yield program
    if program.process is not None and program.process.poll() is None:
        os.killpg(program.process.pid, signal.SIGKILL)
        program.process.communicate()
