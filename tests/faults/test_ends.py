"""How a process ends, and what of its queue is delivered; ends without a backend are in tests/test_process_exit.py."""

from __future__ import annotations

import signal
import time

import pytest
from trainer import account


def traced(receiver, start, **given):
    """Return a process with 24 spans that are delivered and 24 that are queued, and the ids of the first."""
    trainer = start(receiver, **given)
    trainer.train()
    assert trainer.flush() is True
    trainer.train()
    assert len(receiver.stored) == 24
    return trainer


class TestEndsThatDeliver:
    """The interpreter comes to an end of its own."""

    def test_exception_in_main(self, receiver, start) -> None:
        """The exception's traceback is printed and its exit status is kept, after what was queued is delivered."""
        trainer = traced(receiver, start)
        trainer.tell("raise")
        assert trainer.finish() == 1
        assert "RuntimeError: the trainer fails" in trainer.errors
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}

    def test_threads_that_are_alive(self, receiver, start) -> None:
        """At the end of main the threads of a pool are waited for and delivered whole; a daemon holds up nothing."""
        trainer = traced(receiver, start)
        trainer.ask("threads")
        assert trainer.finish() == 0
        assert receiver.names["pool"] == 80
        assert receiver.names["daemon"] > 0
        assert set(receiver.stored.values()) == {1}
        assert set(receiver.stored) <= trainer.sent
        assert "Traceback" not in trainer.errors
        counts = trainer.report["exporters"]["otlp"]
        assert counts["delivered"] == len(receiver.stored) == counts["recorded"] - sum(counts["lost"].values())
        # What the daemon ends while tracing is being shut down.
        assert set(counts["lost"]) <= {"after_shutdown"}

    def test_sigint(self, receiver, start) -> None:
        """Ctrl-C ends the process as it does without tracing, after what was queued is delivered."""
        trainer = traced(receiver, start)
        trainer.ask("wait")
        trainer.process.send_signal(signal.SIGINT)
        assert trainer.wait() == -signal.SIGINT
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}

    def test_second_sigint(self, receiver, start) -> None:
        """A second Ctrl-C does not wait for a backend that is away."""
        trainer = traced(receiver, start, shutdown_timeout_ms=600_000)
        receiver.down()
        trainer.ask("wait")
        trainer.process.send_signal(signal.SIGINT)
        while trainer.process.poll() is None and "KeyboardInterrupt" not in trainer.errors:
            time.sleep(0.02)
        trainer.process.send_signal(signal.SIGINT)
        trainer.wait()
        assert len(receiver.stored) == 24

    def test_sigterm_that_the_program_handles(self, receiver, start) -> None:
        """A program whose own handler exits is delivered whole, and its exit status is kept."""
        trainer = traced(receiver, start, EXIT_ON_SIGTERM=7)
        trainer.ask("wait")
        trainer.process.send_signal(signal.SIGTERM)
        assert trainer.wait() == 7
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}

    def test_sigterm_amid_rollouts(self, receiver, start) -> None:
        """SIGTERM amid a running step closes and delivers its trajectories, each span once."""
        trainer = traced(receiver, start, EXIT_ON_SIGTERM=143)
        queued = trainer.sent
        trainer.tell("train", trajectories=20_000, size=200, bads=0)
        while len(trainer.sent) < 500:
            time.sleep(0.02)
        trainer.process.send_signal(signal.SIGTERM)
        assert trainer.wait() == 143
        assert queued < trainer.sent
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"]) == {}
        assert set(receiver.stored.values()) == {1}

    def test_sigterm_while_the_backend_is_away(self, receiver, start) -> None:
        """With a backend that is away, the process is gone after the time given for shutdown, and the loss counted."""
        trainer = traced(receiver, start, EXIT_ON_SIGTERM=143, shutdown_timeout_ms=500)
        receiver.down()
        trainer.ask("wait")
        trainer.process.send_signal(signal.SIGTERM)
        assert trainer.wait() == 143
        assert "24 lost (shutdown 24)" in trainer.errors
        assert len(receiver.stored) == 24


class TestEndsThatLoseTheQueue:
    """The interpreter is not asked."""

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
    def test_signal(self, receiver, start, number) -> None:
        """SIGKILL, and SIGTERM without a handler, lose exactly what `stats()` showed as queued."""
        trainer = traced(receiver, start)
        queued = trainer.stats("otlp")["queued"]
        trainer.ask("wait")
        trainer.process.send_signal(number)
        assert trainer.wait() == -number
        assert queued == 24
        assert len(trainer.sent) == len(receiver.stored) + queued
        assert set(receiver.stored.values()) == {1}
        assert not trainer.has_report

    def test_os_exit(self, receiver, start) -> None:
        """`os._exit` loses exactly what `stats()` showed as queued."""
        trainer = traced(receiver, start)
        queued = trainer.stats("otlp")["queued"]
        trainer.tell("exit", code=3)
        assert trainer.wait() == 3
        assert len(trainer.sent) == len(receiver.stored) + queued
        assert set(receiver.stored.values()) == {1}
