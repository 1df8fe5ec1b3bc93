"""The memory that requests take: spans take a multiple of their bytes once they are parsed."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_rollout.otlp import TooManySpansError, cut_request, decode_spans, has_too_many_values, split_request
from otel_rollout.receive import SpanBatch, span_batch
from tests.fuzz.folder_mutations import field
from tests.receive.receiving import JSON, PROTOBUF, as_json, ids_of, make_request, make_span, make_trace, stored

MIB = 2**20
SENDERS = 2


def tiny_spans(form: str) -> bytes:
    """Return a request of nearly 64 MiB whose spans have their ids alone."""
    if form == PROTOBUF:
        span = field(2, make_span(1, 0).SerializeToString()[:28])
        return field(1, field(2, span * (60 * MIB // len(span))))
    span = b'{"traceId":"%032x","spanId":"%016x"}' % (1, 1)
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + (span + b",") * (60 * MIB // len(span)) + span + b"]}]}]}"


def peak_bytes(process: int) -> int:
    """Return the most memory that a process has had."""
    status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc has the peak")
@pytest.mark.parametrize("form", [PROTOBUF, JSON])
def test_many_tiny_spans(start, tmp_path, form) -> None:
    """Requests of a million spans, several at once, are refused with what to set, and take a few times their bytes."""
    receiver = start()
    before = peak_bytes(receiver.process.pid)
    body = gzip.compress(tiny_spans(form), 1)

    def send(_: int) -> tuple[int, str]:
        answer = receiver.send(body, form=form, Content_Encoding="gzip")
        said = json.loads(answer.body)["message"] if form == JSON else Status.FromString(answer.body).message
        return answer.status, said

    with ThreadPoolExecutor(SENDERS) as pool:
        answers = list(pool.map(send, range(SENDERS)))
    assert {status for status, _ in answers} == {413}
    assert all("send_batch_max_size" in said for _, said in answers)
    assert peak_bytes(receiver.process.pid) - before < 256 * MIB
    assert receiver.send(make_trace(1)).status == 200
    assert stored(tmp_path / "traces") == ids_of(make_trace(1))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="/proc has the peak")
def test_span_of_empty_values(start, tmp_path) -> None:
    """A span of 16 million empty attributes is refused before it is parsed; the others of its request are stored."""
    receiver = start()
    before = peak_bytes(receiver.process.pid)
    span = make_span(2, 0).SerializeToString() + field(9, b"") * (16 * MIB)
    good = [field(2, each.SerializeToString()) for each in make_trace(1)]
    body = gzip.compress(field(1, field(2, b"".join([*good[:2], field(2, span), *good[2:]]))), 1)
    answer = receiver.send(body, Content_Encoding="gzip")
    partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
    assert (answer.status, partial.rejected_spans, "values" in partial.error_message) == (200, 1, True)
    assert peak_bytes(receiver.process.pid) - before < 192 * MIB
    assert stored(tmp_path / "traces") == ids_of(make_trace(1))


@pytest.mark.parametrize("form", [PROTOBUF, JSON])
class TestGroups:
    """Spans are encoded and stored a group at a time."""

    def test_small_attributes(self, form, monkeypatch) -> None:
        """However many small values the spans have, few of them are in memory at once."""
        span = make_span(1, 0)
        for place in range(200):
            span.attributes.add(key=f"{place}")
        request = make_request([span] * 200)
        body = request.SerializeToString() if form == PROTOBUF else as_json(request)
        monkeypatch.setattr(span_batch, "GROUP_BYTES", MIB // 4)
        batch = SpanBatch(body, is_json=form == JSON)
        tracemalloc.start()
        try:
            assert sum(map(len, batch.groups())) == 200
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 3 * MIB

    def test_large_resources(self, form, monkeypatch) -> None:
        """A resource counts with each of its spans, since it may stand before each in the journal."""
        monkeypatch.setattr(span_batch, "GROUP_BYTES", 50_000)
        request = make_request([make_span(trace, 0) for trace in range(10)], service="s" * 20_000)
        body = request.SerializeToString() if form == PROTOBUF else as_json(request)
        assert [len(group) for group in SpanBatch(body, is_json=form == JSON).groups()] == [2] * 5

    def test_large_resources_are_not_kept(self, form) -> None:
        """Of resources that are large the last is kept at most: each sender may have its own."""
        requests = [make_request([make_span(1, 0)], service=f"{place}" * 2**17) for place in range(10, 30)]
        bodies = [each.SerializeToString() if form == PROTOBUF else as_json(each) for each in requests]
        tracemalloc.start()
        try:
            for body in bodies:
                assert sum(map(len, SpanBatch(body, is_json=form == JSON).groups())) == 1
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert kept < 3 * MIB

    def test_limit(self, form) -> None:
        """One span more than the limit is too many."""
        request = make_request(make_trace(1, 10))
        body = request.SerializeToString() if form == PROTOBUF else as_json(request)
        # In protobuf the resource, its fields and the scope count too.
        most = 10 if form == JSON else 14
        assert sum(map(len, SpanBatch(body, is_json=form == JSON, max_spans=most).groups())) == 10
        with pytest.raises(TooManySpansError):
            SpanBatch(body, is_json=form == JSON, max_spans=most - 1)


class TestCutting:
    """A request in protobuf is parsed a span at a time."""

    def test_same_as_parsed_whole(self) -> None:
        """Requests with bytes changed at random have the same spans, or are no request either way."""
        rng = random.Random(1)
        request = make_request(make_trace(1, 3), service="a")
        request.MergeFrom(make_request(make_trace(2, 3), service="b" * 200))
        request.resource_spans[0].schema_url = "https://example.org/1"
        request.resource_spans[0].scope_spans.add().spans.append(make_span(3, 0))
        sound = request.SerializeToString()
        assert spans_cut(sound) == spans_in(request)
        compared = 0
        for _ in range(2000):
            body = bytearray(sound)
            for _ in range(rng.randint(1, 3)):
                body[rng.randrange(len(body))] = rng.randrange(256)
            try:
                expected = spans_in(ExportTraceServiceRequest.FromString(bytes(body)))
            except DecodeError:
                continue
            try:
                found = spans_cut(bytes(body))
            except ValueError as error:
                # Groups, which no OTLP request ever had.
                found = expected if "a field of kind" in str(error) else []
            compared += 1
            assert found == expected
        assert compared > 300


def test_groups_hide_no_fields() -> None:
    """A large span with a group, which no OTLP has and protobuf passes over, is refused without being parsed."""
    group = bytes([100 << 3 & 0x7F | 0x83, 6, 100 << 3 & 0x7F | 0x84, 6])
    span = make_span(1, 0).SerializeToString() + group + field(9, b"") * 2**20
    refused: list[str] = []

    assert list(split_request(field(1, field(2, field(2, span))), refused.append, 100)) == []
    assert len(refused) == 1
    assert "a field of kind 3" in refused[0]


@pytest.mark.parametrize("kind", ["attributes", "a list of pairs"])
def test_items_are_taken_one_by_one(kind) -> None:
    """Of many values of a span, protobuf's objects are not there at the same time."""
    pairs = field(9, b"") if kind == "attributes" else field(1, b"")
    values = pairs * 2**18
    if kind != "attributes":
        values = field(9, field(2, field(6, values)))
    body = field(1, field(2, field(2, make_span(1, 0).SerializeToString()[:28] + values)))
    tracemalloc.start()
    try:
        assert len(decode_spans(body)) == 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


