"""Receives OTLP over HTTP into a trace folder."""
