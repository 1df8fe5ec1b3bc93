"""Interleavings of `put`, `flush` and `shutdown`, chosen by frontrun; started by its command, which replaces locks.

Writes a JSON object: if the account was exact in every interleaving, and how many there were.
"""

from __future__ import annotations

import json
import sys
import threading

import frontrun
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags

from otel_rollout.deliver import QueueLimits, SpanOutbox
from otel_rollout.finish import PayloadFinisher, SpanReader

RESOURCE = Resource({})


class Sink(SpanExporter):
    """Takes everything."""

    def export(self, spans):
        """Take spans."""
        return SpanExportResult.SUCCESS


class NoLock:
    """What a lock is without locking."""

    def __enter__(self):
        return True

    def __exit__(self, *exception):
        return False


class State:
    """An outbox whose thread doesn't run: frontrun has to know each thread. The lock is one that it knows."""

    def __init__(self, *, has_lock: bool) -> None:
        reader = SpanReader(RESOURCE, InstrumentationScope("test"), PayloadFinisher(2**30, None))
        self.outbox = SpanOutbox("sink", Sink(), reader, QueueLimits(delay=0.0))
        self.outbox._thread.is_started = True
        self.outbox._lock = threading.RLock() if has_lock else NoLock()
        self.spans = [
            ReadableSpan(
                "op", SpanContext(1, number, False, TraceFlags(1)), resource=RESOURCE, start_time=1, end_time=2
            )
            for number in (1, 2)
        ]

    def is_exact(self) -> bool:
        """Return True if each span is counted once."""
        stats = self.outbox.stats()
        return stats.recorded == 2 == stats.delivered + stats.queued + sum(stats.lost.values())


def shutdown(state: State) -> None:
    """End at once."""
    state.outbox.shutdown(0.0)
    state.outbox.join()


FIRST, SECOND = (lambda state: state.outbox.put(state.spans[0])), (lambda state: state.outbox.put(state.spans[1]))
CASES = {
    "put": [FIRST, SECOND],
    "flush": [FIRST, SECOND, lambda state: state.outbox.flush(0.0)],
    "shutdown": [FIRST, SECOND, shutdown],
}


if __name__ == "__main__":
    has_lock = sys.argv[2] == "lock"
    result = frontrun.explore(
        setup=lambda: State(has_lock=has_lock),
        workers=CASES[sys.argv[1]],
        invariant=State.is_exact,
        max_executions=150,
        trace_packages=["otel_rollout.*"],
    )
    sys.stdout.write(json.dumps({"holds": result.property_holds, "explored": result.num_explored}) + "\n")
