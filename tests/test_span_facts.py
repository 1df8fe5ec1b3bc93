"""What several exporters read from a span."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from otel_rollout.facts import reward_of, span_id_of, trace_id_of


class TestIds:
    """`trace_id_of` and `span_id_of`."""

    def test_ids(self):
        """The trace id is a number, the span id 16 hexadecimal digits."""
        span = ReadableSpan("op", SpanContext(7, 0xAB, is_remote=False))

        assert (trace_id_of(span), span_id_of(span)) == (7, "00000000000000ab")

    def test_a_span_without_context_has_zeros(self):
        """A span may have no context."""
        assert (trace_id_of(ReadableSpan("op")), span_id_of(ReadableSpan("op"))) == (0, "0" * 16)


class TestReward:
    """`reward_of`."""

    @pytest.mark.parametrize(
        ("value", "reward"), [(1, 1.0), (-0.5, -0.5), (True, None), ("1", None), (float("nan"), None), (None, None)]
    )
    def test_only_a_finite_number_is_one(self, value, reward):
        """Booleans, texts and floats that are not finite are no rewards."""
        attributes = {} if value is None else {"rollout.reward": value}

        assert reward_of(ReadableSpan("op", attributes=attributes)) == reward
