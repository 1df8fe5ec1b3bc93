"""Requests over OTLP/HTTP: their forms, their answers, and what is refused."""

from __future__ import annotations

import gzip
import json

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

import otel_rollout
from otel_rollout.receive import SpanBatch
from tests.receive.receiving import (
    JSON,
    PROTOBUF,
    ReceiverProcess,
    as_json,
    ids_of,
    make_request,
    make_span,
    make_trace,
    spans_in_frames,
    stored,
)


def send_json(receiver, *spans, **resource_spans):
    """Send spans in JSON as they are, and return the answer."""
    found = {"scopeSpans": [{"spans": spans}], **resource_spans}
    return receiver.send(json.dumps({"resourceSpans": [found]}).encode(), form=JSON)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """One receiver for requests of which nothing is stored."""
    receiver = ReceiverProcess(tmp_path_factory.mktemp("shared") / "traces")
    yield receiver
    receiver.close()


def test_forms(start, tmp_path) -> None:
    """Protobuf and JSON, plain, gzip and zstd are the same spans; the answer is a success in the request's form."""
    receiver = start()
    sent = []
    for number, (form, encoding) in enumerate((f, e) for f in (PROTOBUF, JSON) for e in ("", "gzip", "zstd")):
        spans = make_trace(number, text="ä\n" * 100, flag=True, count=7)
        answer = receiver.send(spans, form=form, encoding=encoding)
        assert (answer.status, answer.headers["content-type"]) == (200, form)
        assert answer.body == (b"" if form == PROTOBUF else b"{}")
        # It is in the files by then.
        sent += spans
        assert stored(tmp_path / "traces") == ids_of(sent)
    assert receiver.stop()[0] == 0
    trajectories = list(otel_rollout.read_trajectories(tmp_path / "traces"))
    spans = [[span.to_json() for span in each.spans] for each in trajectories]
    trace_ids = [each.trace_id for each in trajectories]
    same = {
        json.dumps(each).replace(trace, "").replace(f"0x{int(trace[-2:]):08x}", "")
        for each, trace in zip(spans, trace_ids, strict=True)
    }
    assert len(trajectories) == 6
    assert len(same) == 1


@pytest.mark.parametrize("form", [PROTOBUF, JSON])
def test_partial_success(start, tmp_path, form) -> None:
    """Spans that can't be stored are counted with the reason; the others of their request are stored."""
    receiver = start()
    good = make_trace(1)
    no_id = make_span(2, 0)
    no_id.span_id = bytes(8)
    answer = receiver.send([*good, no_id], form=form)
    assert answer.status == 200
    if form == PROTOBUF:
        partial = ExportTraceServiceResponse.FromString(answer.body).partial_success
        refused, reason = partial.rejected_spans, partial.error_message
    else:
        partial = json.loads(answer.body)["partialSuccess"]
        refused, reason = int(partial["rejectedSpans"]), partial["errorMessage"]
    assert refused == 1
    assert "an id of zeros" in reason
    assert stored(tmp_path / "traces") == ids_of(good)
    assert "1 refused" in receiver.stop()[1]


@pytest.mark.parametrize("form", [PROTOBUF, JSON])
def test_a_time_without_end(start, tmp_path, form) -> None:
    """OTLP's times have 64 bits without a sign: the largest is stored as the last that files and databases have."""
    receiver = start()
    endless = make_span(1, 0)
    endless.end_time_unix_nano = 2**64 - 1
    endless.events.add(time_unix_nano=2**64 - 1, name="never")
    assert receiver.send([endless], form=form).status == 200
    [[span]] = [each.spans for each in otel_rollout.read_trajectories(tmp_path / "traces")]
    assert (span.end_time, span.events[0].timestamp) == (2**63 - 1, 2**63 - 1)
    assert "1 span" in receiver.stop()[1]


