"""The running pipeline, or None while tracing is off.

Decorated functions read it from this module on each call, so that they pickle by reference to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter

from otel_rollout.settings import Settings

if TYPE_CHECKING:
    from otel_rollout.record.open_trajectories import OpenTrajectories
    from otel_rollout.record.tracer import RolloutTracer


class RunningPipeline(Protocol):
    """The interface of a pipeline for ops, trajectories and integrations."""

    run: str
    project_name: str
    experiment_name: str
    settings: Settings
    token2text: bool
    snapshot_budget: int
    tracer: RolloutTracer
    open_trajectories: OpenTrajectories

    @property
    def exporters(self) -> Mapping[str, SpanExporter]:
        """The exporters by their names in logs and statistics."""

    def tokenizer_of(self, receiver: Any) -> Any:
        """Return the tokenizer of an op's `self` for the delivery thread; None if it has none."""

    def copy_tokenizer(self, tokenizer: Any) -> Any:
        """Return the delivery thread's copy of a tokenizer that other threads use."""

    def request_flush(self) -> None:
        """Ask every queue to send its spans soon, without waiting for it."""


pipeline: RunningPipeline | None = None

is_init_called = False
"""True once `init` was called in this process, or its absence was noted."""

resource: Resource | None = None
"""The resource of the last `init`; after `shutdown` too, since a provider of the application may export later."""
