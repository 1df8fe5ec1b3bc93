"""`otel-rollout replay`: send recorded trajectories to a backend, as live tracing does."""

from otel_rollout.replay.report import ReplayReport, describe, show_progress
from otel_rollout.replay.session import replay

__all__ = ["ReplayReport", "describe", "replay", "show_progress"]