def test_span_too_large() -> None:
    """A span that no request of the folder takes is refused by name of the limit; the others stay."""
    good = make_trace(1)
    huge = make_span(2, 0, text="x" * (64 * 2**20))
    batch = SpanBatch(make_request([huge, *good]).SerializeToString(), is_json=False)
    assert sum(map(len, batch.groups())) == len(good)
    assert (batch.refused, "67,108,864 bytes" in batch.reason) == (1, True)


class TestMalformed:
    """Requests of which nothing is stored: the sender must not repeat them."""

    @pytest.mark.parametrize(
        ("body", "form", "encoding", "status", "words"),
        [
            (b"\xff\xff", PROTOBUF, "", 400, "no OTLP request in protobuf"),
            (b"[1]", JSON, "", 400, "no OTLP request in JSON: a list in place of an object"),
            (b"null", JSON, "", 400, "no OTLP request in JSON: null in place of an object"),
            (b'{"resourceSpans":7}', JSON, "", 400, "no OTLP request in JSON: a number in place of a list"),
            (b'{"resourceSpans":[1]}', JSON, "", 400, "no OTLP request in JSON: a number in place of an object"),
            (b"[", JSON, "", 400, "no OTLP request in JSON: unexpected end of data"),
            (b"plain", PROTOBUF, "gzip", 400, "no gzip"),
            (gzip.compress(b"x" * 9999, mtime=0)[:-9], PROTOBUF, "gzip", 400, "cut off"),
            (b"plain", PROTOBUF, "zstd", 400, "no zstd"),
            (b"", "text/plain", "", 415, "'text/plain'"),
            (b"", PROTOBUF, "br", 415, "'br'"),
        ],
    )
    def test_answer(self, shared, body, form, encoding, status, words) -> None:
        """The status is of the kind that isn't retried, and the body says what is wrong, in the request's form."""
        headers = {"Content_Encoding": encoding} if encoding else {}
        answer = shared.send(body, form=form, **headers)
        assert answer.status == status
        message = json.loads(answer.body)["message"] if form == JSON else Status.FromString(answer.body).message
        assert words in message
        assert "Retry-After" not in answer.headers

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"spanId": None}, "not a span of OTLP: an id of another length than 16 bytes (trace) or 8 bytes (span)"),
            ({"traceId": "seven"}, "an id of other than 32 hexadecimal digits"),
            ({"traceId": "0x" + "1" * 30}, "an id of other than 32 hexadecimal digits"),
            ({"spanId": "abc"}, "an id of other than 16 hexadecimal digits"),
            ({"spanId": " 1" * 8}, "an id of other than 16 hexadecimal digits"),
            ({"startTimeUnixNano": "-5"}, "Value out of range: -5"),
            ({"kind": "SPAN_KIND_OTHER"}, "a string in place of a whole number"),
            ({"attributes": [{"key": "a", "value": {"intValue": 1.5}}]}, "a number in place of a whole number"),
            ({"attributes": [{"key": "a", "value": {"bytesValue": "a+b/c"}}]}, "a string in place of base64"),
            ({"name": 7}, "a number in place of a string"),
            ({"startTimeUnixNano": "soon"}, "a string in place of a whole number"),
            ({"attributes": 7}, "a number in place of a list"),
            ({"attributes": [{"key": "a", "value": 7}]}, "a number in place of an object"),
            ({"attributes": [{"key": "a", "value": {"doubleValue": []}}]}, "a list in place of a number"),
            ({"events": ["begin"]}, "a string in place of an object"),
        ],
    )
    def test_malformed_span(self, shared, changes, reason) -> None:
        """A span in JSON that has another form is refused with the reason, in words that aren't Python's."""
        answer = send_json(shared, {"traceId": "1" * 32, "spanId": "2" * 16, **changes})
        partial = json.loads(answer.body)["partialSuccess"]
        assert (answer.status, partial["rejectedSpans"]) == (200, "1")
        assert partial["errorMessage"] == f"1 refused: a malformed span: {reason}"

    @pytest.mark.parametrize("encoding", ["gzip", "zstd"])
    def test_bomb(self, shared, encoding) -> None:
        """A small body that decompresses to more than the limit is refused."""
        body = make_request([make_span(1, 0, text="x" * (80 * 2**20))])
        answer = shared.send(body, encoding=encoding)
        assert answer.status == 413
        assert "67,108,864 bytes once decompressed" in Status.FromString(answer.body).message

    def test_too_large(self, shared) -> None:
        """A body above the limit is refused, whether it says its length or not."""
        assert shared.send(bytes(33 * 2**20)).status == 413

    def test_other_paths(self, shared) -> None:
        """Metrics and logs have no place here: 404; a GET of the traces is 405."""
        assert shared.ask("POST", "/v1/metrics", b"").status == 404
        assert shared.ask("GET").status == 405


