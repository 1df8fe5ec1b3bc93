"""Keeps tracing out of the traced program: whose exception it is, locks, threads, signal handlers, logging."""
