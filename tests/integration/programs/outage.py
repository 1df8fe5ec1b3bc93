"""Trajectories before, during and after an outage of the receiver.

Each line on stdin names a part and the seconds of the flush after it; what the flush said goes to stdout.
"""

import json
import sys
import time

from report import PROJECT, finish

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op


@rollout_trace_op
def act(part: str, rollout_n: int) -> str:
    return f"{part} {rollout_n}"


def part(name: str) -> None:
    for rollout_n in range(5):
        with rollout_trace_attr(sample_index=name, step=1, rollout_n=rollout_n, name="trajectory"):
            annotate(output=act(name, rollout_n))


if __name__ == "__main__":
    otel_rollout.init(PROJECT, f"{PROJECT}-experiment")
    part("before")
    otel_rollout.flush(30)
    for line in sys.stdin:
        name, seconds = line.split()
        part(name)
        started = time.monotonic()
        whole = otel_rollout.flush(float(seconds))
        json.dump({"flushed": whole, "seconds": time.monotonic() - started}, sys.stdout)
        sys.stdout.write("\n")
        sys.stdout.flush()
    sys.exit(finish(timeout=120))
