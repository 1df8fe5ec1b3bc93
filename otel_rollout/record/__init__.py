"""The caller's thread: ops, trajectories, annotations, snapshots, spans and context."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.record.context import SILENCE, Frame, current_frame, enter_silence
    from otel_rollout.record.ids import SystemIdGenerator
    from otel_rollout.record.open_spans import OpenSpans, ProviderSpans
    from otel_rollout.record.open_trajectories import OpenTrajectories, OpenTrajectory
    from otel_rollout.record.recording_span import RolloutSpan
    from otel_rollout.record.signature import compile_binder
    from otel_rollout.record.snapshot import DEFAULT_BUDGET, Snapshot, to_json
    from otel_rollout.record.span_bounds import SpanBounds, environment_limits
    from otel_rollout.record.trajectory import Trajectory
    from otel_rollout.record.trajectory_state import TrajectoryState
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "context": ("Frame", "SILENCE", "current_frame", "enter_silence"),
            "ids": ("SystemIdGenerator",),
            "open_spans": ("OpenSpans", "ProviderSpans"),
            "open_trajectories": ("OpenTrajectories", "OpenTrajectory"),
            "recording_span": ("RolloutSpan",),
            "signature": ("compile_binder",),
            "snapshot": ("DEFAULT_BUDGET", "Snapshot", "to_json"),
            "span_bounds": ("SpanBounds", "environment_limits"),
            "trajectory": ("Trajectory",),
            "trajectory_state": ("TrajectoryState",),
        },
    )

__all__ = [
    "DEFAULT_BUDGET",
    "SILENCE",
    "Frame",
    "OpenSpans",
    "OpenTrajectories",
    "OpenTrajectory",
    "ProviderSpans",
    "RolloutSpan",
    "Snapshot",
    "SpanBounds",
    "SystemIdGenerator",
    "Trajectory",
    "TrajectoryState",
    "compile_binder",
    "current_frame",
    "enter_silence",
    "environment_limits",
    "to_json",
]
