"""`otel-rollout doctor`: report the tracer's settings here, and try each backend."""

from otel_rollout.doctor.environment import read_environment, shown_value
from otel_rollout.doctor.examination import describe, examine
from otel_rollout.doctor.installation import read_installation
from otel_rollout.doctor.probe import make_trajectory, probe_backend

__all__ = [
    "describe",
    "examine",
    "make_trajectory",
    "probe_backend",
    "read_environment",
    "read_installation",
    "shown_value",
]
