"""`python -m benchmarks.snapshot`: what a snapshot costs the calling thread, kind by kind, beside `orjson.dumps`."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import enum
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import attrs
import numpy as np
import orjson
import pydantic

from benchmarks.payloads import token_ids
from otel_rollout.record.snapshot import take_snapshot

MIB = 2**20
_CONTENT = "the agent looks up a price, multiplies it by the number of tickets and checks the result; " * 6


class _Model(pydantic.BaseModel):
    role: str
    content: str


@dataclasses.dataclass
class _Data:
    role: str
    content: str


@attrs.define
class _Attrs:
    role: str
    content: str


class _Plain:
    def __init__(self, role: str, content: str) -> None:
        self.role = role
        self.content = content


class _Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Kind(NamedTuple):
    """One kind of value.

    Args:
        title: How the table names it.
        make: Makes a value of this many parts.
        plain: Makes the plain data that is equal to it, which orjson takes.
        bytes_each: The JSON that a part takes, about.
    """

    title: str
    make: Callable[[int], Any]
    plain: Callable[[int], Any]
    bytes_each: int


def _messages(count: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"{number}: {_CONTENT}"} for number in range(count)]


def _objects(kind: Callable[..., Any]) -> Callable[[int], Any]:
    return lambda count: [kind(role="user", content=f"{number}: {_CONTENT}") for number in range(count)]


_MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.timezone.utc)

KINDS = [
    Kind("messages (dicts)", _messages, _messages, 570),
    Kind("token ids (list)", token_ids, token_ids, 7),
    Kind("log probs (list)", lambda n: [0.25 * i for i in range(n)], lambda n: [0.25 * i for i in range(n)], 8),
    Kind("one text, ASCII", lambda n: "x" * n, lambda n: "x" * n, 1),
    Kind("one text, Chinese", lambda n: "語" * n, lambda n: "語" * n, 3),
    Kind("small dicts", *(lambda n: [{"a": i, "b": "x"} for i in range(n)],) * 2, 16),
    Kind("pairs (lists)", *(lambda n: [[i, i] for i in range(n)],) * 2, 13),
    Kind("dict of numbers", *(lambda n: {f"key {i}": i for i in range(n)},) * 2, 18),
    Kind("pydantic", _objects(_Model), _messages, 570),
    Kind("dataclass", _objects(_Data), _messages, 570),
    Kind("attrs", _objects(_Attrs), _messages, 570),
    Kind("other objects", _objects(_Plain), _messages, 570),
    Kind("Enum", lambda n: [_Colour.RED, _Colour.GREEN] * (n // 2), lambda n: ["red", "green"] * (n // 2), 7),
    Kind("datetime", *(lambda n: [_MOMENT.replace(microsecond=i % 10**6) for i in range(n)],) * 2, 35),
    Kind("UUID", *(lambda n: [uuid.UUID(int=i) for i in range(n)],) * 2, 39),
    Kind("numpy scalars", lambda n: [np.float64(0.5)] * n, lambda n: [0.5] * n, 4),
    Kind("numpy ids (array)", np.arange, lambda n: list(range(n)), 7),
    Kind("tuples", *(lambda n: [("user", f"{i}: {_CONTENT}") for i in range(n)],) * 2, 560),
]


def _seconds(function: Callable[[Any], Any], value: Any, repeats: int) -> float:
    """Return the CPU seconds of one call: the median of several."""
    times = []
    for _ in range(repeats):
        started = time.thread_time_ns()
        function(value)
        times.append(time.thread_time_ns() - started)
    return statistics.median(times) / 1e9


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshot", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run that shows that everything works")
    arguments = parser.parse_args()
    repeats, factor = (1, 2) if arguments.smoke else (9, 60)
    print("| kind | 2 KB: snapshot | 2 KB: orjson | 1 MiB: orjson | 1 MiB: ratio | 60 MiB: ratio | left out |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for kind in KINDS:
        small, plain_small = kind.make(max(2, 2000 // kind.bytes_each)), kind.plain(max(2, 2000 // kind.bytes_each))
        count = MIB // kind.bytes_each
        whole, plain = kind.make(count), kind.plain(count)
        giant = kind.make(count * factor)
        base = _seconds(orjson.dumps, plain, repeats)
        cells = [
            f"{_seconds(take_snapshot, small, repeats * 20) * 1e6:,.1f} µs",
            f"{_seconds(orjson.dumps, plain_small, repeats * 20) * 1e6:,.1f} µs",
            f"{base * 1e3:,.2f} ms",
            f"{_seconds(take_snapshot, whole, repeats) / base:.1f}",
            f"{_seconds(take_snapshot, giant, repeats) / base:.1f}",
            f"{take_snapshot(giant).left_out:,}",
        ]
        print(f"| {kind.title} | {' | '.join(cells)} |")
        sys.stdout.flush()
    print("\nCPU time of the calling thread, medians; ratios are to orjson.dumps of 1 MiB of the equal plain data.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
