"""The W&B Weave exporter: trajectories as Weave calls, over its HTTP API, without importing weave."""

from otel_rollout_weave.exporter import WeaveSpanExporter

__all__ = ["WeaveSpanExporter"]
