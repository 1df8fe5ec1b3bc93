"""Files of zstd frames: appending, reading, scanning, damage, locks."""

from __future__ import annotations

import fcntl
import os
import random
import subprocess
import sys
import time
import tracemalloc

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_rollout.errors import MissingExtraError
from otel_rollout.files import exclusive_lock, file_lock, is_being_written
from otel_rollout.folder import (
    AppendFile,
    DamagedFrameError,
    FileGoneError,
    append_frame,
    frames,
    read_frame,
    scan_frames,
)
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.folder.frames import Frame

from .writing import trajectory

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

    def test_each_line_is_a_frame_of_its_own(self, tmp_path):
        """What append returns is where that line is read, alone."""
        file = AppendFile(tmp_path / "new" / "folder" / "frames.otlp.zst")
        frames = [append_frame(file, b"one"), append_frame(file, b"two"), append_frame(file, b"th", memoryview(b"ree"))]
        assert [read_frame(file.path, *frame[:2]) for frame in frames] == [b"one", b"two", b"three"]
        assert frames[0].offset == 0
        assert file.end == sum(frame.length for frame in frames) == file.path.stat().st_size
        file.close()
        file.close()

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

    def test_a_file_is_continued(self, path):
        """Opening a file anew appends behind what is there."""
        file = AppendFile(path)
        frame = append_frame(file, b"more")
        file.close()
        assert [each.request for each in scan_frames(path)] == [*LINES, b"more"]
        assert read_frame(path, *frame[:2]) == b"more"

    def test_any_zstd_tool_reads_it(self, path):
        """Decompressed as one stream the file is the requests, one behind the other."""
        with path.open("rb") as file:
            text = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
        assert text == b"".join(LINES)

    def test_a_removed_file_is_noticed(self, path):
        """Nothing is appended to a file that nobody would find."""
        file = AppendFile(path)
        path.unlink()
        with pytest.raises(FileGoneError):
            append_frame(file, b"lost")
        file.close()

    def test_without_zstandard_the_error_says_what_to_install(self, monkeypatch, tmp_path):
        """The missing extra is named, and no file is left behind."""
        monkeypatch.setitem(sys.modules, "zstandard", None)
        with pytest.raises(MissingExtraError, match=r"pip install .*\[file\]'"):
            FolderWriter(tmp_path).write(trajectory())
        assert not list(tmp_path.iterdir())


