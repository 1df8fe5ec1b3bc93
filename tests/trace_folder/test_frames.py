"""Files of zstd frames: appending, reading, scanning, damage, locks."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rollout.errors import UnreadableTraceError
from otel_rollout.files import exclusive_lock, is_being_written
from otel_rollout.folder import (
    AppendFile,
    FileGoneError,
    append_frame,
    frames,
    read_frame,
    scan_frames,
)
from otel_rollout.folder.frames import Frame

# Noise doesn't compress: frames with many blocks, and of every size.
LINES = [b"first", b"x" * 300_000, random.Random(1).randbytes(400_000).hex().encode(), b"", b"last"]


@pytest.fixture
def path(tmp_path):
    """A file of frames, one per line of LINES, that nobody writes any more."""
    path = tmp_path / "frames.otlp.zst"
    file = AppendFile(path)
    for line in LINES:
        append_frame(file, line)
    file.close()
    return path


class TestAppending:
    """append_frame."""

    def test_a_long_history_that_comes_again_takes_no_space_again(self, tmp_path):
        """Each turn of a model says all before it once more, also where that is a megabyte."""
        history = random.Random(2).randbytes(500_000).hex().encode()
        file = AppendFile(tmp_path / "frames.otlp.zst")
        once, twice = append_frame(file, history), append_frame(file, history + history)
        assert twice.length < 1.1 * once.length
        file.close()

    def test_a_line_that_readers_would_not_take_is_not_written(self, path, monkeypatch):
        """The bound is the same on both sides."""
        monkeypatch.setattr(frames, "MAX_LINE_BYTES", 1000)
        size = path.stat().st_size
        file = AppendFile(path)
        with pytest.raises(ValueError, match="a request of 1,000 bytes"):
            append_frame(file, b"x" * 1000)
        assert read_frame(path, *append_frame(file, b"x" * 999)[:2]) == b"x" * 999
        file.close()
        assert path.stat().st_size > size


class TestScanning:
    """scan_frames and read_frame on files that are not as they should be."""

    @settings(max_examples=50)
    @given(st.lists(st.binary(max_size=300), max_size=6))
    def test_frames_are_found_without_an_index(self, tmp_path_factory, lines):
        """Whatever was appended is found, in order."""
        file = AppendFile(tmp_path_factory.mktemp("scan") / "frames.otlp.zst")
        frames = [append_frame(file, line) for line in lines]
        file.close()
        assert [each._replace(request=None) for each in scan_frames(file.path)] == frames
        assert [read_frame(file.path, *frame[:2]) for frame in frames] == lines

    def test_a_frame_that_claims_to_be_huge_is_damaged(self, tmp_path):
        """No memory is taken for what a damaged header says."""
        path = tmp_path / "huge.zst"
        data = bytearray(zstandard.compress(b"x" * 70_000))
        header = b"\x28\xb5\x2f\xfd\xe0" + (2**60).to_bytes(8, "little")
        path.write_bytes(header + data[9:])
        with pytest.raises(UnreadableTraceError):
            read_frame(path, 0, path.stat().st_size)
        assert list(scan_frames(path)) == [Frame(0, path.stat().st_size, fault="a damaged frame")]

    def test_a_small_frame_of_a_long_line_is_damaged(self, tmp_path):
        """Nothing of it is decompressed: it says how long its line is, and nobody writes such a line."""
        path = tmp_path / "bomb.zst"
        path.write_bytes(zstandard.compress(bytes(frames.MAX_LINE_BYTES + 1), 1))
        assert path.stat().st_size < 10_000
        tracemalloc.start()
        try:
            with pytest.raises(UnreadableTraceError, match="claims a request of 268,435,457 bytes"):
                read_frame(path, 0, path.stat().st_size)
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()

    def test_another_frame_than_the_index_has(self, path):
        """It is told by its checksum."""
        frames = list(scan_frames(path))
        with pytest.raises(UnreadableTraceError, match="another one"):
            read_frame(path, *frames[4][:2], frames[3].checksum)

    def test_the_beginning_of_a_frame_at_the_end_is_cut_off(self, tmp_path):
        """However little of it is there; behind a byte that is none of it, or before another frame, it is damaged."""
        path = tmp_path / "torn.zst"
        frame = frames.frame_of(b"one")
        for size in range(1, len(frame)):
            path.write_bytes(frame[:size])
            assert [each.is_cut_off for each in scan_frames(path)] == [True], size
        for damaged in (b"x" + frame[:-1], frame[:-1] + frame):
            path.write_bytes(damaged)
            assert not any(each.is_cut_off for each in scan_frames(path))

    @settings(max_examples=100)
    @given(st.binary(max_size=200))
    def test_any_bytes_are_scanned_to_their_end(self, tmp_path_factory, data):
        """Scanning raises nothing and covers the file without gaps."""
        path = tmp_path_factory.mktemp("noise") / "noise.zst"
        path.write_bytes(data)
        position = 0
        for found in scan_frames(path):
            assert found.offset == position
            assert found.length > 0
            position += found.length
        assert position == len(data)


HOLDER = """
import sys, time
from otel_rollout.folder import AppendFile
file = AppendFile(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


class TestLocks:
    """Who may touch a file."""

    def test_a_file_is_held_until_its_writer_closes_it(self, path):
        """While a file is open for appending nobody takes it; afterwards anybody may."""
        file = AppendFile(path)
        assert is_being_written(path)
        with exclusive_lock(path) as taken:
            assert taken is None
        file.close()
        file.close()
        assert not is_being_written(path)
        with exclusive_lock(path) as taken:
            assert taken is not None

    def test_a_killed_writer_holds_nothing(self, path):
        """The lock ends with the process, however it ends."""
        with subprocess.Popen(
            [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as holder:
            assert holder.stdout.readline() == b"held\n"
            assert is_being_written(path)
            holder.kill()
            holder.wait(120)
        assert not is_being_written(path)

    def test_a_file_that_is_being_consumed_is_not_continued(self, path):
        """A writer that comes back while somebody consumes its file is told so."""
        with exclusive_lock(path), pytest.raises(FileGoneError):
            AppendFile(path)
