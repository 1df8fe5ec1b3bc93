"""A burst of calls: what it costs the calling thread, and what it costs the whole process until it is encoded."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from time import process_time, thread_time
from typing import Any

from benchmarks.tracers.tracer import BenchmarkTracer, Transport
from benchmarks.workloads import Workload

TEMPERATURE = 0.7
BARE_REPEATS = 10
"""The function itself takes so little that it is called more often to be measured."""
WARM_SHARE = 3
"""One in this many calls goes before, unmeasured: another process has just had the caches."""


class Burst:
    """One workload, ready to be repeated.

    Args:
        workload: What is called.
        tracer: Traces it; started.
        transport: Where the tracer's exporter leads; None where tracing is off.
    """

    def __init__(self, workload: Workload, tracer: BenchmarkTracer, transport: Transport | None) -> None:
        self._workload = workload
        self._tracer = tracer
        self._transport = transport
        self._bare = workload.function()
        self._traced = tracer.trace(self._bare)
        self._input = workload.make_input()
        self._loop = asyncio.new_event_loop() if workload.is_async else None

    def run(self) -> dict[str, float]:
        """Return seconds of CPU per call: `caller` and `process` beyond what the bare function takes.

        Raises:
            RuntimeError: Not every span reached the exporter, so that the figures would flatter the tracer.
        """
        calls = self._workload.calls
        with self._tracer.trajectory():
            self._time_calls(self._traced, -(-calls // WARM_SHARE))
        if self._transport:
            self._tracer.flush()
        before = self._transport.spans if self._transport else 0
        gc.collect()
        bare = self._time_calls(self._bare, calls * BARE_REPEATS) / (calls * BARE_REPEATS)
        start = process_time()
        with self._tracer.trajectory():
            caller = self._time_calls(self._traced, calls) / calls
        if self._transport:
            self._tracer.flush()
        process = (process_time() - start) / calls
        if self._transport and self._transport.spans - before < calls:
            raise RuntimeError(f"{self._transport.spans - before} of {calls} spans were exported")
        return {"caller": max(0.0, caller - bare), "process": max(0.0, process - bare)}

    def _time_calls(self, function: Callable[..., Any], calls: int) -> float:
        if self._loop is not None:
            return self._loop.run_until_complete(_time_awaits(function, self._input, calls))
        argument = self._input
        start = thread_time()
        for _ in range(calls):
            function(argument, TEMPERATURE)
        return thread_time() - start


async def _time_awaits(function: Callable[..., Any], argument: Any, calls: int) -> float:
    start = thread_time()
    for _ in range(calls):
        await function(argument, TEMPERATURE)
    return thread_time() - start
