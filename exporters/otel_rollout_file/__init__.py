"""The `file` exporter: trajectories as OTLP JSON lines in a folder."""
