"""The `file` exporter: trajectories as OTLP requests in a folder."""

from otel_rollout_file.exporter import FileSpanExporter

__all__ = ["FileSpanExporter"]
