"""What `otel-rollout replay` does: hand recorded trajectories to a backend, as if they had been sent live."""
