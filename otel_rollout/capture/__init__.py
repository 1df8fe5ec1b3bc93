"""The caller's thread: ops, trajectories, annotations."""
