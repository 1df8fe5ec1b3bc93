"""Values of any type, read without calling code of a user's class, as snapshots and plain attributes."""
