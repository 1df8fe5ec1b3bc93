"""Spans of another instrumentation around and inside a trajectory, in a process set up by opentelemetry-instrument."""

import sys

from opentelemetry import trace
from report import PROJECT, finish

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op

tracer = trace.get_tracer("some.other.library")


@rollout_trace_op
def step() -> str:
    with tracer.start_as_current_span("request inside"):
        return inner()


@rollout_trace_op
def inner() -> str:
    return "done"


if __name__ == "__main__":
    otel_rollout.init(PROJECT, f"{PROJECT}-experiment")
    with tracer.start_as_current_span("job around"):
        with rollout_trace_attr(sample_index=1, step=1, rollout_n=0, name="trajectory"):
            step()
        with rollout_trace_attr(sample_index=2, step=1, rollout_n=0, name="trajectory", trace=False):
            step()
    sys.exit(finish())
