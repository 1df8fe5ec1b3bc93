"""`python -m benchmarks.messages`: the cost of `chat_messages` on the wire, at rest, and of the delivery thread's CPU.

Trajectories are converted and encoded with and without messages, in turns, in one thread. The wire is OTLP as protobuf,
plain and with gzip; at rest is a line of a trace folder with zstd.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import zstandard
from opentelemetry.sdk.resources import Resource
from opentelemetry.trace import SpanContext, TraceFlags

from benchmarks.payloads import chat, token_ids
from otel_rollout import semconv
from otel_rollout.finish import PayloadFinisher, Redactor, SpanReader
from otel_rollout.finish.chat_writer import ChatWriter
from otel_rollout.otlp import encode_spans
from otel_rollout.record import RolloutSpan, TrajectoryState
from otel_rollout.record.provider import SCOPE
from otel_rollout.record.snapshot import take_snapshot

TURNS = 8
TRAJECTORIES = 20
SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class Words:
    """A tokenizer whose decoded text is as long as a real one's."""

    def decode(self, ids: list[int]) -> str:
        """Return five characters for each id."""
        return "".join([f"{number % 9973:04d} " for number in ids])


def histories(turn: int) -> tuple[Any, Any]:
    """Return a turn of an agent that hands over its whole history, 2 KB more each turn."""
    messages = [{"role": "system", "content": "Be brief."}, *chat(2000 * (turn + 1))]
    reply = {"role": "assistant", "content": "The sum is written out line by line. " * 20}
    choice = {"index": 0, "finish_reason": "stop", "message": reply}
    return {"messages": messages, "model": "policy", "temperature": 1.0}, {"id": "c", "choices": [choice]}


def tokens(turn: int) -> tuple[Any, Any]:
    """Return a turn of verl: new ids alone, 500 in and 500 out."""
    given = {"request_id": "r", "prompt_ids": token_ids(500 + turn), "sampling_params": {"temperature": 1.0}}
    if turn:
        given["prompt_ids_start"] = 1000 * turn
    return given, {"token_ids": token_ids(510 + turn), "log_probs": None, "stop_reason": "completed"}


LOADS: dict[str, tuple[Callable[[int], tuple[Any, Any]], Any]] = {
    "chat, whole history": (histories, None),
    "verl's turns, token2text": (tokens, Words()),
}


def trajectory(load: str, generator: random.Random) -> list[RolloutSpan]:
    """Return the ended spans of one trajectory, the root last."""
    make, tokenizer = LOADS[load]
    state = TrajectoryState({semconv.STEP: 1, semconv.SAMPLE_INDEX: 7, semconv.ROLLOUT_N: 0})
    trace_id = generator.getrandbits(128)
    place = SpanContext(trace_id, generator.getrandbits(64), False, SAMPLED)
    spans = []
    for turn in range(TURNS):
        given, result = make(turn)
        attributes = {semconv.SPAN_KIND: "LLM", semconv.TURN: turn + 1}
        span = RolloutSpan("turn", generator.getrandbits(64), place, attributes, state, (), lambda ended: None)
        span.input, span.output, span.tokenizer = take_snapshot(given), take_snapshot(result), tokenizer
        span.end()
        spans.append(span)
    root = RolloutSpan("agent_loop", place, None, {semconv.SPAN_KIND: "AGENT"}, state, (), lambda ended: None)
    root.end()
    return [*spans, root]


def measure(load: str, *, has_messages: bool, seed: int) -> dict[str, float]:
    """Return bytes and microseconds of CPU per span."""
    generator = random.Random(seed)
    finisher = PayloadFinisher(2**20, Redactor())
    reader = SpanReader(Resource({}), SCOPE, finisher, ChatWriter(finisher) if has_messages else None)
    trajectories = [trajectory(load, generator) for _ in range(TRAJECTORIES)]
    start = time.thread_time()
    readable = [[reader.read(span, "benchmark") for span in spans] for spans in trajectories]
    encoded = [encode_spans(spans) for spans in readable]
    seconds = time.thread_time() - start
    count = TRAJECTORIES * (TURNS + 1)
    packed = zstandard.ZstdCompressor(level=3)
    return {
        "cpu_us": seconds / count * 1e6,
        "wire": sum(map(len, encoded)) / count,
        "wire_gzip": sum(len(gzip.compress(body, 6)) for body in encoded) / count,
        "rest_zstd": sum(len(packed.compress(encode_spans(spans))) for spans in readable) / count,
    }


def run(rounds: int) -> list[dict[str, Any]]:
    """Return one row per load.

    Args:
        rounds: Turns of each side, after one that doesn't count.
    """
    rows = []
    for load in LOADS:
        sides: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        for number in range(-1, rounds):
            for has_messages in (True, False) if number % 2 else (False, True):
                measured = measure(load, has_messages=has_messages, seed=number)
                if number >= 0:
                    sides[has_messages].append(measured)
        row: dict[str, Any] = {"load": load}
        for key in sides[True][0]:
            without, with_messages = (statistics.median(one[key] for one in sides[side]) for side in (False, True))
            row[key] = {"without": without, "with": with_messages, "ratio": with_messages / without}
        rows.append(row)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--smoke", action="store_true", help="one round, only to see that everything runs")
    arguments = parser.parse_args()
    rows = run(1 if arguments.smoke else 9)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print("| per span, with messages : without | CPU | wire | wire, gzip | at rest, zstd |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for row in rows:
        cells = [
            f"{row[key]['ratio']:.2f} ({row[key]['without']:,.0f} → {row[key]['with']:,.0f} {unit})"
            for key, unit in (("cpu_us", "µs"), ("wire", "bytes"), ("wire_gzip", "bytes"), ("rest_zstd", "bytes"))
        ]
        print(f"| {row['load']} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
