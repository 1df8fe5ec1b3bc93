"""Reading trace folders that are damaged, or that a process has left behind."""

from __future__ import annotations

import json
import logging
import os
import tracemalloc

import pytest
import zstandard

from otel_rollout import read_trajectories
from otel_rollout.folder import read_index
from otel_rollout.folder.folder_writer import FolderWriter

from .recordings import data_file, frame, index_file, make_trajectory, write_folder, write_frames, write_lines
from .test_reader import tags


class TestDamage:
    """What is torn or missing costs itself alone, and is told."""

    def test_a_torn_last_frame(self, folder, problems):
        """A frame that was not written to its end is left out and told; all others are read."""
        write_folder(folder, *(make_trajectory(1, sample) for sample in range(3)))
        path = data_file(folder, 1)
        os.truncate(path, path.stat().st_size - 10)
        assert len(list(read_trajectories(folder, on_problem=problems.append))) == 2
        [problem] = problems
        assert (problem.what, problem.path) == ("torn frame", path)
        assert str(problem) == f"torn frame skipped in {path} at byte {problem.offset}"

    def test_a_frame_cut_off_altogether(self, folder, problems):
        """An index line whose frame never reached the disk is told as well."""
        write_folder(folder, make_trajectory(1), make_trajectory(1, 1))
        first = read_index(index_file(folder, 1))[0]
        os.truncate(data_file(folder, 1), first.length)
        assert tags(read_trajectories(folder, on_problem=problems.append)) == [(1, 0, 0)]
        assert [problem.what for problem in problems] == ["torn frame"]

    def test_a_file_whose_attributes_are_cached(self, folder, problems, monkeypatch):
        """On a network file system `stat` may give the size of some seconds ago: no frame is torn for that."""
        write_folder(folder, make_trajectory(1, 0))
        path = data_file(folder, 1)
        before = os.stat(path)  # noqa: PTH116 - patched below
        index_file(folder, 1).unlink()
        path.unlink()
        write_folder(folder, make_trajectory(1, 0), make_trajectory(1, 1))
        genuine, path = os.stat, data_file(folder, 1)
        monkeypatch.setattr(
            os, "stat", lambda file, **given: before if str(file) == str(path) else genuine(file, **given)
        )
        assert tags(read_trajectories(folder, on_problem=problems.append)) == [(1, 0, 0), (1, 1, 0)]
        assert not problems

    @pytest.mark.parametrize("name", ["spool-1.otlp.zst", "open/host-7-abcd.otlp.zst"])
    def test_a_torn_frame_between_others(self, folder, problems, name):
        """Damage in the middle of a file, or of a journal, costs its own frame and no other."""
        path = folder / name
        write_frames(path, make_trajectory(1, 0))
        with path.open("ab") as file:
            file.write(frame(make_trajectory(1, 1))[:-10])
        write_frames(path, make_trajectory(1, 2))
        assert tags(read_trajectories(folder, on_problem=problems.append)) == [(1, 0, 0), (1, 2, 0)]
        assert [problem.what for problem in problems] == ["damaged frame"]

    @pytest.mark.parametrize("name", ["spool-1.otlp.zst", "open/host-7-abcd.otlp.zst"])
    def test_a_frame_whose_bytes_have_changed(self, folder, problems, name):
        """A frame that is whole, but not as it was written, is left out and told."""
        path = folder / name
        write_frames(path, make_trajectory(1, 0), make_trajectory(1, 1))
        data = bytearray(path.read_bytes())
        data[30] ^= 0xFF
        path.write_bytes(data)
        assert tags(read_trajectories(folder, on_problem=problems.append)) == [(1, 1, 0)]
        assert {problem.what for problem in problems} == {"damaged frame"}

    def test_a_frame_that_is_being_written(self, folder, problems):
        """The half of a frame that a living process is about to finish is no damage."""
        writer = FolderWriter(folder)
        writer.write(make_trajectory(1))
        with data_file(folder, 1).open("ab") as file:
            file.write(frame(make_trajectory(1, 1))[:20])
        assert tags(read_trajectories(folder, on_problem=problems.append)) == [(1, 0, 0)]
        assert not problems
        writer.close()

    def test_a_line_longer_than_any(self, folder, problems, monkeypatch):
        """It is told and left out, and takes no more memory than the longest of ours."""
        monkeypatch.setattr("otel_rollout.folder.otlp_file.MAX_LINE_BYTES", 50_000)
        monkeypatch.setattr("otel_rollout.folder.otlp_file._READ_BYTES", 1000)
        path = folder / "export.jsonl"
        write_lines(path, make_trajectory(1), make_trajectory(2, payload='"' + "x" * 40_000 + '"'), make_trajectory(3))
        assert tags(read_trajectories(folder, on_problem=problems.append)) == [(1, 0, 0), (3, 0, 0)]
        assert [problem.what for problem in problems] == ["unreadable request"]

    @pytest.mark.slow
    @pytest.mark.parametrize("item", [b"[],", b"1000,"])
    def test_a_small_file_of_many_values(self, folder, problems, item):
        """A line that would take a gigabyte as objects is told and left out before it is parsed."""
        path = folder / "export.jsonl.zst"
        path.parent.mkdir(parents=True)
        line = b'{"resourceSpans":[' + item * 5_000_000 + b"1]}"
        path.write_bytes(zstandard.compress(line, 1))
        tracemalloc.start()
        try:
            assert list(read_trajectories(folder, on_problem=problems.append)) == []
            assert tracemalloc.get_traced_memory()[1] < 8 * len(line)
        finally:
            tracemalloc.stop()
        assert [problem.what for problem in problems] == ["unreadable request"]

    def test_many_commas_in_a_text_are_no_values(self, folder, problems):
        """A long payload of numbers or lists is a text, whatever is in it."""
        payload = json.dumps("[1,2]," * 3_000_000)
        write_frames(folder / "steps=000000-000099" / "host-9-0009.otlp.zst", make_trajectory(1, payload=payload)[2:])
        [found] = read_trajectories(folder, on_problem=problems.append)
        assert found.spans[0].attributes["input.value"] == payload
        assert not problems

    @pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
    def test_what_is_no_file(self, folder, problems, kind):
        """What is named like a file of ours and is none is told; nobody waits for it."""
        write_folder(folder, make_trajectory(1))
        path = folder / "steps=000000-000099" / "host-9-0009.jsonl"
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero" if kind == "device" else path)
        assert tags(read_trajectories(folder, on_problem=problems.append)) == [(1, 0, 0)]
        assert [(problem.what, problem.path) for problem in problems] == [("unreadable file", path)]

    def test_a_name_can_not_draw_on_the_terminal(self, folder, caplog):
        """What is logged of a file is text alone, whatever the file is called."""
        path = folder / "\x1b[31m.jsonl"
        write_lines(path, make_trajectory(1))
        path.write_bytes(path.read_bytes() + b"hello\n")
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            assert len(list(read_trajectories(folder))) == 1
        assert "unreadable request" in caplog.text
        assert "\x1b" not in caplog.text

    def test_lines_that_are_no_traces(self, folder, problems):
        """What is no OTLP JSON is left out and told; empty lines are nothing."""
        path = folder / "export.jsonl"
        write_lines(path, make_trajectory(1))
        with path.open("ab") as file:
            file.write(b'\nhello\n[1]\n{"resourceSpans": 3}\n{"resourceLogs": []}\n')
        write_lines(path, make_trajectory(2))
        assert tags(read_trajectories(folder, on_problem=problems.append)) == [(1, 0, 0), (2, 0, 0)]
        assert [problem.what for problem in problems] == ["unreadable request"] * 3
