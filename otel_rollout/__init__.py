"""OpenTelemetry tracing for agentic RL rollouts.

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op

otel_rollout.init("my-project", "exp-1", backend="otlp")

@rollout_trace_op(kind="LLM")
async def generate(messages): ...

with rollout_trace_attr(sample_index=7, step=1, rollout_n=0):
    answer = await generate(messages)
    otel_rollout.annotate(reward=1.0, output=answer)
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from otel_rollout.version import __version__

if _TYPE_CHECKING:
    from otel_rollout.config import RolloutTraceConfig, flush, init, shutdown, stats
    from otel_rollout.counts import ExporterStats, FollowUpStats, Stats
    from otel_rollout.errors import (
        AlreadyInitializedError,
        ConfigurationError,
        MissingExtraError,
        NoTracesError,
        RolloutTraceError,
        UnknownExporterError,
        UnreadableTraceError,
    )
    from otel_rollout.finish.span_draft import SpanDraft
    from otel_rollout.folder.reader import RecordedTrajectory, read_trajectories
    from otel_rollout.record.annotate import annotate
    from otel_rollout.record.find_trajectory import find_trajectory
    from otel_rollout.record.op import rollout_trace_op
    from otel_rollout.record.sampling import select_samples
    from otel_rollout.record.start_trajectory import start_trajectory
    from otel_rollout.record.subagent import subagent
    from otel_rollout.record.trajectory import Trajectory, rollout_trace_attr

__all__ = [
    "AlreadyInitializedError",
    "ConfigurationError",
    "ExporterStats",
    "FollowUpStats",
    "MissingExtraError",
    "NoTracesError",
    "RecordedTrajectory",
    "RolloutTraceConfig",
    "RolloutTraceError",
    "SpanDraft",
    "Stats",
    "Trajectory",
    "UnknownExporterError",
    "UnreadableTraceError",
    "__version__",
    "annotate",
    "find_trajectory",
    "flush",
    "init",
    "read_trajectories",
    "rollout_trace_attr",
    "rollout_trace_op",
    "select_samples",
    "shutdown",
    "start_trajectory",
    "stats",
    "subagent",
]

_TRACING = (
    "errors",
    "counts",
    "finish.span_draft",
    "record.sampling",
    "record.annotate",
    "record.op",
    "record.trajectory",
    "record.start_trajectory",
    "record.subagent",
    "record.find_trajectory",
    "config",
)
_READING = ("folder.reader",)


def __getattr__(name: str) -> _Any:
    """Import public names on first use: the command line's help needs none, and a trainer doesn't read folders."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Import all of tracing together: a child that is forked while a thread imports a module waits for it for ever.
    for module in _READING if name in ("RecordedTrajectory", "read_trajectories") else _TRACING:
        found = _import_module(f"{__name__}.{module}")
        own = {name: value for name, value in vars(found).items() if getattr(value, "__module__", "") == found.__name__}
        globals().update({public: own[public] for public in own.keys() & __all__})
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
