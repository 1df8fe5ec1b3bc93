"""Keeps tracing out of the traced program: internal errors, signal handlers, locks, the garbage collector, the GIL."""
