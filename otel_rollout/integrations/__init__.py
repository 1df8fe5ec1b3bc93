"""Frameworks that otel-rollout hooks into; nothing here is imported unless the framework is."""
