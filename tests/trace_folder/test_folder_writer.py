"""Writing a trace folder: what stands where, what is bounded, and what faults leave behind."""

from __future__ import annotations

import errno
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import tracemalloc
import weakref
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.trace import SpanContext, TraceFlags
from writing import contents, count_spans, ids, lines_of, make_span, random_id, spans_of_line, trajectory

from otel_rollout.trace_folder import folder_writer, journal, step_files
from otel_rollout.trace_folder.file_lock import is_being_written
from otel_rollout.trace_folder.folder_writer import FolderWriter
from otel_rollout.trace_folder.frames import TornFrame, read_frame, scan_frames
from otel_rollout.trace_folder.index import read_index

PROGRAMS = Path(__file__).resolve().parent / "programs"


@pytest.fixture
def writer(tmp_path):
    """A writer into an empty folder."""
    writer = FolderWriter(tmp_path / "traces")
    yield writer
    writer.close()


def place(writer, folder, number=1):
    return f"{folder}/{writer.worker}{'' if number == 1 else f'-{number}'}.jsonl.zst"


def fault_of(writer, batch):
    """The number of the disk's error, where there was one."""
    try:
        writer.write(batch)
    except OSError as error:
        return error.errno
    return None


class TestPlaces:
    """Which file a span is written to."""

    def test_a_trajectory_is_one_frame_in_the_folder_of_its_step(self, writer):
        """All spans of a trajectory, whatever batches they come in, stand in one line, the root last."""
        spans = trajectory(children=4, step=7)
        for batch in (spans[:2], spans[2:3], spans[3:]):
            writer.write(batch)
        writer.close()
        assert contents(writer.folder) == {place(writer, "step=000007"): [ids(spans)]}

    def test_the_index_says_what_is_in_the_file(self, writer):
        """An entry for each frame, in order: where it is, and what the trajectory was."""
        trajectories = [trajectory(children=number, rollout_n=number) for number in (1, 3)]
        writer.write([span for spans in trajectories for span in spans])
        path = writer.folder / place(writer, "step=000007")
        entries = read_index(path.with_name(f"{writer.worker}.index.jsonl"))
        assert [entry.rollout_n for entry in entries] == [1, 3]
        for entry, spans in zip(entries, trajectories, strict=True):
            line = read_frame(path, entry.offset, entry.length)
            assert [span["spanId"] for span in spans_of_line(line)] == ids(spans)
            assert (entry.bytes, entry.spans, entry.has_root) == (len(line), len(spans), True)
            assert entry.trace_id == f"{spans[0].context.trace_id:032x}"
            assert (entry.name, entry.project_name, entry.run_id) == ("trajectory", "project", "run")

    def test_until_its_root_ends_a_trajectory_is_in_the_journal(self, writer):
        """What is running is on disk too, in plain lines, and gone from there once it has ended."""
        first, second = trajectory(), trajectory()
        writer.write([first[0], second[0], first[1]])
        journal = f"open/{writer.worker}.jsonl"
        assert contents(writer.folder) == {journal: [ids(first[:2]), ids(second[:1])]}
        writer.write(first[2:])
        assert contents(writer.folder)[place(writer, "step=000007")] == [ids(first)]
        writer.write(second[1:])
        assert contents(writer.folder)[journal] == []
        writer.close()
        assert not (writer.folder / journal).exists()

    @pytest.mark.parametrize(
        ("tags", "folder"),
        [
            ({"step": 12, "validate": True}, "validate/step=000012"),
            ({"step": None}, "no-step"),
            ({"step": None, "validate": True}, "no-step"),
            ({"step": "7"}, "no-step"),
        ],
    )
    def test_validation_and_what_has_no_step_stand_apart(self, writer, tags, folder):
        """A step is a whole number; a validation pass has a folder of its own."""
        spans = trajectory(**tags)
        writer.write(spans)
        assert contents(writer.folder) == {place(writer, folder): [ids(spans)]}

    def test_spans_of_other_instrumentations_go_with_their_trajectory(self, writer):
        """A span without tags is found where its trace is."""
        spans = trajectory()
        foreign = make_span(spans[0].context.trace_id, spans[0].context)
        writer.write([foreign])
        writer.write(spans)
        assert contents(writer.folder)[place(writer, "step=000007")] == [ids([foreign, *spans])]

    def test_a_root_that_comes_before_its_children_is_put_behind_them(self, writer):
        """Within a batch the order is mended."""
        *children, root = trajectory()
        writer.write([root, *children])
        assert contents(writer.folder) == {place(writer, "step=000007"): [ids([*children, root])]}

    def test_a_span_that_comes_after_its_root_is_a_line_of_its_own(self, writer):
        """It is not lost, does not wait for another root, and its entry says that it has none."""
        *children, root = trajectory()
        writer.write([*children[1:], root])
        writer.write(children[:1])
        path = place(writer, "step=000007")
        assert contents(writer.folder) == {path: [ids([*children[1:], root]), ids(children[:1])]}
        entries = read_index(writer.folder / path.replace(".jsonl.zst", ".index.jsonl"))
        assert [entry.has_root for entry in entries] == [True, False]

    def test_the_part_of_a_trace_that_another_process_began_is_written_when_it_ends(self, writer):
        """A span with a remote parent ends what this process knows of the trace; it is no root."""
        trace_id = random_id(16)
        remote = SpanContext(trace_id, random_id(8), True, TraceFlags(1))
        served = make_span(trace_id, remote, attributes={"rollout.step": 3})
        inner = make_span(trace_id, served.context)
        writer.write([inner])
        writer.write([served])
        path = place(writer, "step=000003")
        assert contents(writer.folder)[path] == [ids([inner, served])]
        [entry] = read_index(writer.folder / path.replace(".jsonl.zst", ".index.jsonl"))
        assert not entry.has_root

    def test_trajectories_without_a_root_are_written_at_the_end(self, writer):
        """What never got its root is kept, under its step, with its tags."""
        spans = trajectory(step=9, sample_index=5)[:-1]
        writer.write(spans)
        writer.close()
        path = place(writer, "step=000009")
        assert contents(writer.folder) == {path: [ids(spans)]}
        [entry] = read_index(writer.folder / path.replace(".jsonl.zst", ".index.jsonl"))
        assert (entry.has_root, entry.sample_index, entry.name) == (False, 5, "op 0")

    def test_a_span_without_a_context_is_passed_over(self, writer):
        """There is nothing to file it under."""
        span = make_span(1)
        span._context = None
        writer.write([span])
        assert contents(writer.folder) == {}


