"""What a backend answers: refusals, limits, missing credentials, overload, and a fault after the spans were stored."""

from __future__ import annotations

import pytest
from faulty_receiver import Fault
from trainer import account


def counts(trainer):
    """Return the final counts."""
    return trainer.report["exporters"]["otlp"]


class TestRefusals:
    """The backend finds fault with a part of what it is sent."""

    def test_400_for_one_span(self, receiver, start, train) -> None:
        """A batch that is refused for one span costs that span alone, under `refused`; the others arrive once."""
        receiver.refuses = lambda spans, size: 400 if any(span.name == "bad" for span in spans) else 0
        trainer = start(receiver)
        train(trainer, bads=1)
        assert trainer.flush() is False
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, counts(trainer)) == {"refused": 1}
        assert set(receiver.stored.values()) == {1}
        assert "bad" not in receiver.names

    @pytest.mark.slow
    def test_413_for_a_batch(self, receiver, start, train) -> None:
        """A batch over the backend's limit goes in parts, whole."""
        receiver.refuses = lambda spans, size: 413 if size > 20_000 else 0
        trainer = start(receiver)
        train(trainer, 16, size=2000)
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, counts(trainer)) == {}
        assert counts(trainer)["payloads_shrunk"] == 0
        assert set(receiver.stored.values()) == {1}

    def test_413_for_single_spans(self, receiver, start, train) -> None:
        """A span that is over the limit on its own arrives with its payload cut, and is counted as that."""
        receiver.refuses = lambda spans, size: 413 if size > 20_000 else 0
        trainer = start(receiver)
        train(trainer, 4, size=30_000)
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, counts(trainer)) == {}
        # The model's answer stands in the output of the call, in the input of the tool, and in that of the root.
        assert counts(trainer)["payloads_shrunk"] == 12


class TestCredentials:
    """The backend turns us away."""

    @pytest.mark.parametrize("status", [401, pytest.param(403, marks=pytest.mark.slow)])
    def test_to_the_end(self, receiver, start, train, status) -> None:
        """Wrong credentials lose everything as `configuration_error`; a flush says so at once, without a retry."""
        receiver.steady = Fault(status=status)
        trainer = start(receiver)
        train(trainer)
        assert trainer.flush(60) is False
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, counts(trainer)) == {"configuration_error": 24}
        assert receiver.requests < 5
        assert f"HTTP {status}" in trainer.errors


class TestOverload:
    """The backend asks for patience, or answers that it failed."""

    @pytest.mark.slow
    def test_429_with_retry_after(self, receiver, start, train) -> None:
        """The pause that a backend asks for is kept, by a flush too; nothing is lost or sent twice."""
        receiver.faults += [Fault(status=429, headers=(("retry-after", "2"),))]
        trainer = start(receiver)
        train(trainer)
        assert trainer.flush(1.0) is False
        assert receiver.requests == 1
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, counts(trainer)) == {}
        assert set(receiver.stored.values()) == {1}

    def test_503_after_commit(self, receiver, start, train) -> None:
        """Spans that were stored although the answer was 503 are sent again with the same ids, and lost nowhere."""
        receiver.faults += [Fault(status=503, after_commit=True)]
        trainer = start(receiver)
        train(trainer)
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, counts(trainer)) == {}
        assert set(receiver.stored.values()) == {2}


class TestConnections:
    """The connection breaks."""

    @pytest.mark.parametrize(("moment", "times"), [pytest.param("body", 1, marks=pytest.mark.slow), ("answer", 2)])
    def test_reset(self, receiver, start, train, moment, times) -> None:
        """A connection that is reset while the batch or the answer is on its way costs nothing but another attempt."""
        receiver.faults += [Fault(reset=moment)] * 2
        trainer = start(receiver)
        train(trainer, 16, size=100_000)
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, counts(trainer)) == {}
        assert sum(receiver.met.values()) == 2
        assert max(receiver.stored.values()) >= times
