"""Writing a trace folder beside removals, full disks, other writers and kills."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_rollout.files import is_being_written
from otel_rollout.folder import read_frame, read_index, scan_frames
from otel_rollout.folder.folder_writer import FolderWriter
from tests.fuzz.kills import main as run_kills
from tests.trace_folder.writing import contents, count_spans, ids, make_span, place, spans_in, trajectory


class TestRemoved:
    """Files that somebody removes while they are written."""

    def test_what_comes_after_goes_into_another_file(self, writer):
        """A removed file is noticed before the next append."""
        first, second = trajectory(), trajectory()
        writer.write(first)
        (writer.folder / place(writer, "steps=000000-000099")).unlink()
        writer.write(second)
        assert contents(writer.folder) == {place(writer, "steps=000000-000099", 2): [ids(second)]}

    def test_a_removed_index_is_not_continued(self, writer):
        """What has no index is found by scanning, which an index that begins later would prevent."""
        trajectories = [trajectory() for _ in range(3)]
        writer.write(trajectories[0])
        (writer.folder / "steps=000000-000099" / f"{writer.worker}.index.jsonl").unlink()
        writer.write(trajectories[1])
        writer.write(trajectories[2])
        first, second = (place(writer, "steps=000000-000099", number) for number in (1, 2))
        assert contents(writer.folder) == {
            first: [ids(spans) for spans in trajectories[:2]],
            second: [ids(trajectories[2])],
        }
        assert not (writer.folder / first.replace(".otlp.zst", ".index.jsonl")).exists()
        assert len(read_index(writer.folder / second.replace(".otlp.zst", ".index.jsonl"))) == 1

    def test_a_journal_that_somebody_has_emptied_holds_nothing_up(self, writer, caplog):
        """What is gone is gone, and said; what comes after it is written."""
        spans = trajectory(children=4)
        writer.write(spans[:2])
        os.truncate(writer.folder / "open" / f"{writer.worker}.otlp.zst", 0)
        writer.write(spans[2:3])
        writer.write(spans[3:])
        path = place(writer, "steps=000000-000099")
        assert contents(writer.folder)[path] == [ids(spans[2:])]
        [entry] = read_index(writer.folder / path.replace(".otlp.zst", ".index.jsonl"))
        assert (entry.spans, entry.has_root) == (3, True)
        assert "was changed by another process" in caplog.text

    def test_a_journal_that_is_cut_and_removed(self, writer):
        """What is left of it is written anew, without what is gone."""
        spans = trajectory(children=4)
        large = make_span(spans[0].context.trace_id, spans[-1].context, attributes={"body": [*range(999)]})
        writer.write(spans[:1])
        journal = writer.folder / "open" / f"{writer.worker}.otlp.zst"
        end = journal.stat().st_size
        writer.write(spans[1:2])
        os.truncate(journal, end + 5)
        journal.unlink()
        writer.write([large])
        writer.write(spans[2:])
        assert contents(writer.folder)[place(writer, "steps=000000-000099")] == [ids([spans[0], large, *spans[2:]])]

    def test_a_folder_that_goes_while_a_file_is_made_in_it_is_made_again(self, writer, monkeypatch):
        """Another process may remove a step's folder because it is empty, at any moment."""
        real, left = os.open, [2]

        def open_(path, *arguments):
            if left[0] and Path(path).parent.name == "steps=000000-000099":
                left[0] -= 1
                with suppress(FileNotFoundError):
                    Path(path).parent.rmdir()
            return real(path, *arguments)

        monkeypatch.setattr(os, "open", open_)
        spans = trajectory()
        writer.write(spans)
        monkeypatch.undo()
        assert left == [0]
        assert contents(writer.folder) == {place(writer, "steps=000000-000099"): [ids(spans)]}

    def test_a_removed_folder_takes_nothing_of_what_is_running(self, writer):
        """The journal's file is open still, so the running trajectory is whole when it ends."""
        spans = trajectory()
        writer.write(spans[:2])
        shutil.rmtree(writer.folder)
        writer.write(spans[2:3])
        assert contents(writer.folder) == {f"open/{writer.worker}.otlp.zst": [ids(spans[:2]), ids(spans[2:3])]}
        writer.write(spans[3:])
        assert contents(writer.folder)[place(writer, "steps=000000-000099")] == [ids(spans)]


