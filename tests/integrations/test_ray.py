"""The carrier that takes a trajectory's context across an actor call."""

from __future__ import annotations

from otel_rollout import flush, rollout_trace_attr, rollout_trace_op
from otel_rollout.hooks.carrier import extract, inject
from otel_rollout.testing import InMemorySpanExporter


@rollout_trace_op
def score() -> float:
    return 1.0


class TestCarrier:
    """`inject` and `extract`."""

    def test_op_in_another_process_is_a_child(self, rollout_spans: InMemorySpanExporter) -> None:
        """An op inside `extract` stands under the span that was current at `inject`, with the trajectory's tags."""
        carriers = []

        @rollout_trace_op
        def ask() -> None:
            carriers.append(inject())

        with rollout_trace_attr(sample_index=7, step=2, rollout_n=1):
            ask()
        with extract(carriers[0]):
            score()
        flush()
        spans = {span["name"].rpartition(".")[2]: span for span in rollout_spans.as_dicts()}
        assert spans["score"]["parent_id"] == spans["ask"]["span_id"]
        assert spans["score"]["trace_id"] == spans["ask"]["trace_id"]
        assert spans["score"]["attributes"]["rollout.sample_index"] == 7
        assert spans["score"]["attributes"]["rollout.rollout_n"] == 1

    def test_carrier_is_w3c(self, rollout_spans: InMemorySpanExporter) -> None:
        """The carrier is a plain dict of texts with a W3C traceparent, which any other tracer can read."""
        with rollout_trace_attr(sample_index=7, step=2):
            carrier = inject()
        assert all(isinstance(value, str) for value in carrier.values())
        version, trace_id, span_id, _flags = carrier["traceparent"].split("-")
        assert (version, len(trace_id), len(span_id)) == ("00", 32, 16)

    def test_silence_goes_along(self, rollout_spans: InMemorySpanExporter) -> None:
        """A request from inside `trace=False` is not traced in the other process either."""
        with rollout_trace_attr(sample_index=7, trace=False):
            carrier = inject()
        with extract(carrier):
            score()
        flush()
        assert rollout_spans.spans == []

    def test_nothing_to_carry(self, rollout_spans: InMemorySpanExporter) -> None:
        """Outside any trajectory the carrier is empty, and an empty one changes nothing."""
        assert inject() == {}
        with extract({}), extract(None), extract({"traceparent": "nonsense"}):
            score()
        flush()
        assert [span["attributes"]["rollout.outside_trajectory"] for span in rollout_spans.as_dicts()] == [True]

    def test_off(self) -> None:
        """While tracing is off the carrier is empty, and one from elsewhere changes nothing."""
        assert inject() == {}
        with extract({"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}):
            assert score() == 1.0
