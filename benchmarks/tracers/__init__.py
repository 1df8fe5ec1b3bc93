"""The tracers that are compared, each behind the same few methods."""

from __future__ import annotations

from importlib import import_module

from benchmarks.tracers.tracer import BenchmarkTracer

TITLES = {
    "plain": "plain OpenTelemetry",
    "orjson": "the same with orjson",
    "ours": "otel-rollout",
    "traceloop": "traceloop",
    "openinference": "openinference",
    "logfire": "logfire",
    "langfuse": "langfuse",
}
BASELINE = "plain"
PEERS = ("traceloop", "openinference", "logfire", "langfuse")
"""These are installed in an environment of their own."""


def load_tracer(name: str) -> BenchmarkTracer:
    """Return the tracer called `name`, not started; ImportError where its package is missing."""
    tracer: BenchmarkTracer = import_module(f"benchmarks.tracers.{name}_tracer").TRACER()
    return tracer
