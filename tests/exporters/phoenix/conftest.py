"""Trajectories traced into a real Phoenix, and a proxy in front of it that fails as it is told."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import otel_rollout
from otel_rollout import FollowUpStats, annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout_phoenix import PhoenixSpanExporter
from tests.faults.faulty_receiver import FaultyReceiver

SECONDS = 60.0


@pytest.fixture
def project() -> str:
    """A project's name that no other test uses."""
    return f"phoenix-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def proxy(phoenix: Any) -> Iterator[FaultyReceiver]:
    """A proxy in front of Phoenix."""
    with FaultyReceiver(phoenix.address) as proxy:
        yield proxy


@rollout_trace_op(kind="LLM")
def generate(prompt: str) -> str:
    """Answer."""
    return f"{prompt} 42"


@pytest.fixture
def trace(project: str) -> Callable[..., None]:
    """Trace trajectories of one group, one for each reward, into Phoenix at an address."""

    def run(address: str, *rewards: float, **annotations: Any) -> None:
        otel_rollout.init(project, "exp", backend=PhoenixSpanExporter(endpoint=address, timeout=5.0))
        for number, reward in enumerate(rewards):
            with rollout_trace_attr(12, 7, number, name="trajectory"):
                generate("six times seven?")
                annotate(reward=reward, **annotations)

    return run


def counted() -> FollowUpStats:
    """Return the counts of the rewards."""
    (stats,) = otel_rollout.stats().exporters.values()
    return stats.follow_up_requests["rewards"]
