"""`otel-rollout replay`: send recorded trajectories to a backend, as live tracing does."""
