"""The `mlflow` exporter: trajectories as MLflow traces."""

from __future__ import annotations

from otel_rollout_mlflow.exporter import MlflowSpanExporter
from otel_rollout_mlflow.nesting import nested_mlflow_spans

__all__ = ["MlflowSpanExporter", "nested_mlflow_spans"]
