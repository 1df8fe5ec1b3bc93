"""The index beside a file of trajectories, and the names of a trace folder's files."""

from __future__ import annotations

import json
import os
import tracemalloc
import zlib
from pathlib import Path

import pytest
import zstandard

import otel_rollout
from otel_rollout.facts import COLUMNS
from otel_rollout.folder import (
    MAX_INDEX_LINE_BYTES,
    IndexEntry,
    layout,
    read_index,
)
from tests.trace_folder.recordings import make_trajectory, open_indexes, write_folder


class TestDamagedLine:
    """A line of an index that is not what was written."""

    @pytest.fixture
    def lines(self, tmp_path):
        """Three lines of an index."""
        made = (make_trajectory(step, "s", validate=True, experiment="\ud800") for step in range(3))
        [index] = open_indexes(write_folder(tmp_path / "traces", *made))
        return index.read_bytes().splitlines(keepends=True)

    def test_it_is_a_json_object_with_a_checksum_at_its_end(self, lines):
        """Any reader has the fields by name; the checksum is that of what stands before it."""
        entry = json.loads(lines[1])
        # A lone surrogate becomes a question mark, as in the spans.
        assert (entry["step"], entry["experiment_name"], entry["validate"]) == (1, "?", True)
        names = [name for name in IndexEntry._fields if name in entry]
        assert list(entry) == [*names, "facts", "crc32"]
        assert set(entry["facts"]) <= set(COLUMNS)
        start, _, checksum = lines[1].rpartition(b',"crc32":"')
        assert int(checksum[:8], 16) == zlib.crc32(start)

    def test_each_bit_counts(self, tmp_path, lines):
        """Whichever bit of a line is another one, the line is not read, and its neighbours are."""
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(b"".join(lines))
        entries = read_index(path)
        assert len(entries) == 3
        for place in range(len(lines[1])):
            # A line has 12,000 bits: one of each byte, and each of every 16th byte.
            for bit in range(8) if place % 16 == 0 else (place % 8,):
                damaged = bytearray(lines[1])
                damaged[place] ^= 1 << bit
                path.write_bytes(lines[0] + damaged + lines[2])
                expected = [entries[0], entries[2]]
                if place == len(lines[1]) - 1:
                    # The line end: what follows is part of the line then.
                    expected = [entries[0]]
                assert read_index(path) == expected, (place, bit)

    def test_a_line_that_is_longer_than_any_takes_no_memory(self, tmp_path, lines):
        """What stands before it is read, and the file is not read to its end."""
        path = tmp_path / "x.index.jsonl"
        path.write_bytes(lines[0])
        os.truncate(path, 2**36)
        tracemalloc.start()
        try:
            assert len(read_index(path)) == 1
            assert tracemalloc.get_traced_memory()[1] < 8 * MAX_INDEX_LINE_BYTES
        finally:
            tracemalloc.stop()


def test_a_frame_that_is_shorter_than_its_line_says(tmp_path):
    """A file that was compressed anew is read from its frames: they have the checksums that the lines have."""
    folder = write_folder(tmp_path / "traces", make_trajectory(payload=json.dumps([*range(1000)])))
    [path] = folder.rglob("*.otlp.zst")
    written = path.read_bytes()
    path.write_bytes(zstandard.ZstdCompressor(22, write_checksum=True).compress(zstandard.decompress(written)))
    assert path.stat().st_size < len(written)
    [trajectory] = otel_rollout.read_trajectories(folder)
    assert len(trajectory.spans) == 3


class TestLayout:
    """Names of files and folders."""

    @pytest.mark.parametrize(
        ("step", "validate", "folder"),
        [
            (7, False, "steps=000000-000099"),
            (7, True, "validate/steps=000000-000099"),
            (99, False, "steps=000000-000099"),
            (100, False, "steps=000100-000199"),
            (12345678, False, "steps=12345600-12345699"),
            (-1, False, "steps=-00100--00001"),
            (-(2**63), True, "validate/steps=-9223372036854775808--9223372036854775709"),
            (None, False, "no-step"),
            (None, True, "no-step"),
        ],
    )
    def test_each_step_is_in_a_bundle(self, step, validate, folder):
        """Validation apart; the folder's name says its first and its last step."""
        assert layout.bundle_folder(step, validate=validate) == folder
        first = layout.first_step_of(Path(folder).name)
        assert first is None if step is None else first <= step < first + 100

    def test_a_worker_is_a_process(self, monkeypatch):
        """Host and process id, and digits that make it unique where process ids come again."""
        monkeypatch.setattr("socket.gethostname", lambda: "../node 1/é")
        worker = layout.new_worker()
        assert "/" not in worker
        assert not worker.startswith(".")
        assert f"-{os.getpid()}-" in worker
        assert len({layout.new_worker() for _ in range(8)}) > 1