class TestDiskErrors:
    """Writes that the disk does not take."""

    @settings(
        max_examples=60,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(
        failing=st.sets(st.integers(0, 30)),
        partial=st.booleans(),
        cuts=st.lists(st.integers(1, 6), min_size=12, max_size=12),
    )
    def test_whatever_fails_a_repeated_batch_is_stored_once(
        self, tmp_path_factory, monkeypatch, failing, partial, cuts
    ):
        """With any write short or failing, and batches repeated in halves, each span is there once, no half frame.

        A journal is written anew as often as may be.
        """
        monkeypatch.setattr("otel_rollout.folder.journal.MIN_DEAD_BYTES", 0)
        folder = tmp_path_factory.mktemp("faults")
        writer = FolderWriter(folder)
        trajectories = [trajectory(step=number % 3) for number in range(6)]
        spans = [span for group in zip(*trajectories, strict=True) for span in group]
        calls, real = iter(range(10**6)), os.pwrite

        def pwrite(descriptor, data, offset):
            # A third of the writes of a journal that is written anew fail as well.
            is_new = Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith(".new")
            number = next(calls)
            if number in failing or (is_new and number % 3 == 0):
                if partial:
                    real(descriptor, data[: len(data) // 2], offset)
                raise OSError(errno.ENOSPC, "No space left on device")
            # The system may take less than it is given without an error.
            return real(descriptor, data[: max(100, len(data) // 2)], offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            batches = []
            while spans:
                size = cuts[len(batches) % len(cuts)]
                batches.append(spans[:size])
                spans = spans[size:]
            while batches:
                batch = batches.pop(0)
                try:
                    writer.write(batch)
                except OSError:
                    assert all(frame.request for path in folder.rglob("*.otlp.zst") for frame in scan_frames(path))
                    middle = len(batch) // 2
                    batches = [part for part in (batch[:middle], batch[middle:]) if part] + batches
                assert not list(folder.glob("open/.*"))
            writer.close()
        assert count_spans(folder) == Counter(ids([span for group in trajectories for span in group]))
        assert not list(folder.glob("open/*"))
        for path in folder.rglob("*.otlp.zst"):
            assert all(frame.request is not None for frame in scan_frames(path))
            for entry in read_index(path.with_name(path.name.replace(".otlp.zst", ".index.jsonl"))):
                assert entry.spans == len(spans_in(read_frame(path, entry.offset, entry.length)))

    def test_an_index_that_cannot_be_written_holds_nothing_up(self, writer, monkeypatch):
        """The trajectory is stored, found by scanning; its entry follows with the next one's."""
        real = os.pwrite

        def pwrite(descriptor, data, offset):
            if Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith(".index.jsonl"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            first, second = trajectory(), trajectory()
            writer.write(first)
            with pytest.raises(OSError, match="No space"):
                writer.write(second)
        path = writer.folder / place(writer, "steps=000000-000099")
        index = path.with_name(f"{writer.worker}.index.jsonl")
        assert contents(writer.folder) == {place(writer, "steps=000000-000099"): [ids(first)]}
        assert read_index(index) == []
        writer.write(second)
        assert [entry.offset for entry in read_index(index)] == [frame.offset for frame in scan_frames(path)]
        assert len(read_index(index)) == 2

    def test_what_cannot_be_written_at_the_end_stays_in_the_journal(self, writer, monkeypatch):
        """Closing on a full disk loses nothing."""
        spans = trajectory()[:-1]
        writer.write(spans)

        def pwrite(descriptor, data, offset):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", pwrite)
            with pytest.raises(OSError, match="No space"):
                writer.close()
        assert contents(writer.folder)[f"open/{writer.worker}.otlp.zst"] == [ids(spans)]


class TestSeveralWriters:
    """Threads, forked children and other processes."""

    def test_threads_do_not_harm_each_other(self, writer):
        """One writer may be used by several threads."""
        batches = [[trajectory(step=number % 2) for _ in range(5)] for number in range(4)]

        def write(trajectories):
            for spans in trajectories:
                for span in spans:
                    writer.write([span])

        threads = [threading.Thread(target=write, args=(batch,)) for batch in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.close()
        expected = sorted(ids(spans) for batch in batches for spans in batch)
        assert sorted(line for lines in contents(writer.folder).values() for line in lines) == expected

    def test_a_forked_child_has_files_of_its_own(self, writer):
        """What is running in the parent is written by the parent, once, and the child's spans by the child."""
        mine, childs = trajectory(), trajectory()
        writer.write(mine[:2])
        pid = os.fork()
        if pid == 0:
            try:
                writer.write(childs)
                writer.close()
            finally:
                os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        writer.write(mine[2:])
        writer.close()
        found = contents(writer.folder)
        assert found.pop(place(writer, "steps=000000-000099")) == [ids(mine)]
        [(path, lines)] = found.items()
        assert lines == [ids(childs)]
        assert f"-{pid}-" in path

    def test_a_child_does_not_let_go_of_the_parents_files(self, writer):
        """The parent's lock outlives a child that closes its copies."""
        writer.write(trajectory())
        path = writer.folder / place(writer, "steps=000000-000099")
        pid = os.fork()
        if pid == 0:
            try:
                writer.after_fork()
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        assert is_being_written(path)
        writer.close()
        assert not is_being_written(path)


class TestKilled:
    """A process that ends without a word."""

    @pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.slow)])
    def test_what_was_reported_as_written_is_there(self, monkeypatch, capsys, kills):
        """Nothing that write returned for is gone, with its index or without; at most the last frame is torn."""
        monkeypatch.setattr(sys, "argv", ["kills", "--kills", str(kills)])
        assert run_kills() == 0
        assert " 0 missing;" in capsys.readouterr().out
