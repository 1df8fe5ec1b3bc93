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

if _TYPE_CHECKING:
    from otel_rollout.capture.op import rollout_trace_op
    from otel_rollout.capture.trajectory import annotate, rollout_trace_attr
    from otel_rollout.config import RolloutTraceConfig, flush, init, shutdown, stats
    from otel_rollout.counts import ExporterStats, SideWorkStats, Stats
    from otel_rollout.errors import (
        AlreadyInitializedError,
        ConfigurationError,
        MissingExtraError,
        NoTracesError,
        RolloutTraceError,
        UnknownExporterError,
        UnreadableTraceError,
    )
    from otel_rollout.spans.sampling import select_samples
    from otel_rollout.trace_folder.reader import RecordedTrajectory, read
    from otel_rollout.version import __version__

__all__ = [
    "AlreadyInitializedError",
    "ConfigurationError",
    "ExporterStats",
    "MissingExtraError",
    "NoTracesError",
    "RecordedTrajectory",
    "RolloutTraceConfig",
    "RolloutTraceError",
    "SideWorkStats",
    "Stats",
    "UnknownExporterError",
    "UnreadableTraceError",
    "__version__",
    "annotate",
    "flush",
    "init",
    "read",
    "rollout_trace_attr",
    "rollout_trace_op",
    "select_samples",
    "shutdown",
    "stats",
]

_PLACES = {
    "capture.op": ("rollout_trace_op",),
    "capture.trajectory": ("annotate", "rollout_trace_attr"),
    "config": ("RolloutTraceConfig", "flush", "init", "shutdown", "stats"),
    "counts": ("ExporterStats", "SideWorkStats", "Stats"),
    "errors": (
        "AlreadyInitializedError",
        "ConfigurationError",
        "MissingExtraError",
        "NoTracesError",
        "RolloutTraceError",
        "UnknownExporterError",
        "UnreadableTraceError",
    ),
    "spans.sampling": ("select_samples",),
    "trace_folder.reader": ("RecordedTrajectory", "read"),
    "version": ("__version__",),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> _Any:
    """Import a public name on first use: the command line's help needs none, and a trainer doesn't read folders."""
    # `init` brings all that a trainer uses: a child that is forked while a thread imports waits for it forever.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(_import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
