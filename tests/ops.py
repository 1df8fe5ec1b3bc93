"""Decorated functions of every kind, and the whole record of a span of one of them."""

from __future__ import annotations

import asyncio
from typing import Any

import otel_rollout
from otel_rollout import rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter

MISSING: Any = object()


def record(name: str, inputs: Any = MISSING, output: Any = MISSING, **changes: Any) -> dict[str, Any]:
    """Return the whole record of a span of an op that ran outside any trajectory, as the only span so far."""
    attributes: dict[str, Any] = {"openinference.span.kind": "CHAIN", "rollout.outside_trajectory": True}
    for side, value in (("input", inputs), ("output", output)):
        if value is not MISSING:
            mime_type = "text/plain" if isinstance(value, str) else "application/json"
            attributes |= {f"{side}.value": value, f"{side}.mime_type": mime_type}
    attributes |= changes.pop("attributes", {})
    ids = {"trace_id": 1, "span_id": 1, "parent_id": None, "start_time": 1, "end_time": 2, "status": "UNSET"}
    return {"name": name, **ids, "attributes": attributes, **changes}


def recorded(exporter: InMemorySpanExporter) -> list[dict[str, Any]]:
    """Return all spans so far, whole."""
    assert otel_rollout.flush(60)
    return exporter.as_dicts()


@rollout_trace_op
def add(a: int, b: int = 2) -> int:
    """Add."""
    return a + b


@rollout_trace_op(name="renamed", kind="TOOL")
async def multiply(a: int, b: int) -> int:
    """Multiply."""
    await asyncio.sleep(0)
    return a * b


@rollout_trace_op
def count_to(n: int) -> Any:
    """Count, and say how far."""
    yield from range(n)
    return n


@rollout_trace_op
async def stream(n: int) -> Any:
    """Count, asynchronously."""
    for i in range(n):
        await asyncio.sleep(0)
        yield i


class Agent:
    """Methods of every kind."""

    factor = 10

    def __init__(self, name: str = "agent") -> None:
        self.name = name

    @rollout_trace_op
    def scale(self, value: int) -> int:
        """Scale."""
        return value * self.factor

    @rollout_trace_op
    async def act(self, value: int) -> int:
        """Act."""
        return value + 1

    @rollout_trace_op
    @classmethod
    def inside_out(cls, value: int) -> int:
        """Be decorated outside of classmethod."""
        return value * cls.factor

    @classmethod
    @rollout_trace_op
    def outside_in(cls, value: int) -> int:
        """Be decorated inside of classmethod."""
        return value * cls.factor

    @rollout_trace_op
    @staticmethod
    def static_inside_out(value: int) -> int:
        """Be decorated outside of staticmethod."""
        return value

    @staticmethod
    @rollout_trace_op
    def static_outside_in(value: int) -> int:
        """Be decorated inside of staticmethod."""
        return value


class Caller:
    """An object whose calls are coroutines."""

    @property
    def __name__(self) -> str:
        return "caller"

    async def __call__(self, value: int) -> int:
        """Add one."""
        await asyncio.sleep(0)
        return value + 1
