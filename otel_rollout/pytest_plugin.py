"""The pytest fixture `rollout_spans`, which traces into memory for one test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from otel_rollout.testing import InMemorySpanExporter


@pytest.fixture
def rollout_spans() -> Iterator[InMemorySpanExporter]:
    """Trace into memory, with ids and times counted from 1; call `otel_rollout.flush()` before reading the spans."""
    from otel_rollout import RolloutTraceConfig, init
    from otel_rollout.testing import InMemorySpanExporter, deterministic_ids_and_times

    RolloutTraceConfig.reset()
    exporter = InMemorySpanExporter()
    with deterministic_ids_and_times():
        init("test-project", "test-experiment", backend=exporter)
        try:
            yield exporter
        finally:
            RolloutTraceConfig.reset()
