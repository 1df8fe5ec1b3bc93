"""A training program that is told over stdin what to do, and says on stdout what came of it.

Each line is `{"do": …, …}`; each answer is a line of JSON. The ids of the spans that ended go to the file SENT as they
end, and the final counts to the file REPORT at the exit of the process, after otel-rollout's own exit.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace.export import SpanExporter

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op

SENT = os.open(os.environ["SENT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
PAUSE = 0.01


class Raising(SpanExporter):
    """Raises whatever it is given."""

    def export(self, spans: Any) -> Any:
        """Raise."""
        raise SystemExit("not today")


class Blocking(SpanExporter):
    """Never returns, not from its shutdown either."""

    def export(self, spans: Any) -> Any:
        """Wait for ever."""
        threading.Event().wait()

    def shutdown(self) -> None:
        """Wait for ever."""
        threading.Event().wait()


CLASSES = {"raising": Raising, "blocking": Blocking}


def note_sent() -> None:
    """Write down the current span's id: it will end, whatever becomes of it."""
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        os.write(SENT, context.span_id.to_bytes(8, "big"))


@rollout_trace_op(kind="LLM")
async def generate(prompt: str, seed: int, size: int) -> str:
    note_sent()
    await asyncio.sleep(PAUSE)
    return f"{len(prompt)} {random.Random(seed).randbytes(size // 2).hex()}"


@rollout_trace_op(kind="TOOL")
def tool(text: str) -> int:
    note_sent()
    if text.startswith("1"):
        raise ValueError(f"no tool takes {text[:8]}")
    return len(text)


@rollout_trace_op
def bad(number: int) -> int:
    note_sent()
    return number


async def rollout(number: int, size: int, is_bad: bool) -> list[Any]:
    with rollout_trace_attr(sample_index=number // 4, step=1, rollout_n=number % 4, name="trajectory"):
        note_sent()
        answer = await generate("x" * (number % 20), number, size)
        seen: list[Any] = [hashlib.sha256(answer.encode()).hexdigest(), bad(number) if is_bad else number]
        try:
            seen.append(tool(answer))
        except ValueError as error:
            own = [frame.name for frame in traceback.extract_tb(error.__traceback__) if frame.filename == __file__]
            seen += [repr(error), repr(error.__cause__), repr(error.__context__), own]
        # Its children have ended, and wait for their root.
        await asyncio.sleep(PAUSE)
        annotate(reward=1.0, output=answer)
        return seen


async def train(trajectories: int, size: int, bads: int, concurrency: int) -> list[Any]:
    free = asyncio.Semaphore(concurrency)

    async def one(number: int) -> list[Any]:
        async with free:
            return await rollout(number, size, number < bads)

    return await asyncio.gather(*(one(number) for number in range(trajectories)))


def trace_from_threads() -> None:
    """Leave threads behind that trace: two of a pool, for a while, and a daemon, for ever."""

    def rollouts(name: str, times: float) -> None:
        while times > 0:
            with rollout_trace_attr(sample_index=0, step=2, rollout_n=0, name=name):
                note_sent()
                time.sleep(0.01)
            times -= 1

    pool = ThreadPoolExecutor(2)
    for _ in range(2):
        pool.submit(rollouts, "pool", 40)
    threading.Thread(target=rollouts, args=("daemon", float("inf")), daemon=True).start()


unfinished = ExitStack()


def counts() -> dict[str, Any]:
    return json.loads(json.dumps(otel_rollout.stats(), default=vars))


def memory(field: str) -> int:
    """Return bytes resident in memory, now (VmRSS) or at most so far (VmHWM); getrusage counts the parent's too."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def do(what: str, given: dict[str, Any]) -> Any:
    if what == "train":
        started = time.monotonic()
        result = asyncio.run(train(given["trajectories"], given["size"], given["bads"], given.get("concurrency", 8)))
        return {
            "result": result,
            "seconds": time.monotonic() - started,
            "rss": memory("VmRSS"),
            "peak": memory("VmHWM"),
        }
    if what == "flush":
        return otel_rollout.flush(given["seconds"])
    if what == "shutdown":
        return otel_rollout.shutdown(given["seconds"])
    if what == "stats":
        return counts()
    if what == "memory":
        return {"rss": memory("VmRSS"), "peak": memory("VmHWM")}
    if what == "leave open":
        unfinished.enter_context(rollout_trace_attr(sample_index=0, step=3, rollout_n=0, name="unfinished"))
        return tool("a child that has ended")
    if what == "threads":
        return trace_from_threads()
    if what == "raise":
        raise RuntimeError("the trainer fails")
    if what == "exit":
        os._exit(given["code"])
    if what == "wait":
        # What a signal interrupts; not in one long sleep: a signal that comes just before that begins doesn't end it.
        sys.stdout.write("null\n")
        sys.stdout.flush()
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            time.sleep(0.01)
    raise LookupError(what)


def exit_on_sigterm(*_: Any) -> None:
    """Exit between two steps of the event loop: asyncio can lose a task that an exception of a handler hits."""
    status = int(os.environ["EXIT_ON_SIGTERM"])
    try:
        asyncio.get_running_loop().call_soon_threadsafe(sys.exit, status)
    except RuntimeError:
        sys.exit(status)


def report() -> None:
    Path(os.environ["REPORT"]).write_text(json.dumps(counts()))


def main() -> None:
    atexit.register(report)
    if os.environ.get("EXIT_ON_SIGTERM"):
        signal.signal(signal.SIGTERM, exit_on_sigterm)
    names = [name for name in os.environ.get("BACKENDS", "").split(",") if name]
    backend = [CLASSES[name]() if name in CLASSES else name for name in names] or None
    settings = json.loads(os.environ.get("SETTINGS", "{}"))
    otel_rollout.init(os.environ["PROJECT"], "experiment", backend=backend, **settings)
    for line in sys.stdin:
        given = json.loads(line)
        sys.stdout.write(json.dumps(do(given["do"], given)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