class TestBounds:
    """Memory, and the journal's size."""

    def test_no_span_is_held_in_memory(self, writer):
        """Of what is running, offsets are kept, not spans."""
        spans = trajectory(children=5)[:-1]
        references = [weakref.ref(span) for span in spans]
        writer.write(spans)
        del spans
        gc.collect()
        assert [reference() for reference in references] == [None] * 5

    def test_memory_does_not_grow_with_what_is_open(self, writer, monkeypatch):
        """20 MB that wait for their roots take what is kept of them, here one, and a small part of the others."""
        monkeypatch.setattr(journal, "MAX_KEPT_BYTES", 1_000_000)
        writer.write(trajectory(children=1))
        tracemalloc.start()
        try:
            for number in range(200):
                writer.write(trajectory(children=4, payload=25_000, sample_index=number)[:-1])
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (writer.folder / "open" / f"{writer.worker}.jsonl").stat().st_size > 20_000_000
        assert held < 3_000_000

    def test_a_trajectory_that_grows_long_is_written_in_several_lines(self, writer, monkeypatch):
        """No line grows without bound: readers put the parts together."""
        monkeypatch.setattr(folder_writer, "MAX_LINE_BYTES", 2000)
        spans = trajectory(children=6, payload=900)
        for span in spans:
            writer.write([span])
        lines = contents(writer.folder)[place(writer, "step=000007")]
        assert len(lines) > 1
        assert [span for line in lines for span in line] == ids(spans)

    @pytest.mark.parametrize("is_running", [True, False])
    def test_more_of_a_trace_than_readers_take_is_refused(self, writer, monkeypatch, is_running):
        """Nothing of such a batch is written, and what comes in smaller ones is."""
        monkeypatch.setattr(folder_writer, "MAX_BATCH_LINE_BYTES", 5000)
        spans = trajectory(children=4, payload=2000)
        with pytest.raises(ValueError, match="of one trace in a batch: the limit is 5,000"):
            writer.write(spans[:-1] if is_running else spans)
        assert count_spans(writer.folder) == {}
        for span in spans:
            writer.write([span])
        writer.close()
        assert count_spans(writer.folder) == dict.fromkeys(ids(spans), 1)

    def test_what_has_been_open_longest_makes_room(self, writer, monkeypatch):
        """Traces whose root never comes do not fill the disk's journal for ever."""
        monkeypatch.setattr(folder_writer, "MAX_OPEN_BYTES", 4000)
        trajectories = [trajectory(children=1, sample_index=number, payload=1000) for number in range(5)]
        for spans in trajectories:
            writer.write(spans[:1])
        written = contents(writer.folder)[place(writer, "step=000007")]
        assert written == [ids(spans[:1]) for spans in trajectories[: len(written)]]
        assert 0 < len(written) < 5
        for spans in trajectories:
            writer.write(spans[1:])
        writer.close()
        assert count_spans(writer.folder) == Counter(ids([span for spans in trajectories for span in spans]))

    def test_so_do_many_small_pieces(self, writer, monkeypatch):
        """Their places take memory too."""
        monkeypatch.setattr(folder_writer, "MAX_OPEN_PARTS", 3)
        trajectories = [trajectory(children=1) for _ in range(5)]
        for spans in trajectories:
            writer.write(spans[:1])
        assert contents(writer.folder)[place(writer, "step=000007")] == [ids(spans[:1]) for spans in trajectories[:2]]

    def test_a_journal_that_is_mostly_dead_is_written_anew(self, writer, monkeypatch):
        """Its size follows what is running, also where something always is; and what is running stays whole."""
        monkeypatch.setattr("otel_rollout.trace_folder.journal.MIN_DEAD_BYTES", 5000)
        journal = writer.folder / "open" / f"{writer.worker}.jsonl"
        slow, sizes = trajectory(children=40), []
        for span in slow[:-1]:
            spans = trajectory(children=2, payload=2000)
            writer.write([span, *spans[:-1]])
            writer.write(spans[-1:])
            sizes.append(journal.stat().st_size)
        # Less than half as much as was written: what is running makes up 40 KB of it at the end.
        assert max(sizes) < 100_000
        writer.write(slow[-1:])
        assert contents(writer.folder)[place(writer, "step=000007")][-1] == ids(slow)
        assert not list(journal.parent.glob(".*"))


