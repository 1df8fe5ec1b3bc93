"""Trajectories made by hand, and what a trace folder holds, read without the code under test."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import zstandard
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.trace_folder import recordings


def random_id(size):
    return int.from_bytes(os.urandom(size), "big") | 1


def make_span(trace_id, parent=None, *, name="op", start=0.0, attributes=None):
    """A span whose id is of chance."""
    seconds = (start, 1.0)
    return recordings.make_span(name, random_id(8), trace_id, parent=parent, attributes=attributes, seconds=seconds)


def trajectory(children=3, *, step=7, sample_index=0, rollout_n=0, validate=False, payload=100):
    """The spans of a trajectory, in the order of their ends: the root last."""
    trace_id = random_id(16)
    tags = {
        "rollout.sample_index": sample_index,
        "rollout.rollout_n": rollout_n,
        "rollout.validate": validate,
        "rollout.experiment_name": "exp",
    }
    if step is not None:
        tags["rollout.step"] = step
    ended = {**tags, "rollout.status": "completed", "rollout.reward": 0.5}
    root = make_span(trace_id, name="trajectory", attributes=ended)
    return [
        *(
            make_span(
                trace_id,
                root.context,
                name=f"op {number}",
                start=number / 1e6,
                attributes={**tags, "input.value": json.dumps([os.urandom(payload // 2).hex()])},
            )
            for number in range(children)
        ),
        root,
    ]


def ids(spans):
    """The span ids, in hexadecimal."""
    return [f"{span.context.span_id:016x}" for span in spans]


def spans_in(request):
    """The spans of a request."""
    scopes = [scope for resource in TracesData.FromString(request).resource_spans for scope in resource.scope_spans]
    return [span for scope in scopes for span in scope.spans]


def requests_in(path):
    """The whole requests in a file."""
    data = Path(path).read_bytes()
    found = []
    while data:
        decompressor = zstandard.ZstdDecompressor().decompressobj()
        found.append(decompressor.decompress(data))
        data = decompressor.unused_data
    return found


def contents(folder):
    """Every file with spans, by its place, as the ids of the spans in each request."""
    found = {}
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file() and not path.name.endswith((".index.jsonl", ".index.jsonl.zst")):
            place = path.relative_to(folder).as_posix()
            found[place] = [[span.span_id.hex() for span in spans_in(request)] for request in requests_in(path)]
    return found


def count_spans(folder):
    """How often each span stands in the folder."""
    return Counter(span for requests in contents(folder).values() for each in requests for span in each)


def place(writer, folder, number=1):
    return f"{folder}/{writer.worker}{'' if number == 1 else f'-{number}'}.otlp.zst"
