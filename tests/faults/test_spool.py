"""The spool, in a process: what it saves that would be lost without it, and what it can't."""

from __future__ import annotations

import signal

import pytest
from faulty_receiver import Fault
from trainer import account, spooled

MIB = 2**20
BOUND = 16 * MIB
SLACK = 48 * MIB
"""Batches on their way to the disk, and from there to the backend, as text, as bytes and as spans."""


class TestOutage:
    """The backend is away, or hangs."""

    @pytest.mark.parametrize("backend", ["away", pytest.param("hanging", marks=pytest.mark.slow)])
    def test_memory_stays_within_the_bound_and_nothing_is_lost(self, receiver, start, train, tmp_path, backend) -> None:
        """96 MB of payloads before a bound of 16 MiB wait on disk whole, and arrive once, with nothing left behind."""
        trainer = start(receiver, spool=str(tmp_path / "spool"), max_queue_bytes=BOUND)
        trainer.train(4, size=1_000_000, concurrency=4)
        assert trainer.flush() is True
        before = trainer.ask("memory")["rss"]
        if backend == "away":
            receiver.down()
        else:
            receiver.steady = Fault(hangs=True)
        for _ in range(16):
            train(trainer, 2, size=1_000_000)
            # Training makes 200 MB in a second here, which is more than a disk is for.
            trainer.await_counts("otlp", lambda counts: counts["queued_bytes"] <= BOUND / 2)
        assert trainer.stats("otlp")["spooled"] > 0
        receiver.up() if backend == "away" else receiver.release()
        assert trainer.flush(60.0) is True
        # The inputs of running ops have a bound of the same size.
        assert trainer.ask("memory")["peak"] - before < 2 * BOUND + SLACK
        assert trainer.finish() == 0
        counts = trainer.report["exporters"]["otlp"]
        assert account(trainer.sent, receiver.stored, counts) == {}
        assert set(receiver.stored.values()) == {1}
        assert (counts["payloads_dropped"], counts["payloads_shrunk"]) == (0, 0)
        assert spooled(tmp_path / "spool") == []

    def test_to_the_end(self, receiver, start, train, tmp_path) -> None:
        """What can't be delivered by the end of the process is on disk, and a line says how to deliver it."""
        trainer = start(receiver, spool=str(tmp_path / "spool"), shutdown_timeout_ms=2000)
        train(trainer)
        assert trainer.flush() is True
        receiver.down()
        train(trainer)
        assert trainer.finish() == 0
        left = spooled(tmp_path / "spool")
        assert account(trainer.sent, receiver.stored, trainer.report["exporters"]["otlp"], left) == {}
        assert len(left) == 24
        assert "24 spans wait on disk" in trainer.errors
        assert f"otel-rollout replay {tmp_path / 'spool' / 'otlp'}" in trainer.errors

    def test_sigkill(self, receiver, start, train, replay, tmp_path) -> None:
        """SIGKILL costs what is in memory; what was on disk is delivered by a replay, each span once."""
        trainer = start(receiver, spool=str(tmp_path / "spool"), max_queue_bytes=8 * MIB)
        receiver.down()
        train(trainer, 16, size=100_000)
        counts = trainer.await_counts("otlp", lambda counts: counts["spooled"] > 0)
        trainer.process.send_signal(signal.SIGKILL)
        assert trainer.wait() == -signal.SIGKILL
        left = spooled(tmp_path / "spool")
        assert len(left) == len(set(left))
        assert set(left) <= trainer.sent
        assert len(left) >= counts["spooled"]
        assert counts["lost"] == {}
        receiver.up()
        done = replay(tmp_path / "spool", "otlp", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert done.returncode == 0, done.stdout + done.stderr
        assert receiver.stored == dict.fromkeys(left, 1)
        assert spooled(tmp_path / "spool") == []


class TestDisk:
    """The spool's own disk."""

    def test_full(self, small_disk, receiver, start, train) -> None:
        """Where the spool's disk is full, spans stay in memory within its bound; each loss is counted."""
        disk = small_disk(MIB)
        trainer = start(receiver, spool=str(disk / "spool"), max_queue_bytes=8 * MIB, shutdown_timeout_ms=3000)
        receiver.down()
        before = trainer.ask("memory")["rss"]
        train(trainer, 64, size=200_000, concurrency=4)
        assert trainer.stats("otlp")["queued_bytes"] <= 8 * MIB
        assert trainer.ask("memory")["peak"] - before < 8 * MIB + SLACK
        assert trainer.finish() == 0
        left = spooled(disk / "spool")
        lost = account(trainer.sent, {}, trainer.report["exporters"]["otlp"], left)
        assert set(lost) <= {"queue_full", "shutdown"}
        assert len(left) > 0
        assert sum(lost.values()) > 0

    def test_full_for_a_while(self, small_disk, receiver, start, train) -> None:
        """Once the backend is back, what is on the full disk and in memory is delivered, each span once."""
        disk = small_disk(4 * MIB)
        trainer = start(receiver, spool=str(disk / "spool"), max_queue_bytes=8 * MIB)
        receiver.down()
        train(trainer, 64, size=200_000, concurrency=4)
        receiver.up()
        trainer.flush(60.0)
        assert trainer.finish() == 0
        counts = trainer.report["exporters"]["otlp"]
        lost = account(trainer.sent, receiver.stored, counts)
        assert set(lost) <= {"queue_full"}
        assert set(receiver.stored.values()) == {1}
        assert spooled(disk / "spool") == []

    def test_unwritable(self, receiver, start, tmp_path) -> None:
        """A spool that can't be written to is an error of `init`, before training begins."""
        (tmp_path / "file").touch()
        trainer = start(receiver, spool=str(tmp_path / "file" / "spool"))
        assert trainer.finish() == 1
        assert "ConfigurationError" in trainer.errors
        assert "OTEL_ROLLOUT_SPOOL" in trainer.errors