class TestRotation:
    """Files grow to a size, and few are open at a time."""

    def test_a_full_file_is_followed_by_another(self, tmp_path):
        """Each with an index of its own."""
        writer = FolderWriter(tmp_path, file_max_bytes=1000)
        trajectories = [trajectory(payload=400) for _ in range(3)]
        for spans in trajectories:
            writer.write(spans)
        found = {place(writer, "step=000007", number + 1): [ids(spans)] for number, spans in enumerate(trajectories)}
        assert contents(tmp_path) == found
        for path in found:
            [entry] = read_index(tmp_path / path.replace(".jsonl.zst", ".index.jsonl"))
            assert entry.offset == 0
        writer.close()

    def test_a_step_that_comes_again_goes_on_in_its_file(self, writer):
        """Many steps at a time are many files, of which few are open."""
        steps = range(step_files.MAX_FILES + 3)
        rounds = [[trajectory(step=step) for step in steps] for _ in range(2)]
        for trajectories in rounds:
            for spans in trajectories:
                writer.write(spans)
        for step in steps:
            path = place(writer, f"step={step:06d}")
            assert contents(writer.folder)[path] == [ids(trajectories[step]) for trajectories in rounds]
            entries = read_index(writer.folder / path.replace(".jsonl.zst", ".index.jsonl"))
            assert [entry.has_root for entry in entries] == [True, True]
            assert entries[1].offset == entries[0].length
        assert sum(is_being_written(writer.folder / path) for path in contents(writer.folder)) == step_files.MAX_FILES