class TestFaults:
    """A disk that does not take everything."""

    def test_a_write_that_is_cut_short_leaves_nothing(self, path, monkeypatch):
        """Half a frame is cut off again, and the next append works."""
        file = AppendFile(path)
        size = path.stat().st_size
        real = os.pwrite

        def pwrite(descriptor, data, offset):
            if offset > size:
                raise OSError(28, "No space left on device")
            return real(descriptor, data[:10], offset)

        monkeypatch.setattr(os, "pwrite", pwrite)
        with pytest.raises(OSError, match="No space"):
            append_frame(file, LINES[2])
        assert path.stat().st_size == size
        monkeypatch.undo()
        append_frame(file, b"next")
        file.close()
        assert [each.request for each in scan_frames(path)] == [*LINES, b"next"]

    def test_where_cutting_off_fails_too_the_next_append_overwrites(self, path, monkeypatch):
        """A disk that fails altogether leaves a torn frame; it does not stay in the middle of the file."""
        file = AppendFile(path)
        size = path.stat().st_size
        real = os.pwrite

        def pwrite(descriptor, data, offset):
            if offset > size:
                raise OSError(5, "Input/output error")
            return real(descriptor, data[:10], offset)

        def ftruncate(descriptor, length):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "pwrite", pwrite)
        monkeypatch.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(OSError, match="Input/output"):
            append_frame(file, b"half of this")
        monkeypatch.undo()
        assert list(scan_frames(path, size)) == [Frame(size, 10)]
        append_frame(file, b"half of this, and more")
        file.close()
        assert [each.request for each in scan_frames(path)] == [*LINES, b"half of this, and more"]

    def test_a_write_that_is_interrupted_goes_on(self, path, monkeypatch):
        """The system may take less than it is given without an error."""
        file = AppendFile(path)
        real = os.pwrite

        def pwrite(descriptor, data, offset):
            return real(descriptor, data[:1000], offset)

        monkeypatch.setattr(os, "pwrite", pwrite)
        frames = [append_frame(file, LINES[2]), append_frame(file, b"more")]
        file.close()
        assert [read_frame(path, *frame[:2]) for frame in frames] == [LINES[2], b"more"]


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

    @pytest.mark.parametrize("cut", [1, 3, 100, 150_000])
    def test_a_torn_last_frame_harms_no_other(self, path, cut):
        """A file that was cut anywhere in its last frame gives all frames before it, and says that one is torn."""
        frames = list(scan_frames(path))
        os.truncate(path, frames[2].offset + min(cut, frames[2].length - 1))
        found = list(scan_frames(path))
        assert found[:2] == frames[:2]
        assert found[2:] == [Frame(frames[2].offset, cut)]
        with pytest.raises(DamagedFrameError, match="torn"):
            read_frame(path, *frames[2][:2])

    def test_damage_in_the_middle_harms_one_frame(self, path):
        """Frames behind bytes that are none are found again."""
        frames = list(scan_frames(path))
        with path.open("r+b") as file:
            file.seek(frames[1].offset)
            file.write(b"\0\0\0\0\0")
        found = list(scan_frames(path))
        assert found == [frames[0], Frame(*frames[1][:2]), *frames[2:]]

    def test_changed_bytes_are_noticed(self, path):
        """The checksum tells a line that is not the one that was written."""
        frames = list(scan_frames(path))
        with path.open("r+b") as file:
            file.seek(frames[2].offset + 200_000)
            file.write(b"\0\0\0\0")
        assert list(scan_frames(path)) == [*frames[:2], Frame(*frames[2][:2]), *frames[3:]]
        with pytest.raises(DamagedFrameError, match="damaged"):
            read_frame(path, *frames[2][:2])
        with pytest.raises(DamagedFrameError, match="another one"):
            read_frame(path, *frames[4][:2], frames[3].checksum)

    def test_a_frame_that_claims_to_be_huge_is_damaged(self, tmp_path):
        """No memory is taken for what a damaged header says."""
        path = tmp_path / "huge.zst"
        data = bytearray(zstandard.compress(b"x" * 70_000))
        header = b"\x28\xb5\x2f\xfd\xe0" + (2**60).to_bytes(8, "little")
        path.write_bytes(header + data[9:])
        with pytest.raises(DamagedFrameError):
            read_frame(path, 0, path.stat().st_size)
        assert list(scan_frames(path)) == [Frame(0, path.stat().st_size)]

    def test_a_small_frame_of_a_long_line_is_damaged(self, tmp_path):
        """Nothing of it is decompressed: it says how long its line is, and nobody writes such a line."""
        path = tmp_path / "bomb.zst"
        path.write_bytes(zstandard.compress(bytes(frames.MAX_LINE_BYTES + 1), 1))
        assert path.stat().st_size < 10_000
        tracemalloc.start()
        try:
            with pytest.raises(DamagedFrameError, match="claims a request of 268,435,457 bytes"):
                read_frame(path, 0, path.stat().st_size)
            assert tracemalloc.get_traced_memory()[1] < 2**20
        finally:
            tracemalloc.stop()

    def test_a_length_that_no_frame_has_takes_no_memory(self, path):
        """An index may say anything."""
        with pytest.raises(DamagedFrameError, match=r"claims [\d,]+ bytes"):
            read_frame(path, 0, 2**60)

    @pytest.mark.parametrize("kind", ["pipe", "folder", "device"])
    def test_what_is_no_file_is_an_os_error(self, tmp_path, kind):
        """Nobody waits for somebody to write into a pipe, and a device has no end."""
        path = tmp_path / "x.otlp.zst"
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero")
        with pytest.raises(OSError, match=r"not a regular file|directory"):
            list(scan_frames(path))
        with pytest.raises(OSError, match=r"not a regular file|directory"):
            read_frame(path, 0, 10)

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

    def test_a_file_that_is_gone_is_an_os_error(self, tmp_path):
        """It raises what opening a file raises."""
        with pytest.raises(FileNotFoundError):
            list(scan_frames(tmp_path / "none"))
        with pytest.raises(FileNotFoundError):
            read_frame(tmp_path / "none", 0, 1)


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

    def test_two_do_not_take_the_same_file(self, path):
        """Who takes a file has it alone."""
        with exclusive_lock(path) as first, exclusive_lock(path) as second:
            assert first is not None
            assert second is None

    def test_a_file_that_is_being_consumed_is_not_continued(self, path):
        """A writer that comes back while somebody consumes its file is told so."""
        with exclusive_lock(path), pytest.raises(FileGoneError):
            AppendFile(path)

    def test_a_file_that_is_gone(self, tmp_path):
        """Nobody writes it, and it can't be taken."""
        assert not is_being_written(tmp_path / "none")
        with pytest.raises(FileNotFoundError), exclusive_lock(tmp_path / "none"):
            pass

    def test_without_locks_a_recent_file_counts_as_written(self, path, monkeypatch):
        """Where the file system has no locks, only what was left alone for an hour is taken."""

        def flock(descriptor, operation):
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(fcntl, "flock", flock)
        file = AppendFile(path)
        append_frame(file, b"more")
        file.close()
        assert is_being_written(path)
        long_ago = time.time() - file_lock.QUIET_SECONDS - 1
        os.utime(path, (long_ago, long_ago))
        assert not is_being_written(path)
