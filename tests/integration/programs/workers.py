"""One process forks two workers after init and starts two fresh ones; all seed alike, and share one prompt."""

import multiprocessing
import os
import random
import sys

from report import PROJECT, finish

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op


@rollout_trace_op
def act(rollout_n: int) -> int:
    return os.getpid()


def rollout(rollout_n: int) -> None:
    with rollout_trace_attr(sample_index=5, step=3, rollout_n=rollout_n, name="trajectory"):
        annotate(output=act(rollout_n))


def worker(numbers: range) -> None:
    """What each worker does; in a forked one, init was called by the parent."""
    random.seed(0)
    otel_rollout.init(PROJECT, f"{PROJECT}-experiment")
    for rollout_n in numbers:
        rollout(rollout_n)
    if not otel_rollout.flush(60):
        sys.exit(1)


if __name__ == "__main__":
    random.seed(0)
    otel_rollout.init(PROJECT, f"{PROJECT}-experiment")
    rollout(0)
    otel_rollout.flush(30)  # the exporter's connection is open when the process forks
    rollout(1)  # still queued when the process forks
    started = []
    for index, method in enumerate(("fork", "fork", "spawn", "spawn")):
        process = multiprocessing.get_context(method).Process(
            target=worker, args=(range(index * 2 + 2, index * 2 + 4),)
        )
        process.start()
        started.append(process)
    rollout(10)
    for process in started:
        process.join(90)
    finish()
    sys.exit(max(process.exitcode for process in started))
