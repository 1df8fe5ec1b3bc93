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

import sys as _sys
from importlib import import_module as _import_module
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from otel_rollout.config import RolloutTraceConfig, flush, init, shutdown, stats
    from otel_rollout.errors import (
        AlreadyInitializedError,
        ConfigurationError,
        MissingExtraError,
        NoTracesError,
        RolloutTraceError,
        UnknownExporterError,
        UnreadableTraceError,
    )
    from otel_rollout.op import rollout_trace_op
    from otel_rollout.sampling import select_samples
    from otel_rollout.stats import ExporterStats, SideWorkStats, Stats
    from otel_rollout.trace_folder.reader import RecordedTrajectory, read
    from otel_rollout.trajectory import annotate, rollout_trace_attr
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

_MODULES = ("errors", "version", "stats", "sampling", "op", "trajectory", "config", "trace_folder.reader")
"""The modules that bring the public names, those that import least first."""


def __getattr__(name: str) -> _Any:
    """Import a public name on first use: the command line's help needs none, and a trainer doesn't read folders."""
    if name in __all__:
        for module in _MODULES:
            found = _import_module(f"{__name__}.{module}")
            if name in found.__all__:
                globals()[name] = value = getattr(found, name)
                return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(_ModuleType):
    def __reduce__(self) -> _Any:
        # cloudpickle, and so Ray, knows modules by their exact type.
        return _import_module, (self.__name__,)

    def __setattr__(self, name: str, value: object) -> None:
        # The import of the submodule `stats` would put it in the place of the function.
        if not (name in __all__ and isinstance(value, _ModuleType)):
            super().__setattr__(name, value)


_sys.modules[__name__].__class__ = _Package
