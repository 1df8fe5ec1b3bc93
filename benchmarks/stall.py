"""How long an event loop stands still while the exporter's thread encodes a queue full of spans."""

from __future__ import annotations

import asyncio
import gc
from time import perf_counter, process_time

from benchmarks.tracers.tracer import BenchmarkTracer, Transport
from benchmarks.workloads import STALL

TICK = 0.001
"""Seconds that the loop means to sleep each time."""


def measure_stall(tracer: BenchmarkTracer, transport: Transport) -> dict[str, float]:
    """Return the longest stall, in seconds.

    `cpu` is the most CPU time that the process took between two turns of the loop, which has nothing to do itself:
    what other programs on the machine take does not count. `wall` is the same by the clock.
    """
    function, argument = tracer.trace(STALL.function()), STALL.make_input()
    before = transport.spans
    gc.collect()
    transport.open.clear()
    with tracer.trajectory():
        for _ in range(STALL.calls):
            function(argument, 1.0)
    result = asyncio.run(_tick_while_flushing(tracer, transport))
    if transport.spans - before < STALL.calls:
        raise RuntimeError(f"{transport.spans - before} of {STALL.calls} spans were exported")
    return result


async def _tick_while_flushing(tracer: BenchmarkTracer, transport: Transport) -> dict[str, float]:
    longest_cpu = longest_wall = 0.0
    flushing = asyncio.create_task(asyncio.to_thread(tracer.flush))
    transport.open.set()
    while not flushing.done():
        wall, cpu = perf_counter(), process_time()
        await asyncio.sleep(TICK)
        longest_cpu = max(longest_cpu, process_time() - cpu - TICK)
        longest_wall = max(longest_wall, perf_counter() - wall - TICK)
    await flushing
    return {"cpu": longest_cpu, "wall": longest_wall}
