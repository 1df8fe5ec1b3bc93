"""The `otel-rollout` command."""
