"""How many bytes a span takes, and what is given back of them while another thread works on the same span."""

from __future__ import annotations

import pytest

from otel_rollout.delivery.size import trim_payload


class _Taken:
    """A span whose payload another thread takes right after `reads` looks at it."""

    readable = None

    def __init__(self, reads: int) -> None:
        self._left = reads
        self._texts = {"input": b"in", "output": b"out"}

    def _read(self, side):
        self._left -= 1
        return self._texts[side] if self._left >= 0 else None

    input = property(lambda self: self._read("input"), lambda self, text: self._texts.update(input=text))
    output = property(lambda self: self._read("output"), lambda self, text: self._texts.update(output=text))


class TestTrimPayload:
    """Giving back what is allocated behind a payload."""

    @pytest.mark.parametrize("reads", range(5))
    def test_a_payload_that_is_taken_meanwhile_is_no_error(self, reads):
        """However far trimming has come when another exporter's thread takes the payload, it raises nothing."""
        trim_payload(_Taken(reads))

    def test_a_payload_that_is_finished_meanwhile_stays_finished(self):
        """The text that another exporter's thread has cut and redacted is not replaced by the one from before."""

        class Finished(_Taken):
            def _read(self, side):
                text = self._texts[side]
                self._texts[side] = b"finished"
                return text

        span = Finished(99)
        trim_payload(span)
        assert span._texts == {"input": b"finished", "output": b"finished"}

    def test_a_payload_stays_what_it_is(self, make_light_span):
        """Trimming changes no byte of input or output."""
        span = make_light_span("op", b"in")
        span.output = b"out"
        trim_payload(span)
        assert (span.input, span.output) == (b"in", b"out")
