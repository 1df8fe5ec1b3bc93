"""Facts of a trajectory, and how they follow from its spans; without I/O."""