def test_zero_parent_is_a_root(start, tmp_path) -> None:
    """Senders that write a parent of zeros for a root are understood, in both forms."""
    receiver = start()
    for number, form in enumerate((PROTOBUF, JSON)):
        span = make_span(number, 0)
        span.parent_span_id = bytes(8)
        body = make_request([span])
        assert receiver.send(as_json(body) if form == JSON else body, form=form).status == 200
    assert receiver.stop()[0] == 0
    assert [each.has_root for each in otel_rollout.read_trajectories(tmp_path / "traces")] == [True, True]
    assert len(spans_in_frames(tmp_path / "traces")) == 2


def test_json_of_other_senders(start, tmp_path) -> None:
    """Null is no value; enumerations may have names, counts may be strings, and base64 has two alphabets."""
    ids = {"traceId": "AB" * 16, "spanId": "c" * 16}
    nulls = dict.fromkeys(
        (
            *("parentSpanId", "traceState", "flags", "name", "kind", "startTimeUnixNano", "endTimeUnixNano"),
            *("attributes", "events", "links", "status", "droppedAttributesCount", "droppedEventsCount"),
        )
    )
    named = {
        "traceId": "AB" * 16,
        "spanId": "d" * 16,
        "parentSpanId": "c" * 16,
        "kind": "SPAN_KIND_SERVER",
        "status": {"code": "STATUS_CODE_ERROR", "message": "it failed"},
        "droppedAttributesCount": "3",
        "attributes": [
            {"key": "bytes", "value": {"bytesValue": "-_8"}},
            {"key": "list", "value": {"arrayValue": {"values": None}}},
            {"key": "none", "value": None},
        ],
    }
    receiver = start()
    answer = send_json(receiver, {**ids, **nulls}, named, resource={"attributes": None})
    assert (answer.status, answer.body) == (200, b"{}")
    assert receiver.send(b'{"resourceSpans": [{"resource": null, "scopeSpans": null}]}', form=JSON).status == 200
    receiver.stop()
    (one,) = otel_rollout.read_trajectories(tmp_path / "traces")
    spans = {span.context.span_id: span for span in one.spans}
    found = spans[int("d" * 16, 16)]
    assert (found.kind.name, found.status.status_code.name, found.status.description) == (
        "SERVER",
        "ERROR",
        "it failed",
    )
    assert found.attributes == {"bytes": b"\xfb\xff", "list": (), "none": None}
    assert found.dropped_attributes == 3
    assert len(spans) == 2


def test_text_that_is_no_utf8_in_json(start, tmp_path) -> None:
    """Half a character, as JavaScript cuts it, costs that character and not the request."""
    half = b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"%b","spanId":"%b","name":"a \\ud83d b \xff"}]}]}]}'
    receiver = start()
    answer = receiver.send(half % (b"1" * 32, b"2" * 16), form=JSON)
    assert (answer.status, answer.body) == (200, b"{}")
    receiver.stop()
    (one,) = otel_rollout.read_trajectories(tmp_path / "traces")
    assert one.spans[0].name == "a ? b \N{REPLACEMENT CHARACTER}"
