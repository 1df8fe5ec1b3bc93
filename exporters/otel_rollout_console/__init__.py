"""Trajectories as trees of text: what happened, how long it took, what came out."""

from otel_rollout_console.exporter import ConsoleSpanExporter

__all__ = ["ConsoleSpanExporter"]
