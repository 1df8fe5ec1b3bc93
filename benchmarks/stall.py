"""How long an event loop stands still while the exporter's thread encodes a queue full of spans."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from time import perf_counter, process_time, thread_time

from benchmarks.tracers.tracer import BenchmarkTracer, Transport
from benchmarks.workloads import STALL

TICK = 0.001
"""Seconds that the loop means to sleep each time."""
FLOOR_SECONDS = 0.15


def measure_stall(tracer: BenchmarkTracer, transport: Transport) -> dict[str, float]:
    """Return the longest stall, in seconds.

    `cpu` is the most CPU time that the process took between two turns of the loop, which has nothing to do itself:
    what other programs on the machine take does not count. `wall` is the same by the clock. `floor` is what `cpu`
    comes to while a thread runs nothing but small steps of Python: it gives up the GIL every 5 ms.
    """
    function, argument = tracer.trace(STALL.function()), STALL.make_input()
    before = transport.spans
    gc.collect()
    transport.open.clear()
    with tracer.trajectory():
        for _ in range(STALL.calls):
            function(argument, 1.0)
    transport.open.set()
    cpu, wall = asyncio.run(_tick_during(tracer.flush))
    if transport.spans - before < STALL.calls:
        raise RuntimeError(f"{transport.spans - before} of {STALL.calls} spans were exported")
    floor, _ = asyncio.run(_tick_during(_run_python))
    return {"cpu": cpu, "wall": wall, "floor": floor}


def _run_python() -> None:
    end = thread_time() + FLOOR_SECONDS
    while thread_time() < end:
        sum(range(50))


async def _tick_during(work: Callable[[], None]) -> tuple[float, float]:
    longest_cpu = longest_wall = 0.0
    working = asyncio.create_task(asyncio.to_thread(work))
    while not working.done():
        wall, cpu = perf_counter(), process_time()
        await asyncio.sleep(TICK)
        longest_cpu = max(longest_cpu, process_time() - cpu - TICK)
        longest_wall = max(longest_wall, perf_counter() - wall - TICK)
    await working
    return longest_cpu, longest_wall
