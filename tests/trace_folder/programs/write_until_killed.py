"""Write trajectories into a folder for ever; print the ids of each batch once it is written."""

from __future__ import annotations

import sys

from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.writing import ids, trajectory

writer = FolderWriter(sys.argv[1])
while True:
    spans = trajectory(children=4, payload=2000)
    for batch in (spans[:2], spans[2:4], spans[4:]):
        writer.write(batch)
        sys.stdout.write(" ".join(ids(batch)) + "\n")
        sys.stdout.flush()
