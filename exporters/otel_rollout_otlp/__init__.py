"""The `otlp` exporters, over HTTP and gRPC."""
