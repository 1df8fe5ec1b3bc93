"""One process of the soak: traces until a line comes on stdin, or for so many seconds, and reports what it counted.

soak_worker.py '{"folder": …, "endpoints": […], "names": […], "number": …, "seconds": …, "forks": …, …}'
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import threading
from pathlib import Path
from typing import Any

from opentelemetry import trace

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout_otlp import OtlpHttpSpanExporter

GIVEN: dict[str, Any] = json.loads(sys.argv[1])
TASKS = 8
SECONDS_FOR_THE_REST = 90.0
SECONDS_BEFORE_FORK = 1.0


class Notes:
    """What this process writes down for itself."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(exist_ok=True)
        self.sent = os.open(self.folder / "sent", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.most_queued: dict[str, int] = {}


notes = Notes(GIVEN["folder"])


def note_sent() -> None:
    os.write(notes.sent, trace.get_current_span().get_span_context().span_id.to_bytes(8, "big"))


@rollout_trace_op(kind="LLM")
async def generate(rng: random.Random) -> str:
    note_sent()
    await asyncio.sleep(GIVEN["pause"] * rng.random())
    return "a word " * int(min(30_000, rng.lognormvariate(4, 2)))


@rollout_trace_op(kind="TOOL")
def tool(text: str) -> int:
    note_sent()
    return len(text)


@rollout_trace_op
def bad() -> None:
    note_sent()


async def task(number: int, stop: threading.Event) -> None:
    rng = random.Random(f"{GIVEN['number']} {number}")
    step = 0
    while not stop.is_set():
        with rollout_trace_attr(sample_index=number, step=step // 20, rollout_n=GIVEN["number"], name="trajectory"):
            note_sent()
            answer = await generate(rng)
            tool(answer)
            if rng.random() < 0.002:
                bad()
            annotate(reward=rng.random(), output=answer)
        step += 1
        await asyncio.sleep(GIVEN["pause"])


async def rollouts(stop: threading.Event) -> None:
    await asyncio.gather(*(task(number, stop) for number in range(TASKS)))


def memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def watch(stop: threading.Event) -> None:
    """Note the most that a queue held."""
    while not stop.wait(0.1):
        for name, exporter in otel_rollout.stats().exporters.items():
            notes.most_queued[name] = max(notes.most_queued.get(name, 0), exporter.queued_bytes)


def trace_until(stop: threading.Event) -> None:
    watcher = threading.Thread(target=watch, args=(stop,))
    watcher.start()
    asyncio.run(rollouts(stop))
    watcher.join()


def trace_for(seconds: float) -> None:
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.start()
    trace_until(stop)
    timer.join()


def init() -> None:
    exporters: list[Any] = [
        OtlpHttpSpanExporter(endpoint=f"{url}/v1/traces", timeout=2.0) for url in GIVEN["endpoints"]
    ]
    otel_rollout.init(
        "soak",
        "soak",
        backend=[*exporters, *GIVEN["names"]],
        max_queue_bytes=GIVEN["queue"],
        max_batch_bytes=GIVEN["queue"] // 16,
        schedule_delay_ms=100,
        shutdown_timeout_ms=2000,
    )


def main() -> None:
    global notes  # noqa: PLW0603 - a forked child keeps notes of its own
    init()
    before = memory("VmRSS")
    child = None
    if GIVEN["seconds"] is None:
        stop = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
        trace_until(stop)
        otel_rollout.flush(SECONDS_FOR_THE_REST)
        otel_rollout.shutdown(SECONDS_FOR_THE_REST)
    else:
        if GIVEN["forks"]:
            trace_for(SECONDS_BEFORE_FORK)
            child = os.fork()
            if child == 0:
                notes = Notes(f"{GIVEN['folder']}-child")
        trace_for(GIVEN["seconds"])
        # In whatever weather there is.
        otel_rollout.shutdown()
    report = {
        "stats": otel_rollout.stats(),
        "most_queued": notes.most_queued,
        "growth": memory("VmHWM") - before,
    }
    (notes.folder / "report.json").write_text(json.dumps(report, default=vars))
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


if __name__ == "__main__":
    main()
