"""The parts of an exporter: base class, outcome, retries, HTTP client, OTLP."""
