"""What keeps tracing from reaching the traced program: internal errors, signal handlers, the collector, the GIL."""
