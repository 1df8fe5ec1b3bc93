"""One worker of many that start at once: exports trajectories; prints what it couldn't deliver, and what it imported.

python worker.py <tracking uri> <project> <number of the worker> <trajectories> [with a run]
"""

from __future__ import annotations

import os
import sys

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_rollout_mlflow import MlflowSpanExporter

START_NS = 1_760_000_000_000_000_000


def trajectory(project: str, worker: int, number: int, children: int = 4) -> list[ReadableSpan]:
    """Return a root and its children, the root last."""
    trace_id = int.from_bytes(os.urandom(16), "big")
    resource = Resource({"rollout.project_name": project})
    contexts = [
        SpanContext(trace_id, int.from_bytes(os.urandom(8), "big") or 1, is_remote=False) for _ in range(children + 1)
    ]
    return [
        ReadableSpan(
            name="op" if place else "trajectory",
            context=contexts[place],
            parent=contexts[0] if place else None,
            resource=resource,
            attributes={
                "rollout.step": number,
                "rollout.sample_index": worker,
                "rollout.experiment_name": "exp-1",
                "input.value": "[1,2,3]",
            },
            start_time=START_NS,
            end_time=START_NS + 1000,
            instrumentation_scope=InstrumentationScope("otel_rollout"),
        )
        for place in range(children, -1, -1)
    ]


def main() -> None:
    """Export, and say what was lost, and which heavy packages this process has."""
    uri, project, worker, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    exporter = MlflowSpanExporter(tracking_uri=uri, create_run=len(sys.argv) > 5)
    exporter.export_timeout = 240.0
    lost = 0
    for number in range(count):
        if exporter.export(trajectory(project, worker, number)) is not SpanExportResult.SUCCESS:
            lost += 1
    exporter.shutdown()
    imported = [name for name in ("mlflow", "sqlalchemy", "alembic") if name in sys.modules]
    sys.stdout.write(f"lost {lost}, imported {imported}\n")


if __name__ == "__main__":
    main()
