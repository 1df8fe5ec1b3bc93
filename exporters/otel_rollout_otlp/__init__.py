"""OTLP over HTTP and gRPC, with batches encoded in place and the backend's answer taken at its word."""
