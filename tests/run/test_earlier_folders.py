"""Folders whose indexes lack summaries: read once, with progress, and never again."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import orjson
import pytest

from otel_rollout.catalog import Run
from otel_rollout.facts.summary_columns import FIRST_COLUMN
from otel_rollout.folder import stored_file
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.folder.lines import seal_of
from tests.trace_folder.recordings import make_trajectory


def stripped(folder: Path) -> int:
    """Make a folder of 3 steps of 40 trajectories without the columns of summaries, and return the number of a step."""
    writer = FolderWriter(folder)
    for step in range(3):
        writer.write([span for each in range(40) for span in make_trajectory(step, each // 8, each % 8)])
    writer.close()
    for index in folder.rglob("*.index.jsonl"):
        lines = []
        for line in index.read_bytes().splitlines():
            fields = orjson.loads(line)
            names = list(fields)
            start = orjson.dumps({name: fields[name] for name in names[: names.index(FIRST_COLUMN)]})[:-1]
            lines.append(start + seal_of(start))
        index.write_bytes(b"".join(lines))
    return 40


@pytest.mark.parametrize("by_step", [True, False])
def test_the_second_opening_reads_no_frame(tmp_path, by_step):
    """Summaries are made with progress, and those of trajectories, groups and steps are in files then."""
    folder = tmp_path / "traces"
    count = stripped(folder)
    progress = []

    def opened():
        run = Run([folder], on_progress=lambda *counts: progress.append(counts))
        steps = [] if by_step else run.steps()
        numbers = sorted({int(path.name.partition("=")[2]) for path in folder.glob("step=*")})
        return steps, [(run.summaries(step), run.groups(step)) for step in numbers], run.steps()

    first = opened()
    assert len(first[1][0][0]) == count
    assert progress
    assert all(0 <= done <= total for done, total in progress)
    if by_step:
        assert (count, count) in progress
    progress.clear()
    with mock.patch.object(stored_file, "read_frame", side_effect=AssertionError) as reading:
        assert opened() == first
    assert not reading.called
    assert progress == []
