"""The trackio exporter: one conversation per trajectory, in a local folder or on a trackio server."""

from otel_rollout_trackio.exporter import TrackioSpanExporter

__all__ = ["TrackioSpanExporter"]
