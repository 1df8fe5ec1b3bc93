"""Trajectories as trees of text: what happened, how long it took, what came out."""
