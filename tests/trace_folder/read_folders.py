"""A trace folder that a process has written and left, and what readers find in it."""

from __future__ import annotations

from otel_rollout.folder import bundle_folder

from .recordings import open_indexes, write_folder


def record(folder, *trajectories):
    """Write trajectories as the `file` exporter does, by one process that ends."""
    open_indexes(write_folder(folder, *trajectories))


def data_file(folder, step):
    [path] = folder.glob(f"{bundle_folder(step, validate=False)}/*.otlp.zst")
    return path


def index_file(folder, step):
    [path] = folder.glob(f"{bundle_folder(step, validate=False)}/*.index.jsonl")
    return path


def tags(trajectories):
    return [(each.step, each.sample_index, each.rollout_n) for each in trajectories]


def names(trajectory):
    return [span.name for span in trajectory.spans]
