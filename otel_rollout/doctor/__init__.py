"""What `otel-rollout doctor` does: say what the tracer reads here, and whether each backend takes a trace."""
