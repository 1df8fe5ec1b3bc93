"""What tracing costs a rollout, as ratios to a plain OpenTelemetry span, measured side by side in one run."""
