"""The W&B Weave exporter: trajectories as Weave calls, over its HTTP API, without importing weave."""

from otel_rollout_weave.exporter import WeaveSpanExporter
from otel_rollout_weave.nesting import nested_weave_ops

__all__ = ["WeaveSpanExporter", "nested_weave_ops"]
