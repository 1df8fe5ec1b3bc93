"""Real senders: our `otlp` exporter, and programs that know nothing of otel-rollout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import otel_rollout
from otel_rollout_otlp import OtlpHttpSpanExporter

ENGINE = Path(__file__).parent / "programs" / "engine.py"


def test_another_program_joins_the_trajectory(start, tmp_path) -> None:
    """The spans of an inference engine that was handed `traceparent` are inside the trajectory, below its op."""
    receiver = start()
    endpoint = receiver.url.removesuffix("/v1/traces")
    otel_rollout.init("project", "experiment", backend=OtlpHttpSpanExporter(endpoint=endpoint))

    @otel_rollout.rollout_trace_op
    def generate() -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        subprocess.run(
            [sys.executable, ENGINE, carrier["traceparent"]],
            check=True,
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint},
            timeout=300,
        )

    with otel_rollout.rollout_trace_attr(sample_index=0, step=4, rollout_n=0):
        generate()
    assert otel_rollout.shutdown(30.0)
    assert receiver.stop()[0] == 0
    (one,) = otel_rollout.read_trajectories(tmp_path / "traces", step=4)
    by_name = {span.name: span for span in one.spans}
    assert one.has_root
    assert {"prefill", "attention"} < by_name.keys()
    generating = next(span for name, span in by_name.items() if "generate" in name)
    assert by_name["prefill"].parent.span_id == generating.context.span_id
    assert by_name["prefill"].resource.attributes["service.name"] == "engine"
