"""Queues full of large payloads: memory stays within the bound, whatever the backend does."""

from __future__ import annotations

import pytest
from faulty_receiver import Fault
from trainer import account

MIB = 2**20
BOUND = 32 * MIB
SLACK = 64 * MIB
"""A batch as it is encoded and sent, the payloads of the rollouts that run, and the allocator's leftovers.

Measured: 1 MiB before delivery, 8 to 35 after it, by how the threads take turns; without a bound it would be 160.
"""


class TestMemory:
    """Payloads of 1 MB, 192 MB in all, before a bound of 32 MiB."""

    @pytest.mark.parametrize(
        "backend", ["away", *(pytest.param(each, marks=pytest.mark.slow) for each in ("hanging", "slow"))]
    )
    def test_stays_within_the_bound(self, receiver, start, train, backend) -> None:
        """The process grows by the bound and a batch at most; payloads go before spans; each loss is counted."""
        trainer = start(receiver, max_queue_bytes=BOUND, shutdown_timeout_ms=30_000)
        trainer.train(4, size=1_000_000, concurrency=4)
        assert trainer.flush() is True
        before = trainer.ask("memory")["rss"]
        if backend == "away":
            receiver.down()
        else:
            receiver.steady = Fault(delay=0.5) if backend == "slow" else Fault(hangs=True)
        done = train(trainer, 64, size=1_000_000, concurrency=4)
        queued = trainer.stats("otlp")
        assert queued["queued_bytes"] <= BOUND
        assert done["peak"] - before < BOUND + SLACK
        receiver.up() if backend == "away" else receiver.release()
        trainer.flush()
        assert trainer.ask("memory")["peak"] - before < BOUND + SLACK
        assert trainer.finish() == 0
        counts = trainer.report["exporters"]["otlp"]
        assert account(trainer.sent, receiver.stored, counts) == {}
        assert counts["payloads_dropped"] > 0
