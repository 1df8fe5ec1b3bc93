"""Spans, disks, and receivers for the tests of the file exporter."""

from __future__ import annotations

import os
import subprocess
from concurrent import futures

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, TraceFlags

from tests.servers.otelcol_server import relay_to

RESOURCE = Resource({"service.name": "test"})


@pytest.fixture
def make_trajectory():
    """Makes the spans of a trajectory of step 1: so many children with a payload, then the root."""

    def make(children=2, characters=10):
        trace_id = int.from_bytes(os.urandom(16), "big")
        contexts = [
            SpanContext(trace_id, int.from_bytes(os.urandom(8), "big"), False, TraceFlags(1))
            for _ in range(children + 1)
        ]
        return [
            ReadableSpan(
                f"op {number}" if context is not contexts[-1] else "trajectory",
                context,
                parent=contexts[-1] if context is not contexts[-1] else None,
                resource=RESOURCE,
                attributes={"rollout.step": 1, "input.value": f'"{os.urandom(characters // 2).hex()}"'},
                start_time=number + 1,
                end_time=number + 2,
            )
            for number, context in enumerate(contexts)
        ]

    return make


@pytest.fixture
def mount(tmp_path):
    """Mounts a file system of 1 MiB with options, which only root may do; elsewhere the test is skipped."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = []

    def mount(options):
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return folder

    yield mount
    for each in mounted:
        subprocess.run(["umount", "--lazy", str(each)], check=True)


@pytest.fixture
def received():
    """The requests that arrived at an OTLP/gRPC receiver, whose address is `received.address`."""
    grpc = pytest.importorskip("grpc")

    class Received(list):
        address = ""

    requests = Received()

    def export(request, context):
        requests.append(request)
        return ExportTraceServiceResponse()

    handler = grpc.unary_unary_rpc_method_handler(
        export,
        request_deserializer=ExportTraceServiceRequest.FromString,
        response_serializer=ExportTraceServiceResponse.SerializeToString,
    )
    server = grpc.server(futures.ThreadPoolExecutor(2))
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {"Export": handler})])
    requests.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield requests
    server.stop(0).wait()


@pytest.fixture
def collector(received, collector_program, tmp_path):
    """An OpenTelemetry Collector that forwards to `received`."""
    with relay_to(collector_program, received.address, tmp_path / "collector") as server:
        yield server
