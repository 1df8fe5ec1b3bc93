"""The caller's thread: ops, trajectories, annotations, snapshots, spans and context."""
