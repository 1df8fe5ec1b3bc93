"""How much memory a tracer takes while its exporter hangs and spans go on coming."""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

from benchmarks.tracers.tracer import BenchmarkTracer, Transport
from benchmarks.workloads import BLOCKED


def measure_memory(tracer: BenchmarkTracer, transport: Transport, calls: int) -> dict[str, float]:
    """Return by how many bytes the process grew over `calls` calls; the transport stays closed."""
    function, argument = tracer.trace(BLOCKED.function()), BLOCKED.make_input()
    function(argument, 1.0)
    tracer.flush()
    gc.collect()
    before = resident_bytes()
    transport.open.clear()
    with tracer.trajectory():
        for _ in range(calls):
            function(argument, 1.0)
    return {"bytes": resident_bytes() - before}


def resident_bytes() -> int:
    """Return the process's resident memory; its peak where the system doesn't tell the present value."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
