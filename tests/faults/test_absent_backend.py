"""A backend that is not there: at the start, in between, at the end, or all the time."""

from __future__ import annotations

import pytest
from trainer import account


class TestAbsentBackend:
    """Nothing listens at the address."""

    @pytest.mark.slow
    def test_at_the_start(self, receiver, start, train) -> None:
        """Training that starts before its backend is delivered whole once that is up."""
        receiver.down()
        trainer = start(receiver)
        train(trainer)
        assert trainer.flush(0.5) is False
        receiver.up()
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}
        assert set(receiver.stored.values()) == {1}

    def test_in_between(self, receiver, start, train) -> None:
        """An outage between two steps costs nothing, and nothing is sent twice."""
        trainer = start(receiver)
        train(trainer)
        assert trainer.flush() is True
        receiver.down()
        train(trainer)
        assert trainer.flush(0.5) is False
        receiver.up()
        train(trainer)
        assert trainer.flush() is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}
        assert set(receiver.stored.values()) == {1}

    def test_at_the_end(self, receiver, start, train) -> None:
        """What the backend goes away before is lost at the exit, after the time that is given for it, and counted."""
        trainer = start(receiver, shutdown_timeout_ms=1000)
        train(trainer)
        assert trainer.flush() is True
        receiver.down()
        train(trainer)
        assert trainer.finish() == 0
        lost = account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"])
        assert lost == {"shutdown": 24}
        assert "24 lost (shutdown 24)" in trainer.errors

    @pytest.mark.slow
    def test_all_the_time(self, receiver, start, train) -> None:
        """Training without its backend has its results, and every span is counted as lost."""
        receiver.down()
        trainer = start(receiver, shutdown_timeout_ms=500)
        train(trainer)
        assert trainer.finish() == 0
        lost = account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"])
        assert lost == {"shutdown": 24}
