"""An exporter that writes every span as a line of JSON, one file per process."""

import json
import os
import time
from pathlib import Path

from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout.testing import InMemorySpanExporter


class JsonSpanExporter(SpanExporter):
    """Writes to the folder `VERL_TEST_FOLDER`."""

    def export(self, spans):
        """Write the spans, slowly if asked to."""
        time.sleep(float(os.environ.get("VERL_TEST_SECONDS_PER_EXPORT", "0")))
        memory = InMemorySpanExporter()
        memory.export(spans)
        with (Path(os.environ["VERL_TEST_FOLDER"]) / f"{os.getpid()}.jsonl").open("a") as file:
            for record, span in zip(memory.as_dicts(), spans, strict=True):
                record["trace_id"] = f"{record['trace_id']:032x}"
                record["pid"] = os.getpid()
                record["resource"] = dict(span.resource.attributes)
                file.write(json.dumps(record) + "\n")
        return SpanExportResult.SUCCESS


class BrokenSpanExporter(SpanExporter):
    """Raises."""

    def export(self, spans):
        """Raise."""
        raise RuntimeError("broken")


class HangingSpanExporter(SpanExporter):
    """Never comes back."""

    def export(self, spans):
        """Sleep."""
        time.sleep(1000)
