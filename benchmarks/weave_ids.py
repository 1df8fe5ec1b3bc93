"""`python -m benchmarks.weave_ids`: what W&B's trace server takes for long lists of token ids, as lists and as text."""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import time
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_rollout_weave import WeaveSpanExporter
from scripts.environments import ensure

COUNTS = (8_000, 32_000, 130_000)


def span_with_ids(count: int) -> ReadableSpan:
    """Return a span that takes this many token ids."""
    ids = [random.randrange(152_000) for _ in range(count)]
    return ReadableSpan(
        name="Policy.generate",
        context=SpanContext(random.getrandbits(128), random.getrandbits(64), is_remote=False),
        resource=Resource({"rollout.project_name": "team/ids"}),
        attributes={"input.value": json.dumps({"prompt_ids": ids}), "input.mime_type": "application/json"},
        start_time=time.time_ns(),
        end_time=time.time_ns(),
        instrumentation_scope=InstrumentationScope("otel_rollout"),
    )


def main() -> None:
    """Measure both ways in turn and print the medians."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.weave_ids", description=__doc__)
    parser.add_argument("--store", choices=("memory", "clickhouse"), default="clickhouse")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
    from servers.weave_server import WeaveServer

    with WeaveServer(ensure("weave"), store=arguments.store) as server:
        os.environ.update(server.variables)
        exporters = [WeaveSpanExporter(ids_as_text=False), WeaveSpanExporter(ids_as_text=True)]
        for exporter in exporters:
            exporter.send([span_with_ids(100)])
        print(f"{arguments.store} store, seconds for a call, medians of {arguments.rounds} rounds")
        for count in COUNTS:
            seconds: list[list[float]] = [[], []]
            for _ in range(arguments.rounds):
                for exporter, taken in zip(exporters, seconds, strict=True):
                    span = span_with_ids(count)
                    start = time.perf_counter()
                    outcome = exporter.send([span])
                    taken.append(time.perf_counter() - start)
                    if outcome.reason:
                        raise RuntimeError(outcome.reason)
            as_list, as_text = (statistics.median(taken) for taken in seconds)
            print(f"{count:>8,} ids: list {as_list:.3f}, text {as_text:.3f}, ratio {as_list / as_text:.1f}")
        for exporter in exporters:
            exporter.shutdown()


if __name__ == "__main__":
    main()
