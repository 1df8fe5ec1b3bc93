"""A backend that takes its time, more of it than we wait, or all of it."""

from __future__ import annotations

import pytest
from faulty_receiver import Fault
from trainer import account

from tests.delivery.queues import until


class TestSlowBackend:
    """Each request takes a while."""

    @pytest.mark.slow
    @pytest.mark.parametrize("seconds", [0.05, 5.0])
    def test_answers_late(self, receiver, start, train, seconds) -> None:
        """Answers after 50 ms or 5 s keep nobody waiting but the flush, which returns True; nothing is sent twice."""
        trainer = start(receiver, max_batch_spans=24)
        receiver.steady = Fault(delay=seconds)
        train(trainer, 16)
        assert trainer.flush() is True
        receiver.steady = None
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}
        assert set(receiver.stored.values()) == {1}

    @pytest.mark.slow
    def test_hangs_for_a_while(self, receiver, start, train) -> None:
        """Requests that are never answered are given up at the timeout and made again."""
        trainer = start(receiver, OTEL_EXPORTER_OTLP_TIMEOUT=1)
        receiver.faults += [Fault(hangs=True)]
        train(trainer)
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}
        assert sum(receiver.met.values()) == 1
        assert set(receiver.stored.values()) == {1}

    @pytest.mark.slow
    def test_answers_after_our_timeout(self, receiver, start, train) -> None:
        """What was stored although we stopped waiting is sent again; by its ids, each span is there once."""
        trainer = start(receiver, OTEL_EXPORTER_OTLP_TIMEOUT=1)
        receiver.faults += [Fault(hangs=True, after_commit=True)]
        train(trainer)
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}
        assert set(receiver.stored.values()) == {2}

    def test_hangs_to_the_end(self, receiver, start, train) -> None:
        """A backend that hangs keeps neither the training nor the end of the process; its batch is unknown."""
        trainer = start(receiver, shutdown_timeout_ms=500)
        receiver.steady = Fault(hangs=True)
        train(trainer)
        assert trainer.flush(0.5) is False
        until(lambda: receiver.met)
        assert trainer.finish() == 0
        lost = account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"])
        assert lost == {"unknown": 24}
