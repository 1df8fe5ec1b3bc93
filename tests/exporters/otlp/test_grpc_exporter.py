"""OTLP over gRPC against a receiver that fails as it is told."""

from __future__ import annotations

import os
import socket

import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

import otel_rollout
from otel_rollout.errors import MissingExtraError
from otel_rollout.export.outcome import DELIVERED, Outcome, Verdict
from otel_rollout.installing import install_line
from otel_rollout_otlp import OtlpGrpcSpanExporter

grpc = pytest.importorskip("grpc")


@pytest.fixture
def exporter(grpc_receiver):
    """An exporter for the receiver."""
    exporter = OtlpGrpcSpanExporter(endpoint=grpc_receiver.url)
    yield exporter
    exporter.shutdown()


class TestSend:
    """One attempt."""

    def test_spans_arrive(self, grpc_receiver, exporter, make_spans):
        """A batch goes in one message, in order."""
        assert exporter.send(make_spans(3)) == DELIVERED
        assert grpc_receiver.names == ["0", "1", "2"]

    @pytest.mark.parametrize("compression", ["gzip", "deflate"])
    def test_compression(self, grpc_receiver, make_spans, monkeypatch, compression):
        """A compressed message arrives whole."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", grpc_receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
        exporter = OtlpGrpcSpanExporter()
        assert exporter.send(make_spans(5, 10_000)) == DELIVERED
        exporter.shutdown()
        assert grpc_receiver.names == list("01234")

    def test_a_span_that_cannot_be_encoded(self, grpc_receiver, exporter, make_spans, bad_span):
        """It is refused before anything is sent, which makes delivery look for it at once: waiting would not help."""
        outcome = exporter.send([*make_spans(2), bad_span])
        assert outcome.verdict is Verdict.REFUSED
        assert outcome.reason.startswith("a span can't be encoded: ")
        assert grpc_receiver.sizes == []

    def test_headers(self, grpc_receiver, make_spans, monkeypatch):
        """Headers are sent as metadata, in lower case, the argument's before the variable's."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", grpc_receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Project=seven,x-key=old")
        exporter = OtlpGrpcSpanExporter(headers={"X-Key": "new"})
        assert exporter.send(make_spans(1)) == DELIVERED
        exporter.shutdown()
        assert grpc_receiver.headers[0]["x-project"] == "seven"
        assert grpc_receiver.headers[0]["x-key"] == "new"

    def test_a_renewed_token_is_used_by_the_next_attempt(self, grpc_receiver, make_spans, monkeypatch):
        """After UNAUTHENTICATED the headers are read from the environment again, without a restart."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer old")
        exporter = OtlpGrpcSpanExporter(endpoint=grpc_receiver.url, headers={"X-Project": "seven"})
        grpc_receiver.answers = [(grpc.StatusCode.UNAUTHENTICATED, "expired")]
        assert exporter.send(make_spans(1)).verdict is Verdict.CONFIGURATION_ERROR
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer new")
        assert exporter.send(make_spans(1)) == DELIVERED
        exporter.shutdown()
        sent = [(each["authorization"], each["x-project"]) for each in grpc_receiver.headers]
        assert sent == [("Bearer old", "seven"), ("Bearer new", "seven")]
        assert grpc_receiver.names == ["0"]

    @pytest.mark.parametrize("scheme", ["", "http://"])
    def test_no_secret_is_said(self, make_spans, monkeypatch, scheme):
        """gRPC's message about an endpoint with a password is shown without the password."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "true")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{scheme}me:s3cret@nowhere.invalid:4317")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "5")
        exporter = OtlpGrpcSpanExporter()
        outcome = exporter.send(make_spans(1))
        exporter.shutdown()
        assert outcome.verdict is not Verdict.DELIVERED
        assert f"from {scheme}nowhere.invalid:4317: " in outcome.reason
        assert "s3cret" not in outcome.reason

    def test_a_header_that_cannot_be_sent_is_a_configuration_error(self, grpc_receiver, make_spans):
        """A header that gRPC refuses is reported, not raised."""
        exporter = OtlpGrpcSpanExporter(endpoint=grpc_receiver.url, headers={"x key": "a\nb"})
        outcome = exporter.send(make_spans(1))
        exporter.shutdown()
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR

    def test_rejected_spans_are_told(self, grpc_receiver, exporter, make_spans):
        """A partial success says how many spans were not kept, and why."""
        grpc_receiver.rejected = 2
        reason = "2 of 3 spans rejected: odd"
        assert exporter.send(make_spans(3)) == Outcome(Verdict.DELIVERED, reason, rejected=2)

    @pytest.mark.parametrize(
        ("code", "verdict"),
        [
            ("CANCELLED", Verdict.RETRY),
            ("DEADLINE_EXCEEDED", Verdict.RETRY),
            ("ABORTED", Verdict.RETRY),
            ("OUT_OF_RANGE", Verdict.RETRY),
            ("UNAVAILABLE", Verdict.RETRY),
            ("DATA_LOSS", Verdict.RETRY),
            ("RESOURCE_EXHAUSTED", Verdict.REFUSED),
            ("INVALID_ARGUMENT", Verdict.REFUSED),
            ("UNAUTHENTICATED", Verdict.CONFIGURATION_ERROR),
            ("PERMISSION_DENIED", Verdict.CONFIGURATION_ERROR),
            ("UNIMPLEMENTED", Verdict.CONFIGURATION_ERROR),
            ("NOT_FOUND", Verdict.CONFIGURATION_ERROR),
            ("INTERNAL", Verdict.UNEXPLAINED),
            ("UNKNOWN", Verdict.UNEXPLAINED),
        ],
    )
    def test_every_status_has_its_verdict(self, grpc_receiver, exporter, make_spans, code, verdict):
        """A status decides what becomes of the batch, after one attempt, and the reason names it."""
        grpc_receiver.answers = [(getattr(grpc.StatusCode, code), "the details")]
        outcome = exporter.send(make_spans(1))
        assert outcome.verdict is verdict
        assert f"gRPC {code} from {grpc_receiver.url}: the details" in outcome.reason
        assert len(grpc_receiver.sizes) == 1

    @pytest.mark.parametrize("code", ["RESOURCE_EXHAUSTED", "UNAVAILABLE"])
    @pytest.mark.parametrize(("seconds", "nanos"), [(7, 500_000_000), (0, 0)])
    def test_a_receiver_that_says_when_it_can_recover(self, grpc_receiver, exporter, make_spans, code, seconds, nanos):
        """The status's RetryInfo makes a passing fault of an exhausted receiver, with the time that it asks for."""
        info = RetryInfo()
        info.retry_delay.seconds, info.retry_delay.nanos = seconds, nanos
        status = Status()
        status.details.add().Pack(info)
        metadata = ("grpc-status-details-bin", status.SerializeToString())
        grpc_receiver.answers = [(getattr(grpc.StatusCode, code), "later", metadata)]
        outcome = exporter.send(make_spans(1))
        assert (outcome.verdict, outcome.retry_after) == (Verdict.RETRY, seconds + nanos / 1e9)

    def test_details_that_cannot_be_read(self, grpc_receiver, exporter, make_spans):
        """Details that are no status have no delay."""
        metadata = ("grpc-status-details-bin", b"\xff\xff")
        grpc_receiver.answers = [(grpc.StatusCode.RESOURCE_EXHAUSTED, "later", metadata)]
        assert exporter.send(make_spans(1)).verdict is Verdict.REFUSED

    def test_the_exporter_names_itself(self, grpc_receiver, exporter, make_spans):
        """The receiver hears who sends, in the form of the specification."""
        assert exporter.send(make_spans(1)) == DELIVERED
        product = f"otel-rollout/{otel_rollout.__version__} OTel-OTLP-Exporter-Python/{otel_rollout.__version__} "
        assert grpc_receiver.headers[0]["user-agent"].startswith(product)

    def test_a_receiver_that_takes_less_says_so(self, grpc_receiver, exporter, make_spans):
        """A receiver with a limit below ours makes the batch go in halves."""
        details = "Received message larger than max (5000 vs. 1000)"
        grpc_receiver.answers = [(grpc.StatusCode.RESOURCE_EXHAUSTED, details)]
        assert exporter.send(make_spans(2)).verdict is Verdict.TOO_LARGE

    def test_a_receiver_that_is_not_there_is_a_passing_fault(self, make_spans):
        """A refused connection is tried again."""
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            exporter = OtlpGrpcSpanExporter(endpoint=f"http://127.0.0.1:{unused.getsockname()[1]}", timeout=5.0)
            assert exporter.send(make_spans(1)).verdict is Verdict.RETRY
            exporter.shutdown()

    def test_a_receiver_that_comes_back_is_reached_at_once(self, start_grpc_receiver, make_spans):
        """After an outage the first attempt gets through: gRPC's own waits between connections are not sat out."""
        with socket.socket() as unused:
            unused.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            exporter = OtlpGrpcSpanExporter(endpoint=f"http://127.0.0.1:{port}", timeout=60.0)
            for _ in range(3):
                assert exporter.send(make_spans(1)).verdict is Verdict.RETRY
        receiver = start_grpc_receiver(port)
        assert exporter.send(make_spans(1)) == DELIVERED
        exporter.shutdown()
        assert receiver.names == ["0"]

    def test_a_message_over_4_mib_is_not_sent(self, grpc_receiver, exporter, make_spans):
        """A message that the receiver would refuse for its size is not sent."""
        assert exporter.send(make_spans(5, 1_000_000)).verdict is Verdict.TOO_LARGE
        assert grpc_receiver.sizes == []

    def test_without_grpc_the_extra_is_named(self, make_spans, monkeypatch):
        """If gRPC isn't installed, `check` and the outcome have the pip line."""
        exporter = OtlpGrpcSpanExporter()
        monkeypatch.setitem(__import__("sys").modules, "grpc", None)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"pip install .*\[grpc\]'"):
            exporter.check()
        outcome = exporter.send(make_spans(1))
        assert outcome.verdict is Verdict.CONFIGURATION_ERROR
        assert install_line("grpc") in outcome.reason


