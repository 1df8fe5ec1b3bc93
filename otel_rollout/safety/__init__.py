"""Keeps tracing out of the traced program: internal errors, signal handlers, the garbage collector, the GIL."""
