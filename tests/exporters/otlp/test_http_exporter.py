"""OTLP over HTTP against a receiver that fails as it is told."""

from __future__ import annotations

import pytest
from google.rpc.status_pb2 import Status

import otel_rollout
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout_otlp import OtlpHttpSpanExporter


@pytest.fixture
def exporter(http_receiver):
    """An exporter for the receiver."""
    exporter = OtlpHttpSpanExporter(endpoint=f"{http_receiver.url}/v1/traces")
    yield exporter
    exporter.shutdown()


class TestSend:
    """One attempt."""

    def test_spans_arrive(self, http_receiver, exporter, make_spans):
        """A batch goes in one request, in protobuf, in order."""
        assert exporter.send(make_spans(3)) == DELIVERED
        assert http_receiver.names == ["0", "1", "2"]
        assert http_receiver.headers[0]["content-type"] == "application/x-protobuf"
        assert http_receiver.headers[0][":path"] == "/v1/traces"

    @pytest.mark.parametrize("compression", ["gzip", "deflate"])
    def test_compression(self, http_receiver, make_spans, monkeypatch, compression):
        """A compressed body arrives whole, and is smaller."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
        exporter = OtlpHttpSpanExporter()
        assert exporter.send(make_spans(5, 10_000)) == DELIVERED
        exporter.shutdown()
        assert http_receiver.names == list("01234")
        assert http_receiver.sizes[0] < 5_000

    def test_a_span_that_cannot_be_encoded(self, http_receiver, exporter, make_spans, bad_span):
        """It is refused before anything is sent, which makes delivery look for it at once: waiting would not help."""
        outcome = exporter.send([*make_spans(2), bad_span])
        assert outcome.verdict is Verdict.REFUSED
        assert outcome.reason.startswith("a span can't be encoded: ")
        assert http_receiver.sizes == []

    def test_the_exporter_names_itself(self, http_receiver, make_spans):
        """The receiver hears who sends, in the form of the specification, unless a header says another name."""
        for headers in (None, {"User-Agent": "mine"}):
            exporter = OtlpHttpSpanExporter(endpoint=http_receiver.url, headers=headers)
            assert exporter.send(make_spans(1)) == DELIVERED
            exporter.shutdown()
        product = f"otel-rollout/{otel_rollout.__version__} OTel-OTLP-Exporter-Python/{otel_rollout.__version__}"
        assert [headers["user-agent"] for headers in http_receiver.headers] == [product, "mine"]

    def test_headers(self, http_receiver, make_spans, monkeypatch):
        """Headers of the variable and of the argument are sent, the argument's first."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-project=seven,x-key=old")
        exporter = OtlpHttpSpanExporter(headers={"X-Key": "new"})
        exporter.send(make_spans(1))
        exporter.shutdown()
        assert http_receiver.headers[0]["x-project"] == "seven"
        assert http_receiver.headers[0]["x-key"] == "new"

    def test_rejected_spans_are_told(self, http_receiver, exporter, make_spans):
        """A partial success says how many spans were not kept, and why."""
        http_receiver.rejected = 2
        reason = "2 of 3 spans rejected: odd"
        assert exporter.send(make_spans(3)) == Outcome(Verdict.DELIVERED, reason, rejected=2)

    @pytest.mark.parametrize("media_type", ["", "text/plain; charset=utf-8", "application/json"])
    @pytest.mark.parametrize("body", [b"", b"{}", b'{"partialSuccess":{}}', b'{"partialSuccess":null,"more":1}'])
    def test_an_answer_in_json_is_no_fault(self, http_receiver, exporter, make_spans, media_type, body):
        """Receivers that answer in JSON, under its type or without, have taken the batch."""
        http_receiver.answers = [(200, {"content-type": media_type}, body)]
        assert exporter.send(make_spans(1)) == DELIVERED

    @pytest.mark.parametrize(
        ("variable", "path", "advice"),
        [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "", "check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS"),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "/v1/traces",
                "check OTEL_EXPORTER_OTLP_TRACES_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS",
            ),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "",
                (
                    "no path is added to OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, and most receivers take traces at "
                    "/v1/traces: check it and OTEL_EXPORTER_OTLP_HEADERS"
                ),
            ),
        ],
    )
    def test_a_configuration_error_says_what_to_check(
        self, http_receiver, make_spans, monkeypatch, variable, path, advice
    ):
        """If the receiver answers with an auth error or finds nothing, the reason names the variables in force."""
        monkeypatch.setenv(variable, http_receiver.url + path)
        for status in (401, 404):
            http_receiver.answers = [(status, {}, b"who are you?")]
            exporter = OtlpHttpSpanExporter()
            outcome = exporter.send(make_spans(1))
            exporter.shutdown()
            assert outcome.verdict is Verdict.CONFIGURATION_ERROR
            assert outcome.reason.endswith(f"who are you?; {advice}")

    def test_arguments_are_named_where_they_are_in_force(self, http_receiver, exporter, make_spans):
        """The address of `init(endpoint=…)` is no variable's."""
        http_receiver.answers = [(401, {}, b"who are you?")]
        assert exporter.send(make_spans(1)).reason.endswith("check endpoint, headers and OTEL_EXPORTER_OTLP_HEADERS")

    def test_a_failure_in_protobuf_is_quoted(self, http_receiver, exporter, make_spans):
        """A receiver's sentence stands in the status that the specification has for failures."""
        http_receiver.answers = [(400, {}, Status(code=3, message="no such tenant ✓").SerializeToString())]
        outcome = exporter.send(make_spans(1))
        assert (outcome.verdict, outcome.reason.split(": ")[-1]) == (Verdict.REFUSED, "no such tenant ✓")

    def test_a_compression_that_is_not_taken(self, http_receiver, make_spans, monkeypatch):
        """The receiver's sentence and the variable of the compression are named, no other."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "deflate")
        http_receiver.answers = [(415, {}, Status(code=3, message="no 'deflate' here").SerializeToString())]
        exporter = OtlpHttpSpanExporter()
        outcome = exporter.send(make_spans(1))
        exporter.shutdown()
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert outcome.reason.endswith("no 'deflate' here; it may not take deflate: see OTEL_EXPORTER_OTLP_COMPRESSION")

    def test_no_second_attempt_is_made(self, http_receiver, exporter, make_spans):
        """Trying again is left to delivery."""
        http_receiver.answers = [(503, {"Retry-After": "5"}, b"")]
        outcome = exporter.send(make_spans(1))
        assert (outcome.verdict, outcome.retry_after) == (Verdict.RETRY, 5.0)
        assert len(http_receiver.headers) == 1


class TestDelivery:
    """From `init` to the receiver, through faults."""

    @pytest.fixture
    def trace(self, http_receiver, monkeypatch):
        """Traces a trajectory of so many ops."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", http_receiver.url)
        otel_rollout.init("project", "experiment", backend="otlp")

        @otel_rollout.rollout_trace_op
        def op(value):
            return value

        def trace(*values):
            with otel_rollout.rollout_trace_attr(0, 1, 0):
                for value in values:
                    op(value)

        return trace

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_passing_fault_loses_nothing_and_duplicates_nothing(self, http_receiver, trace, status):
        """After a fault that passes each span is there once, children before the root."""
        http_receiver.answers = [(status, {}, b"")] * 2
        trace(1, 2)
        assert otel_rollout.flush(60)
        assert [name.rpartition(".")[2] for name in http_receiver.names] == ["op", "op", "rollout_trace"]
        assert otel_rollout.stats().exporters["otlp"].delivered == 3

    @pytest.mark.parametrize(("status", "reason"), [(400, "refused"), (422, "refused"), (413, "too_large")])
    def test_what_is_refused_to_the_last_is_counted(self, http_receiver, trace, status, reason):
        """A batch that is refused whole, halved and shrunk is lost for that reason."""
        http_receiver.answers = [(status, {}, b"no")] * 5
        trace()
        assert not otel_rollout.flush(20)
        assert otel_rollout.stats().exporters["otlp"].lost == {reason: 1}

    @pytest.mark.parametrize("status", [401, 403, 404])
    def test_a_configuration_error_is_not_hammered(self, http_receiver, trace, status):
        """Wrong credentials cost one request, a flush one more, and no span until the end."""
        http_receiver.answers = [(status, {}, b"no")] * 100
        trace(1)
        assert not otel_rollout.flush(20)
        assert not otel_rollout.flush(20)
        assert len(http_receiver.headers) <= 3
        stats = otel_rollout.stats().exporters["otlp"]
        assert (stats.queued, stats.lost) == (2, {})
        http_receiver.answers = []
        assert otel_rollout.flush(60)

    def test_rejected_spans_are_counted(self, http_receiver, trace):
        """Spans that a receiver rejects from a batch that it takes are lost, and the flush returns False."""
        http_receiver.rejected = 1
        trace(1)
        assert not otel_rollout.flush(20)
        assert otel_rollout.stats().exporters["otlp"].lost == {"rejected": 1}