class TestRemoved:
    """Files that somebody removes while they are written."""

    def test_what_comes_after_goes_into_another_file(self, writer):
        """A removed file is noticed before the next append."""
        first, second = trajectory(), trajectory()
        writer.write(first)
        (writer.folder / place(writer, "step=000007")).unlink()
        writer.write(second)
        assert contents(writer.folder) == {place(writer, "step=000007", 2): [ids(second)]}

    def test_a_removed_index_is_not_continued(self, writer):
        """What has no index is found by scanning, which an index that begins later would prevent."""
        trajectories = [trajectory() for _ in range(3)]
        writer.write(trajectories[0])
        (writer.folder / "step=000007" / f"{writer.worker}.index.jsonl").unlink()
        writer.write(trajectories[1])
        writer.write(trajectories[2])
        first, second = (place(writer, "step=000007", number) for number in (1, 2))
        assert contents(writer.folder) == {
            first: [ids(spans) for spans in trajectories[:2]],
            second: [ids(trajectories[2])],
        }
        assert not (writer.folder / first.replace(".jsonl.zst", ".index.jsonl")).exists()
        assert len(read_index(writer.folder / second.replace(".jsonl.zst", ".index.jsonl"))) == 1

    def test_a_journal_that_somebody_has_emptied_is_still_in_memory(self, writer):
        """As far as its latest lines are kept, nothing is gone."""
        spans = trajectory(children=4)
        writer.write(spans[:2])
        os.truncate(writer.folder / "open" / f"{writer.worker}.jsonl", 0)
        writer.write(spans[2:])
        assert contents(writer.folder)[place(writer, "step=000007")] == [ids(spans)]

    def test_a_journal_that_somebody_has_emptied_holds_nothing_up(self, writer, caplog, monkeypatch):
        """What is gone is gone, and said; what comes after it is written."""
        monkeypatch.setattr(journal, "MAX_KEPT_BYTES", 0)
        spans = trajectory(children=4)
        writer.write(spans[:2])
        os.truncate(writer.folder / "open" / f"{writer.worker}.jsonl", 0)
        writer.write(spans[2:3])
        writer.write(spans[3:])
        path = place(writer, "step=000007")
        assert contents(writer.folder)[path] == [ids(spans[2:])]
        [entry] = read_index(writer.folder / path.replace(".jsonl.zst", ".index.jsonl"))
        assert (entry.spans, entry.has_root) == (3, True)
        assert "was changed by another process" in caplog.text

    def test_a_folder_that_goes_while_a_file_is_made_in_it_is_made_again(self, writer, monkeypatch):
        """Another process may remove a step's folder because it is empty, at any moment."""
        real, left = os.open, [2]

        def open_(path, *arguments):
            if left[0] and Path(path).parent.name == "step=000007":
                left[0] -= 1
                with suppress(FileNotFoundError):
                    Path(path).parent.rmdir()
            return real(path, *arguments)

        monkeypatch.setattr(os, "open", open_)
        spans = trajectory()
        writer.write(spans)
        monkeypatch.undo()
        assert left == [0]
        assert contents(writer.folder) == {place(writer, "step=000007"): [ids(spans)]}

    def test_a_removed_folder_takes_nothing_of_what_is_running(self, writer):
        """The journal's file is open still, so the running trajectory is whole when it ends."""
        spans = trajectory()
        writer.write(spans[:2])
        shutil.rmtree(writer.folder)
        writer.write(spans[2:3])
        assert contents(writer.folder) == {f"open/{writer.worker}.jsonl": [ids(spans[:2]), ids(spans[2:3])]}
        writer.write(spans[3:])
        assert contents(writer.folder)[place(writer, "step=000007")] == [ids(spans)]


