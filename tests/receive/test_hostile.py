"""Requests of any bytes: none of them holds up the others, and what is taken can be read."""

from __future__ import annotations

import os
import random
import time

import pytest

import otel_rollout
from otel_rollout.files import file_lock
from otel_rollout.otlp import EncodedSpan
from otel_rollout.receive import SpanBatch, adopt, open_folder
from tests.receive.receiving import (
    JSON,
    PROTOBUF,
    as_json,
    ids_of,
    make_request,
    make_span,
    make_trace,
    stored,
    trace_id,
)

MUTATIONS = 400


def spans_of(batch: SpanBatch) -> list[EncodedSpan]:
    """Return all spans of a request."""
    return [span for group in batch.groups() for span in group]


def test_mutations(tmp_path) -> None:
    """Of requests with bytes changed at random, each span is refused or read back; no other error comes of it."""
    rng = random.Random(1)
    span = make_span(1, 0, text="text", count=3)
    span.events.add(name="event", time_unix_nano=1).attributes.add(key="a").value.int_value = 1
    span.links.add(trace_id=b"\1" * 16, span_id=b"\2" * 8)
    span.status.code = 2
    request = make_request([span, *make_trace(2)])
    bodies = {PROTOBUF: request.SerializeToString(), JSON: as_json(request)}
    folder = open_folder(tmp_path / "traces", idle_seconds=0.001)
    taken = set()
    for number in range(MUTATIONS):
        form = (PROTOBUF, JSON)[number % 2]
        body = bytearray(bodies[form])
        for _ in range(rng.randint(1, 4)):
            body[rng.randrange(len(body))] = rng.randrange(256)
        try:
            batch = SpanBatch(bytes(body), is_json=form == JSON)
        except ValueError:
            continue
        for spans in batch.groups():
            taken |= {(span.trace_id.hex(), span.span_id.hex()) for span in spans}
            folder.take(spans)
    time.sleep(0.002)
    while folder.write_due():
        pass
    assert len(folder.traces) == 0
    folder.close()
    problems = []
    read = {
        (each.trace_id, f"{span.context.span_id:016x}")
        for each in otel_rollout.read_trajectories(tmp_path / "traces", on_problem=problems.append)
        for span in each.spans
        if span.attributes is not None
    }
    assert len(taken) > 10
    assert (read, problems) == (taken, [])


@pytest.mark.slow
def test_a_span_of_millions_of_values() -> None:
    """It is refused with the reason: no reader would take the line that it stands in."""
    span = make_span(1, 0)
    values = span.attributes.add(key="a").value.array_value.values
    for _ in range(3_000_000):
        values.add()
    batch = SpanBatch(make_request([span, make_span(2, 0)]).SerializeToString(), is_json=False)
    assert [each.trace_id for each in spans_of(batch)] == [trace_id(2)]
    assert (batch.refused, "values" in batch.reason) == (1, True)


def test_a_large_resource() -> None:
    """Its spans are refused with the reason: it would be written once for each trace."""
    batch = SpanBatch(make_request(make_trace(1), service="s" * 2**20).SerializeToString(), is_json=False)
    assert (spans_of(batch), batch.refused, "resource" in batch.reason) == ([], 4, True)


def test_a_journal_with_a_record_that_is_no_otlp(tmp_path) -> None:
    """The records behind it are adopted, and the journal is gone."""
    folder = tmp_path / "traces"
    killed = open_folder(folder)
    sound = spans_of(SpanBatch(make_request(make_trace(1)).SerializeToString(), is_json=False))
    strange = sound[0]._replace(data=sound[0].data.replace(b"op", b"\xff\xff", 1))
    killed.take([strange._replace(trace_id=trace_id(2))])
    killed.take(sound)
    [journal] = (folder / "open").glob("*.otlp.zst")
    left_behind = journal.read_bytes()
    killed._journal.forget()
    journal.write_bytes(left_behind)
    other = open_folder(folder, idle_seconds=0)
    assert sum(adopt(other)) == len(sound)
    assert not journal.exists()
    other.close()


def test_a_quiet_receiver_on_a_disk_without_locks(tmp_path, monkeypatch) -> None:
    """Its journal is adopted after an hour; if it goes on meanwhile the journal stays, and each span is read once."""
    monkeypatch.setattr(file_lock, "fcntl", None)
    quiet, other = open_folder(tmp_path / "traces"), open_folder(tmp_path / "traces")
    batches = [spans_of(SpanBatch(make_request(make_trace(n)).SerializeToString(), is_json=False)) for n in (1, 2, 3)]
    quiet.take(batches[0])
    [journal] = (tmp_path / "traces" / "open").glob("*.otlp.zst")
    assert sum(adopt(other)) == 0
    hours_ago = time.time() - 2 * file_lock.QUIET_SECONDS
    os.utime(journal, (hours_ago, hours_ago))
    adopting = adopt(other)
    assert (next(adopting), next(adopting)) == (0, 4)
    quiet.take(batches[1])
    assert sum(adopting) == 4
    assert journal.exists()
    quiet._journal.forget()
    os.utime(journal, (hours_ago, hours_ago))
    assert sum(adopt(other)) == 0
    assert not journal.exists()
    other.take(batches[2])
    other.close()
    found = stored(tmp_path / "traces")
    assert found == ids_of([span for number in (1, 2, 3) for span in make_trace(number)])


def test_a_trace_that_never_ends(tmp_path, monkeypatch) -> None:
    """The known ids of its spans are bounded, and so is the time of looking a span up."""
    monkeypatch.setattr("otel_rollout.folder.known_traces.MAX_ID_BYTES", 1024)
    folder = open_folder(tmp_path / "traces")
    most = 0
    for number in range(10):
        spans = [make_span(1, 100 * number + each + 1) for each in range(100)]
        taken = folder.take(spans_of(SpanBatch(make_request(spans).SerializeToString(), is_json=False)))
        assert taken == (100, 0)
        trace = folder.traces.get(trace_id(1))
        assert trace is not None
        most = max(most, len(trace.ids))
    assert 512 <= most <= 1024
    assert folder.take(spans_of(SpanBatch(make_request(spans[-40:]).SerializeToString(), is_json=False))) == (0, 40)
    folder.close()
