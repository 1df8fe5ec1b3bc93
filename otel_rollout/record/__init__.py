"""The caller's thread: ops, trajectories, annotations, snapshots, spans and context."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.record.bounded_copy import DEFAULT_BUDGET
    from otel_rollout.record.context import Frame, current_frame, leave, with_frame
    from otel_rollout.record.exception_record import ExceptionRecord
    from otel_rollout.record.finished_span import encoded_size, readable_size
    from otel_rollout.record.ids import SystemIdGenerator
    from otel_rollout.record.llm import describe_request, describe_response
    from otel_rollout.record.open_trajectories import OpenOp, OpenTrajectories, OpenTrajectory
    from otel_rollout.record.provider import is_weaves
    from otel_rollout.record.recording_span import RolloutSpan
    from otel_rollout.record.sampling import RolloutSampleRatio, sample_ratio_sampler
    from otel_rollout.record.signature import compile_binder
    from otel_rollout.record.snapshot import Snapshot, take_snapshot, to_json
    from otel_rollout.record.span_bounds import SpanBounds, environment_limits
    from otel_rollout.record.tracer import OpenSpans
    from otel_rollout.record.trajectory_state import TrajectoryState
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "context": ("Frame", "current_frame", "leave", "with_frame"),
            "bounded_copy": ("DEFAULT_BUDGET",),
            "exception_record": ("ExceptionRecord",),
            "finished_span": ("encoded_size", "readable_size"),
            "ids": ("SystemIdGenerator",),
            "llm": ("describe_request", "describe_response"),
            "open_trajectories": ("OpenOp", "OpenTrajectories", "OpenTrajectory"),
            "recording_span": ("RolloutSpan",),
            "sampling": ("RolloutSampleRatio", "sample_ratio_sampler"),
            "signature": ("compile_binder",),
            "snapshot": ("Snapshot", "take_snapshot", "to_json"),
            "span_bounds": ("SpanBounds", "environment_limits"),
            "tracer": ("OpenSpans",),
            "trajectory_state": ("TrajectoryState",),
            "provider": ("is_weaves",),
        },
    )
