"""The system's clock goes back while a trajectory runs."""

from __future__ import annotations

from trainer import account


class TestClock:
    """An hour back at every fifth look."""

    def test_goes_back(self, receiver, start, train) -> None:
        """Every span arrives, none ends before it starts, and no wait or deadline is any longer for it."""
        trainer = start(receiver, launcher="stepping_clock.py")
        receiver.down()
        train(trainer)
        assert trainer.flush(0.5) is False
        receiver.up()
        assert trainer.flush(20.0) is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}
        assert receiver.backwards == []
