"""`otel-rollout replay`: send recorded trajectories to a backend, as live tracing does."""

from otel_rollout.replay.delivered_log import DeliveredLog
from otel_rollout.replay.report import LineProgress, Replay, ReplayReport, describe, show_progress
from otel_rollout.replay.sender import Sender
from otel_rollout.replay.session import replay
from otel_rollout.replay.spool_files import remove_delivered
from otel_rollout.replay.trajectories import Total, TrajectorySource

__all__ = [
    "DeliveredLog",
    "LineProgress",
    "Replay",
    "ReplayReport",
    "Sender",
    "Total",
    "TrajectorySource",
    "describe",
    "remove_delivered",
    "replay",
    "show_progress",
]
