"""A trace folder that a process has written and left, and what readers find in it."""

from __future__ import annotations

from otel_rollout.folder import bundle_folder
from otel_rollout.folder.folder_writer import FolderWriter

from .recordings import open_indexes


def record(folder, *trajectories):
    """Write trajectories as the `file` exporter does, by one process that ends."""
    writer = FolderWriter(folder)
    for spans in trajectories:
        writer.write(spans)
    writer.close()
    open_indexes(folder)


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
