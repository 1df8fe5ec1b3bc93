"""`otel-rollout doctor`: report the tracer's settings here, and try each backend."""
