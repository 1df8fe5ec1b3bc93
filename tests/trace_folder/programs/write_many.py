"""Write so many trajectories of four steps into a folder, span by span and mixed; print the ids of all spans."""

from __future__ import annotations

import itertools
import json
import random
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent))

from writing import ids, trajectory

from otel_rollout.folder.folder_writer import FolderWriter

folder, count = sys.argv[1], int(sys.argv[2])
writer = FolderWriter(folder)
trajectories = [trajectory(children=5, step=number % 4) for number in range(count)]
# In the order of their ends, but several at a time.
spans = [
    span
    for group in itertools.zip_longest(*(iter(trajectories),) * 10, fillvalue=[])
    for row in itertools.zip_longest(*group)
    for span in row
    if span is not None
]
while spans:
    size = random.randrange(1, 20)
    writer.write(spans[:size])
    spans = spans[size:]
writer.close()
sys.stdout.write(json.dumps([span for each in trajectories for span in ids(each)]))