def spans_in(request: ExportTraceServiceRequest) -> list[tuple[bytes, str, str, str, bytes]]:
    """Return the spans of a request with what stands before them."""
    return [
        (
            resource.resource.SerializeToString(deterministic=True),
            resource.schema_url,
            scope.scope.name,
            scope.schema_url,
            span.SerializeToString(deterministic=True),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def spans_cut(body: bytes) -> list[tuple[bytes, str, str, str, bytes]]:
    """Return the same of a request that was cut into its spans."""
    whole = ExportTraceServiceRequest()
    for scope in cut_request(body, 2**20):
        resource_spans = whole.resource_spans.add()
        resource_spans.MergeFromString(scope.resource)
        scope_spans = resource_spans.scope_spans.add()
        scope_spans.MergeFromString(scope.scope)
        for start, end in scope.spans:
            scope_spans.spans.add().MergeFromString(body[start:end])
    return spans_in(whole)


def test_commas_within_text() -> None:
    """They are no values, nor are brackets behind an escaped quote."""
    text = b'"' + b',[{\\"' * 2**21 + b'"'
    assert not has_too_many_values(b"[" + text + b",[]" * 9 + b"]", 19)
    assert has_too_many_values(b"[" + text + b",[]" * 9 + b"]", 18)


def test_text_without_its_end() -> None:
    """Of a text that is cut off, each quote is looked at once."""
    text = b'"' + b',\\"' * 2**22
    assert not has_too_many_values(text, 0)
    assert has_too_many_values(b"[[" + text, 1)
