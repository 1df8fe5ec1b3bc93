"""OTLP as JSON and protobuf, written and read."""
