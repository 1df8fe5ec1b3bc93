"""Queues that are no larger than a batch."""

from __future__ import annotations

import asyncio

import pytest

from otel_rollout import flush, init, rollout_trace_attr, rollout_trace_op, stats
from otel_rollout.testing import InMemorySpanExporter


@pytest.mark.parametrize("size", [512, 100])
def test_a_healthy_exporter_loses_nothing(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A queue is emptied before it is full, however small it is: waves of spans that fit are delivered."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", str(size))
    exporter = InMemorySpanExporter()
    init("project", "experiment", backend=exporter)

    @rollout_trace_op
    async def turn() -> None:
        await asyncio.sleep(0)

    async def rollout(number: int) -> None:
        with rollout_trace_attr(sample_index=number):
            for _ in range(3):
                await turn()
                await asyncio.sleep(0.01)

    async def main() -> None:
        for first in range(0, 40, 10):
            await asyncio.gather(*(rollout(first + number) for number in range(max(1, min(10, size // 8)))))

    asyncio.run(main())
    assert flush(60)
    [counts] = stats().exporters.values()
    assert (counts.lost, counts.delivered) == ({}, len(exporter.spans))