class TestDelivery:
    """From `init` to the receiver."""

    def test_messages_stay_under_4_mib(self, grpc_receiver, monkeypatch):
        """Whatever the batches are set to, no message is over the limit, and every span arrives, shrunk if need be."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", grpc_receiver.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        otel_rollout.init(
            "project", "experiment", backend="otlp", max_batch_bytes=64 * 2**20, max_payload_bytes=16 * 2**20
        )

        @otel_rollout.rollout_trace_op
        def op(text):
            return None

        with otel_rollout.rollout_trace_attr(0, 1, 0):
            for _ in range(30):
                op(["x" * 1000] * 700)
            op(["x" * 1000] * 9_000)
        assert otel_rollout.flush(60)
        assert max(grpc_receiver.sizes) < 4 * 2**20
        assert len(grpc_receiver.names) == 32
        assert otel_rollout.stats().exporters["otlp"].delivered == 32


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestAfterFork:
    """A forked child."""

    def test_the_parents_channel_is_left_alone(self, grpc_receiver, exporter, make_spans):
        """After a fork a channel of its own is opened, and the parent's stays open."""
        exporter.send(make_spans(1))
        parents = exporter._channel
        exporter.after_fork()
        assert exporter.send(make_spans(1)) == DELIVERED
        assert exporter._channel is not parents
        assert len(grpc_receiver.peers) == 2
        parents.close()
