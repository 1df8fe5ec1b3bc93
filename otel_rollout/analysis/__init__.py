"""Pure functions of spans: what a trace says, without I/O."""
