"""Values that break tracers: as arguments, results, prompts, answers and annotations."""

import math
import sys

from report import PROJECT, finish

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op

cycle: list = []
cycle.append(cycle)

deep: object = "bottom"
for _ in range(10_000):
    deep = [deep]


class Unreadable:
    """An object that can't be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


VALUES = {
    "nan": math.nan,
    "infinity": [math.inf, -math.inf],
    "big": 2**70,
    "surrogate": "\ud800 lone",
    "nul": "a\x00b",
    "bytes": b"\x00\xff",
    "set": {1},
    "keys": {1: "int", (2, 3): "tuple", None: "none"},
    "cycle": cycle,
    "deep": deep,
    "unreadable": Unreadable(),
    "none": None,
    "empty": {},
}

ANNOTATIONS = [
    {"reward": math.nan},
    {"reward": "high"},
    {"status": "finished"},
    {"text": "\ud800 lone"},
    {"surrogate \ud800 key": 1},
    {"": 1},
    {"nul": "a\x00b"},
    {"big": 2**70},
    {"value": b"\x00"},
    {"value": Unreadable()},
    {"value": ["a", 1]},
    {"step": 9},
    {"session": "a prefix of session.id"},
    {"rollout": "a prefix of rollout.step"},
    {"rollout.step.of": "rollout.step is a prefix of it"},
]


@rollout_trace_op
def echo(value: object) -> object:
    return value


if __name__ == "__main__":
    otel_rollout.init(PROJECT, f"{PROJECT}-experiment")
    for rollout_n, (name, value) in enumerate(VALUES.items()):
        with rollout_trace_attr(sample_index=name, step=1, rollout_n=rollout_n, name="trajectory"):
            echo(value)
            annotate(input=value, output=value)
    for rollout_n, annotation in enumerate(ANNOTATIONS):
        with rollout_trace_attr(sample_index="annotated", step=1, rollout_n=rollout_n, name="trajectory"):
            annotate(**annotation)
    sys.exit(finish())
