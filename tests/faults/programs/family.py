"""A parent and its children, all of which trace.

    family.py fork|spawn|forkserver|executor|pool <children> [flush|close]

Each process appends the ids of its spans to the file SENT, and its final counts to the file COUNTS.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from opentelemetry import trace

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op

TRAJECTORIES = 10


def append(variable: str, content: bytes) -> None:
    file = os.open(os.environ[variable], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, content)
    os.close(file)


def note_sent() -> None:
    append("SENT", trace.get_current_span().get_span_context().span_id.to_bytes(8, "big"))


@rollout_trace_op
def act(number: int) -> str:
    note_sent()
    return "x" * 2000


def rollouts(family_member: int) -> int:
    for number in range(TRAJECTORIES):
        with rollout_trace_attr(sample_index=family_member, step=number % 2, rollout_n=number, name="trajectory"):
            note_sent()
            act(number)
    return family_member


def init() -> None:
    otel_rollout.init(os.environ["PROJECT"], "experiment", schedule_delay_ms=600_000)


def child(family_member: int) -> int:
    init()  # without effect in a forked one: the parent's configuration is there
    rollouts(family_member)
    if "flush" in sys.argv:
        otel_rollout.flush(60)
    return family_member


def main() -> None:
    kind, children = sys.argv[1], int(sys.argv[2])
    init()
    rollouts(0)
    otel_rollout.flush(60)  # connections and files are open when the children come
    rollouts(0)
    numbers = range(1, children + 1)
    if kind == "executor":
        with ProcessPoolExecutor(children, mp_context=multiprocessing.get_context("spawn")) as executor:
            assert list(executor.map(child, numbers)) == list(numbers)
    elif kind == "pool":
        # The end of the block terminates the workers: SIGTERM.
        with multiprocessing.get_context("fork").Pool(children) as pool:
            assert pool.map(child, numbers, chunksize=1) == list(numbers)
            if "close" in sys.argv:
                pool.close()
                pool.join()
    else:
        kinds = kind.split("+")
        running: list[Any] = []
        for number in numbers:
            context: Any = multiprocessing.get_context(kinds[number % len(kinds)])
            running.append(context.Process(target=child, args=(number,)))
            running[-1].start()
        for process in running:
            process.join()
            assert process.exitcode == 0
    rollouts(0)
    otel_rollout.shutdown(60)
    append("COUNTS", json.dumps(otel_rollout.stats(), default=vars).encode())


if __name__ == "__main__":
    main()
