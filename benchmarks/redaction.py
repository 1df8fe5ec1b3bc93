"""`python -m benchmarks.redaction`: what redaction finds, what else it changes, and what it costs.

Recall and false changes are counted on cases by others; `--quality` prints only these, and how the time grows with a
text's length, on texts made from each pattern.

Two processes take turns at the same calls, one with redaction and one without; what the first takes longer is
redaction. The delivery thread is measured, which sends OTLP to a sink in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.payloads import answer, chat
from benchmarks.redaction_quality import MOST_GROWTH, false_changes, growth, megabytes_a_second, recall

KB = 1000
_CODE = (
    "def total(prices: list[float], tax_rate: float = 0.19) -> float:\n    subtotal = sum(prices)\n"
    "    return round(subtotal * (1 + tax_rate), 2)\n\n"
    "class Cart:\n    def __init__(self, user_id: int) -> None:\n        self.user_id = user_id\n"
)


def tool_calls(size: int) -> list[dict[str, Any]]:
    """Return a coding agent's conversation of about `size` bytes: programs, and tool calls with JSON in a text."""
    messages: list[dict[str, Any]] = []
    while len(json.dumps(messages)) < size:
        arguments = json.dumps({"path": "shop/cart_total.py", "new_text": _CODE})
        call = {"id": "call_7", "type": "function", "function": {"name": "edit_file", "arguments": arguments}}
        messages.append({"role": "assistant", "content": "I change `cart_total.py`.", "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": "call_7", "content": f"written: 12 lines\n{_CODE}"})
    return messages


def with_secrets(size: int) -> list[dict[str, Any]]:
    """Return a chat of about `size` bytes with a secret in it, so that it is parsed and written anew."""
    return [*chat(size), {"role": "user", "content": "log in with password=hunter2x9"}]


PAYLOADS: dict[str, Callable[[int], Any]] = {"chat": chat, "programs": tool_calls, "chat, a secret": with_secrets}
SIZES = {"2 KB": (2 * KB, 1000), "50 KB": (50 * KB, 100)}
"""Bytes of the input, and of the output again; calls in one turn."""


class Sink(BaseHTTPRequestHandler):
    """Takes every request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


def serve() -> None:
    """Be the sink."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Sink)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def work(switch: str, endpoint: str) -> None:
    """Answer each line on stdin, a payload's name and a size, with microseconds of CPU per span."""
    import otel_rollout
    from otel_rollout.record import runtime

    settings: dict[str, Any] = {} if switch == "on" else {"redact_keys": "none", "redact_patterns": "none"}
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    otel_rollout.init("benchmark", "redaction", backend="otlp", **settings)
    pipeline = runtime.pipeline
    clock = time.CLOCK_THREAD_CPUTIME_ID
    if pipeline is not None and pipeline.queues:
        # The thread starts with the first span.
        otel_rollout.rollout_trace_op(lambda: 1)()
        otel_rollout.flush(10)
        thread = pipeline.queues[0]._thread
        clock = time.pthread_getcpuclockid((thread._ident or 0) if thread is not None else 0)
    for line in sys.stdin:
        name, size = json.loads(line)
        length, calls = SIZES[size]
        given = PAYLOADS[name](length)
        result = {**answer(60), "messages": PAYLOADS[name](length)}

        @otel_rollout.rollout_trace_op
        def generate(messages: Any, temperature: float = 1.0, result: Any = result) -> Any:
            return result

        start = time.clock_gettime(clock)
        with otel_rollout.rollout_trace_attr(12, 345, 3):
            for _ in range(calls):
                generate(given, 0.7, {})
        if not otel_rollout.flush(60):
            raise RuntimeError(str(otel_rollout.stats()))
        print(json.dumps((time.clock_gettime(clock) - start) / calls * 1e6), flush=True)


class Worker:
    """A process that measures.

    Args:
        switch: Whether redaction is `on` or `off`.
        endpoint: The sink's.
    """

    def __init__(self, switch: str, endpoint: str) -> None:
        command = [sys.executable, "-m", "benchmarks.redaction", "--work", switch, endpoint]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def measure(self, name: str, size: str) -> float:
        """Return microseconds of CPU per span."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, size]) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def run(rounds: int) -> list[dict[str, Any]]:
    """Return one row per payload and size.

    Args:
        rounds: Turns of each worker at each of these, after one that does not count.
    """
    sink = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.redaction", "--serve"], stdout=subprocess.PIPE, text=True
    )
    assert sink.stdout is not None
    endpoint = f"http://127.0.0.1:{sink.stdout.readline().strip()}"
    rows = []
    workers = {switch: Worker(switch, endpoint) for switch in ("on", "off")}
    try:
        for name in PAYLOADS:
            for size in SIZES:
                samples: dict[str, list[float]] = {"on": [], "off": []}
                for number in range(-1, rounds):
                    order = ("on", "off") if number % 2 else ("off", "on")
                    for switch in order:
                        measured = workers[switch].measure(name, size)
                        if number >= 0:
                            samples[switch].append(measured)
                shares = [1 - off / on for on, off in zip(samples["on"], samples["off"], strict=True)]
                rows.append(
                    {
                        "where": "delivery thread",
                        "payload": f"{name}, {size}",
                        "without_us": statistics.median(samples["off"]),
                        "with_us": statistics.median(samples["on"]),
                        "ratio": statistics.median(samples["on"]) / statistics.median(samples["off"]),
                        "share": statistics.median(shares),
                        "share_of_minima": 1 - min(samples["off"]) / min(samples["on"]),
                    }
                )
    finally:
        for worker in workers.values():
            worker.close()
        sink.kill()
        sink.wait()
    return rows


def print_quality() -> None:
    """Count and print recall, false changes, speed and growth."""
    from otel_rollout.finish import Redactor

    redactor = Redactor()
    print("| cases | |\n| --- | ---: |")
    for name in ("forms", "keys"):
        print(f"| recall, {name} | {recall(name, redactor):.3f} |")
    for name, (changed, count) in false_changes(redactor).items():
        print(f"| changed, {name} | {changed} of {count:,} |")
    for name, speed in megabytes_a_second(redactor).items():
        print(f"| MB a second of CPU, {name} | {speed:.0f} |")
    worst = growth(redactor)
    over = sum(ratio > MOST_GROWTH for ratio, _ in worst)
    print(f"| time at twice the length, median of {len(worst)} texts | {statistics.median(dict(worst)):.2f} |")
    print(f"| texts over {MOST_GROWTH} | {over} |\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quality", action="store_true", help="only recall, false changes, speed and growth")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--smoke", action="store_true", help="one round, only to see that everything runs")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
    elif arguments.work:
        work(*arguments.work)
    elif arguments.quality:
        print_quality()
    else:
        if not arguments.json and not arguments.smoke:
            print_quality()
        rows = run(1 if arguments.smoke else 15)
        if arguments.json:
            print(json.dumps(rows, indent=2))
            return
        print("|  | without | with | redaction's share | of the minima |\n| --- | ---: | ---: | ---: | ---: |")
        for row in rows:
            print(
                f"| {row['where']}: {row['payload']} | 1.00 | {row['ratio']:.2f} | {row['share']:.0%} "
                f"| {row['share_of_minima']:.0%} |"
            )


if __name__ == "__main__":
    main()
