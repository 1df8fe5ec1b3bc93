"""The delivery thread's work on a span: limits, redaction, token text, conversion to the SDK's form."""
