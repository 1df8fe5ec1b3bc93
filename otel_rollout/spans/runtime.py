"""The one piece of global state: the running pipeline, or None while tracing is off.

Decorated functions look it up through this module on each call, so that they pickle by reference to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.settings import Settings

if TYPE_CHECKING:
    from otel_rollout.spans.tracer import RolloutTracer

__all__ = ["RunningPipeline", "pipeline"]


class RunningPipeline(Protocol):
    """The side of a pipeline that ops, trajectories and integrations see."""

    run: str
    experiment_name: str
    settings: Settings
    token2text: bool
    snapshot_budget: int
    tracer: RolloutTracer

    @property
    def exporters(self) -> Mapping[str, SpanExporter]:
        """The exporters by the names that they go by in logs and statistics."""

    def tokenizer_of(self, receiver: Any) -> Any:
        """Return the tokenizer of an op's `self` for the delivery thread; None if it has none."""

    def copy_tokenizer(self, tokenizer: Any) -> Any:
        """Return the delivery thread's copy of a tokenizer that other threads use."""

    def request_flush(self) -> None:
        """Have every queue send what it holds soon, without waiting for it."""


pipeline: RunningPipeline | None = None
