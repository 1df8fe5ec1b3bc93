"""The delivery thread's work on a span: JSON, messages, redaction, limits, conversion."""
