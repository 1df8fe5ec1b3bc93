"""Spans as they are recorded and as they are exported, with tracer, provider, context and ids."""