class TestDiskErrors:
    """Writes that the disk does not take."""

    @settings(
        deadline=None,
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
        """With any write failing, wholly or in part, and batches repeated in halves, each span is there once."""
        folder = tmp_path_factory.mktemp("faults")
        writer = FolderWriter(folder)
        trajectories = [trajectory(step=number % 3) for number in range(6)]
        spans = [span for group in zip(*trajectories, strict=True) for span in group]
        calls, real = iter(range(10**6)), os.pwritev

        def pwritev(descriptor, pieces, offset):
            if next(calls) in failing:
                if partial:
                    data = b"".join(pieces)
                    os.pwrite(descriptor, data[: len(data) // 2], offset)
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, pieces, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", pwritev)
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
                    middle = len(batch) // 2
                    batches = [part for part in (batch[:middle], batch[middle:]) if part] + batches
            writer.close()
        assert count_spans(folder) == Counter(ids([span for group in trajectories for span in group]))
        for path in folder.rglob("*.zst"):
            assert not [frame for frame in scan_frames(path) if isinstance(frame, TornFrame)]
            for entry in read_index(path.with_name(path.name.replace(".jsonl.zst", ".index.jsonl"))):
                assert entry.spans == len(spans_of_line(read_frame(path, entry.offset, entry.length)))

    def test_a_full_disk_takes_everything_once_there_is_space(self, small_disk):
        """On a real file system without space a batch fails; repeated when space is free, nothing is there twice."""
        ballast = small_disk / "ballast"
        ballast.write_bytes(b"\0" * 700_000)
        writer = FolderWriter(small_disk / "traces")
        trajectories = [trajectory(children=6, payload=20_000, step=number) for number in range(4)]
        batches = [[span for spans in trajectories for span in spans[:3]]]
        batches += [[span for spans in trajectories for span in spans[3:-1]], [spans[-1] for spans in trajectories]]
        refused = [batch for batch in batches if fault_of(writer, batch) == errno.ENOSPC]
        assert refused
        ballast.unlink()
        for batch in refused:
            writer.write(batch)
        writer.close()
        assert count_spans(writer.folder) == Counter(ids([span for spans in trajectories for span in spans]))

    def test_an_index_that_cannot_be_written_holds_nothing_up(self, writer, monkeypatch):
        """The trajectory is stored, found by scanning; its entry follows with the next one's."""
        real = os.pwritev

        def pwritev(descriptor, data, offset):
            if Path(f"/proc/self/fd/{descriptor}").readlink().name.endswith(".index.jsonl"):
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, data, offset)

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", pwritev)
            first, second = trajectory(), trajectory()
            writer.write(first)
            with pytest.raises(OSError, match="No space"):
                writer.write(second)
        path = writer.folder / place(writer, "step=000007")
        index = path.with_name(f"{writer.worker}.index.jsonl")
        assert contents(writer.folder) == {place(writer, "step=000007"): [ids(first)]}
        assert read_index(index) == []
        writer.write(second)
        assert [entry.offset for entry in read_index(index)] == [frame.offset for frame in scan_frames(path)]
        assert len(read_index(index)) == 2

    def test_what_cannot_be_written_at_the_end_stays_in_the_journal(self, writer, monkeypatch):
        """Closing on a full disk loses nothing."""
        spans = trajectory()[:-1]
        writer.write(spans)

        def pwritev(descriptor, data, offset):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", pwritev)
            writer.close()
        assert contents(writer.folder)[f"open/{writer.worker}.jsonl"] == [ids(spans)]


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
        assert found.pop(place(writer, "step=000007")) == [ids(mine)]
        [(path, lines)] = found.items()
        assert lines == [ids(childs)]
        assert f"-{pid}-" in path

    def test_a_child_does_not_let_go_of_the_parents_files(self, writer):
        """The parent's lock outlives a child that closes its copies."""
        writer.write(trajectory())
        path = writer.folder / place(writer, "step=000007")
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

    def test_eight_processes_lose_nothing_and_write_nothing_twice(self, tmp_path):
        """Side by side on one folder, without a lock on each other: the account is exact."""
        program = [sys.executable, PROGRAMS / "write_many.py", tmp_path / "traces", "40"]
        processes = [subprocess.Popen(program, stdout=subprocess.PIPE) for _ in range(8)]
        written = Counter()
        for process in processes:
            out, _ = process.communicate(timeout=120)
            assert process.returncode == 0
            written.update(json.loads(out))
        assert len(written) == 8 * 40 * 6
        assert count_spans(tmp_path / "traces") == written
        assert len(list((tmp_path / "traces").glob("step=*/*.zst"))) == 8 * 4


class TestKilled:
    """A process that ends without a word."""

    @pytest.mark.parametrize("after", [1, 40, 400])
    def test_what_was_reported_as_written_is_there(self, tmp_path, after):
        """Killed in the middle of writing, nothing that write returned for is gone; at most the last frame is torn."""
        program = [sys.executable, PROGRAMS / "write_until_killed.py", tmp_path / "traces"]
        with subprocess.Popen(program, stdout=subprocess.PIPE) as process:
            reported = [process.stdout.readline() for _ in range(after)]
            process.send_signal(signal.SIGKILL)
            rest = process.stdout.read()
        lines = [*reported, *rest.splitlines(keepends=True)]
        expected = {span for line in lines if line.endswith(b"\n") for span in line.split()}
        found = set()
        for path in (tmp_path / "traces").rglob("*.jsonl.zst"):
            frames = list(scan_frames(path))
            assert not any(isinstance(frame, TornFrame) for frame in frames[:-1])
            for frame in frames:
                if not isinstance(frame, TornFrame):
                    found |= {span["spanId"].encode() for span in spans_of_line(read_frame(path, *frame))}
            entries = read_index(path.with_name(path.name.replace(".jsonl.zst", ".index.jsonl")))
            assert [(entry.offset, entry.length) for entry in entries] == frames[: len(entries)]
            assert len(entries) >= len(frames) - 1
            assert not is_being_written(path)
        for path in (tmp_path / "traces" / "open").glob("*.jsonl"):
            found |= {span["spanId"].encode() for line in lines_of(path) for span in spans_of_line(line)}
        assert expected
        assert expected <= found
