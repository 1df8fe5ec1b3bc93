"""The `phoenix` exporter: spans by OTLP, rewards as Phoenix's annotations."""

from otel_rollout_phoenix.exporter import PhoenixSpanExporter

__all__ = ["PhoenixSpanExporter"]
