"""A trace folder read as a run: steps, groups, trajectories, searches."""
