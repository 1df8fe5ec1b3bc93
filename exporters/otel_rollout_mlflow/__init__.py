"""MLflow as a destination of spans."""

from __future__ import annotations

from otel_rollout_mlflow.exporter import MlflowSpanExporter

__all__ = ["MlflowSpanExporter"]
