"""An inference engine of its own: plain OpenTelemetry, the caller's `traceparent`, and no otel-rollout."""

import sys

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

provider = TracerProvider(resource=Resource.create({"service.name": "engine"}))
provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
context = TraceContextTextMapPropagator().extract({"traceparent": sys.argv[1]})
tracer = provider.get_tracer("engine")
with tracer.start_as_current_span("prefill", context), tracer.start_as_current_span("attention"):
    pass
provider.shutdown()
assert "otel_rollout" not in sys.modules
assert trace.get_tracer_provider() is not provider
