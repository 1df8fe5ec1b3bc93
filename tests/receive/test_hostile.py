"""Requests of any bytes: none of them holds up the others, and what is taken can be read."""

from __future__ import annotations

import random
import time

import otel_rollout
from otel_rollout.receive.received_folder import ReceivedFolder
from otel_rollout.receive.span_batch import SpanBatch
from tests.receive.receiving import JSON, PROTOBUF, as_json, make_request, make_span, make_trace

MUTATIONS = 400


def test_mutations(tmp_path) -> None:
    """Of requests with bytes changed at random, each span is refused or read back; no other error comes of it."""
    rng = random.Random(1)
    span = make_span(1, 0, text="text", count=3)
    span.events.add(name="event", time_unix_nano=1).attributes.add(key="a").value.int_value = 1
    span.links.add(trace_id=b"\1" * 16, span_id=b"\2" * 8)
    span.status.code = 2
    request = make_request([span, *make_trace(2)])
    bodies = {PROTOBUF: request.SerializeToString(), JSON: as_json(request)}
    folder = ReceivedFolder(tmp_path / "traces", idle_seconds=0.001)
    taken = set()
    for number in range(MUTATIONS):
        form = (PROTOBUF, JSON)[number % 2]
        body = bytearray(bodies[form])
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            batch = SpanBatch(bytes(body), form)
        except ValueError:
            continue
        taken |= {(span.trace_id.hex(), span.span_id.hex()) for span in batch.spans}
        folder.take(batch.spans)
    time.sleep(0.002)
    while folder.write_overdue():
        pass
    assert folder.open_traces == 0
    folder.close()
    problems = []
    read = {
        (each.trace_id, f"{span.context.span_id:016x}")
        for each in otel_rollout.read(tmp_path / "traces", on_problem=problems.append)
        for span in each.spans
        if span.attributes is not None
    }
    assert len(taken) > 10
    assert (read, problems) == (taken, [])
