"""The system's clock goes back while a trajectory runs."""

from __future__ import annotations

from trainer import account

MINUTE_NS = 60 * 10**9


class TestClock:
    """An hour back at every fifth look."""

    def test_goes_back(self, receiver, start, train) -> None:
        """Every span arrives and lies inside its parent, and no wait or deadline is any longer for it."""
        trainer = start(receiver, launcher="stepping_clock.py")
        receiver.down()
        train(trainer)
        assert trainer.flush(0.5) is False
        receiver.up()
        assert trainer.flush(20.0) is True
        assert trainer.finish() == 0
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}
        for parent, start, end in receiver.times.values():
            _, first, last = receiver.times.get(parent, (b"", start, end))
            assert first <= start <= end <= last
            assert end - start < MINUTE_NS
