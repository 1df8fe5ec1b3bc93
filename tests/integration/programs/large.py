"""Payloads beyond gRPC's 4 MiB: 24 ops of 400 KB that end together, and one of 8 MB."""

import sys

from report import PROJECT, finish

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op

LARGE, COUNT = 400_000, 24
HUGE = 8_000_000


@rollout_trace_op
def echo(index: int, text: str) -> int:
    return len(text)


@rollout_trace_op
def huge(text: str) -> int:
    return len(text)


def text(size: int, seed: int) -> str:
    """Return text of that size that differs from one seed to the next."""
    word = f"{seed:07d} "
    return word * (size // len(word))


if __name__ == "__main__":
    otel_rollout.init(PROJECT, f"{PROJECT}-experiment")
    with rollout_trace_attr(sample_index=1, step=1, rollout_n=0, name="trajectory"):
        for index in range(COUNT):
            echo(index, text(LARGE, index))
        huge(text(HUGE, 99))
    sys.exit(finish())
