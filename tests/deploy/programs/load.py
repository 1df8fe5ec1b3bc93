"""Trace trajectories and print what came of it as JSON: TRAJECTORIES SPANS PAYLOAD_BYTES [SECONDS between them]."""

import json
import os
import sys
import time

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op

trajectories, spans, size = map(int, sys.argv[1:4])
pause = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
payload = os.urandom(size // 2).hex()
options = json.loads(os.environ.get("LOAD_OPTIONS", "{}"))
otel_rollout.init("load", "load", backend="otlp", **options)


@rollout_trace_op
def turn(number: int) -> str:
    return payload[number:] + payload[:number]


for trajectory in range(trajectories):
    with rollout_trace_attr(sample_index=trajectory, step=1, rollout_n=0):
        for number in range(spans - 1):
            turn(number)
    time.sleep(pause)
is_flushed = otel_rollout.flush(120)
counts = otel_rollout.stats().exporters["otlp"]
otel_rollout.shutdown()
json.dump({"flushed": is_flushed, "delivered": counts.delivered, "lost": dict(counts.lost)}, sys.stdout)
