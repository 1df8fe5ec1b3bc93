"""Writing a trace folder: what stands where, and what is bounded."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter

import pytest
from opentelemetry.trace import SpanContext, TraceFlags

from otel_rollout import read_trajectories
from otel_rollout.files import is_being_written
from otel_rollout.folder import (
    bundle_folder,
    folder_writer,
    index_path,
    read_frame,
    read_index,
    step_files,
)
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.writing import contents, count_spans, ids, make_span, place, random_id, spans_in, trajectory


class TestPlaces:
    """Which file a span is written to."""

    def test_a_trajectory_is_one_frame_in_the_folder_of_its_step(self, writer):
        """All spans of a trajectory, whatever batches they come in, stand in one line, the root last."""
        spans = trajectory(children=4, step=7)
        for batch in (spans[:2], spans[2:3], spans[3:]):
            writer.write(batch)
        writer.close()
        assert contents(writer.folder) == {place(writer, "steps=000000-000099"): [ids(spans)]}

    def test_the_index_says_what_is_in_the_file(self, writer):
        """An entry for each frame, in order: where it is, and what the trajectory was."""
        trajectories = [trajectory(children=number, rollout_n=number) for number in (1, 3)]
        writer.write([span for spans in trajectories for span in spans])
        path = writer.folder / place(writer, "steps=000000-000099")
        entries = read_index(path.with_name(f"{writer.worker}.index.jsonl"))
        assert [entry.rollout_n for entry in entries] == [1, 3]
        for entry, spans in zip(entries, trajectories, strict=True):
            line = read_frame(path, entry.offset, entry.length)
            assert [span.span_id.hex() for span in spans_in(line)] == ids(spans)
            assert (entry.bytes, entry.spans, entry.has_root) == (len(line), len(spans), True)
            assert entry.trace_id == f"{spans[0].context.trace_id:032x}"
            assert (entry.name, entry.project_name, entry.run_id) == ("trajectory", "project", "run")

    def test_until_its_root_ends_a_trajectory_is_in_the_journal(self, writer):
        """What is running is on disk too, in plain lines, and gone from there once it has ended."""
        first, second = trajectory(), trajectory()
        writer.write([first[0], second[0], first[1]])
        journal = f"open/{writer.worker}.otlp.zst"
        assert contents(writer.folder) == {journal: [ids(first[:2]), ids(second[:1])]}
        writer.write(first[2:])
        assert contents(writer.folder)[place(writer, "steps=000000-000099")] == [ids(first)]
        writer.write(second[1:])
        assert contents(writer.folder)[journal] == []
        writer.close()
        assert not (writer.folder / journal).exists()

    @pytest.mark.parametrize(
        ("tags", "folder"),
        [
            ({"step": 12, "validate": True}, "validate/steps=000000-000099"),
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
        assert contents(writer.folder)[place(writer, "steps=000000-000099")] == [ids([foreign, *spans])]

    def test_a_root_that_comes_before_its_children_is_put_behind_them(self, writer):
        """Within a batch the order is mended."""
        *children, root = trajectory()
        writer.write([root, *children])
        assert contents(writer.folder) == {place(writer, "steps=000000-000099"): [ids([*children, root])]}

    def test_a_span_that_comes_after_its_root_is_a_line_of_its_own(self, writer):
        """It is not lost, does not wait for another root, and its entry says that it has none."""
        *children, root = trajectory()
        writer.write([*children[1:], root])
        writer.write(children[:1])
        path = place(writer, "steps=000000-000099")
        assert contents(writer.folder) == {path: [ids([*children[1:], root]), ids(children[:1])]}
        entries = read_index(writer.folder / path.replace(".otlp.zst", ".index.jsonl"))
        assert [entry.has_root for entry in entries] == [True, False]

    def test_the_part_of_a_trace_that_another_process_began_is_written_when_it_ends(self, writer):
        """A span with a remote parent ends what this process knows of the trace; it is no root."""
        trace_id = random_id(16)
        remote = SpanContext(trace_id, random_id(8), True, TraceFlags(1))
        served = make_span(trace_id, remote, attributes={"rollout.step": 3})
        inner = make_span(trace_id, served.context)
        writer.write([inner])
        writer.write([served])
        path = place(writer, "steps=000000-000099")
        assert contents(writer.folder)[path] == [ids([inner, served])]
        [entry] = read_index(writer.folder / path.replace(".otlp.zst", ".index.jsonl"))
        assert not entry.has_root

    def test_trajectories_without_a_root_are_written_at_the_end(self, writer):
        """What never got its root is kept, under its step, with its tags."""
        spans = trajectory(step=9, sample_index=5)[:-1]
        writer.write(spans)
        writer.close()
        path = place(writer, "steps=000000-000099")
        assert contents(writer.folder) == {path: [ids(spans)]}
        [entry] = read_index(writer.folder / path.replace(".otlp.zst", ".index.jsonl"))
        assert (entry.has_root, entry.sample_index, entry.name) == (False, 5, "op 0")


class TestForeignSpans:
    """Spans of other instrumentations, which don't have our tags."""

    def test_one_that_comes_late_goes_to_the_step_of_its_trajectory(self, writer):
        """The writer remembers where it wrote a trajectory."""
        spans = trajectory()
        late = make_span(spans[0].context.trace_id, spans[0].context)
        writer.write(spans)
        writer.write([late])
        assert contents(writer.folder) == {place(writer, "steps=000000-000099"): [ids(spans), ids([late])]}
        assert (writer.joined, writer.orphaned) == (1, 0)

    def test_one_whose_trajectory_is_unknown_is_counted(self, writer):
        """After a restart, say; `stats` has the number."""
        spans = trajectory()
        writer.write([make_span(spans[0].context.trace_id, spans[0].context)])
        writer.close()
        assert (writer.joined, writer.orphaned) == (0, 1)

    @pytest.mark.parametrize("comes_at_once", [True, False])
    def test_a_large_trajectory_that_begins_with_them(self, writer, monkeypatch, comes_at_once):
        """It waits for the first span with a step, and each of its lines goes there."""
        monkeypatch.setattr(folder_writer, "MAX_LINE_BYTES", 1000)
        spans = trajectory(children=1)
        trace_id, root = spans[0].context.trace_id, spans[-1].context
        foreign = [make_span(trace_id, root, attributes={"body": "x" * 900}) for _ in range(5)]
        batches = [[*foreign, *spans]] if comes_at_once else [[span] for span in [*foreign, *spans]]
        for batch in batches:
            writer.write(batch)
        found = contents(writer.folder)
        [lines] = [lines for path, lines in found.items() if not path.startswith("open/")]
        assert [span for line in lines for span in line] == ids([*foreign, *spans])
        assert len(found[place(writer, "steps=000000-000099")]) > (0 if comes_at_once else 3)

    def test_one_that_never_has_a_step_is_bounded(self, writer, monkeypatch):
        """Beyond a part of the bound on the journal, it is written without one."""
        monkeypatch.setattr(folder_writer, "MAX_LINE_BYTES", 1000)
        writer.policy = writer.policy._replace(max_open_bytes=8 * 5000)
        trace_id = random_id(16)
        parent = trajectory()[0].context
        for _ in range(20):
            writer.write([make_span(trace_id, parent, attributes={"body": "x" * 900})])
        assert sum(map(len, contents(writer.folder)[place(writer, "no-step")])) > 10


class TestBounds:
    """Memory, and the journal's size."""

    def test_memory_does_not_grow_with_what_is_open(self, writer):
        """20 MB that wait for their roots take a small part of that."""
        writer.write(trajectory(children=1))
        tracemalloc.start()
        try:
            for number in range(200):
                writer.write(trajectory(children=4, payload=25_000, sample_index=number)[:-1])
            gc.collect()
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (writer.folder / "open" / f"{writer.worker}.otlp.zst").stat().st_size > 20_000_000
        assert held < 3_000_000

    def test_a_trajectory_that_grows_long_is_written_in_several_lines(self, writer, monkeypatch):
        """No line grows without bound: readers put the parts together."""
        monkeypatch.setattr(folder_writer, "MAX_LINE_BYTES", 2000)
        spans = trajectory(children=6, payload=900)
        for span in spans:
            writer.write([span])
        lines = contents(writer.folder)[place(writer, "steps=000000-000099")]
        assert len(lines) > 1
        assert [span for line in lines for span in line] == ids(spans)

    @pytest.mark.parametrize("is_running", [True, False])
    def test_a_span_that_is_larger_than_readers_take_is_refused(self, writer, monkeypatch, is_running):
        """Nothing of such a batch is written, and the other spans are in a batch of their own."""
        monkeypatch.setattr(folder_writer, "MAX_SPAN_LINE_BYTES", 5000)
        monkeypatch.setattr(folder_writer, "MAX_LINE_BYTES", 1000)
        spans = trajectory(children=4, payload=2000)
        large = trajectory(children=1, payload=6000)[:1]
        with pytest.raises(ValueError, match="the limit is 5,000"):
            writer.write([*large, *(spans[:-1] if is_running else spans)])
        assert count_spans(writer.folder) == {}
        writer.write(spans)
        writer.close()
        assert count_spans(writer.folder) == dict.fromkeys(ids(spans), 1)

    def test_the_idlest_makes_room(self, writer):
        """Traces whose root never comes do not fill the disk's journal for ever."""
        writer.policy = writer.policy._replace(max_open_bytes=4000)
        trajectories = [trajectory(children=1, sample_index=number, payload=1000) for number in range(5)]
        for spans in trajectories:
            writer.write(spans[:1])
        written = contents(writer.folder)[place(writer, "steps=000000-000099")]
        assert written == [ids(spans[:1]) for spans in trajectories[: len(written)]]
        assert 0 < len(written) < 5
        for spans in trajectories:
            writer.write(spans[1:])
        writer.close()
        assert count_spans(writer.folder) == Counter(ids([span for spans in trajectories for span in spans]))

    def test_a_journal_that_is_mostly_dead_is_written_anew(self, writer, monkeypatch):
        """Its size follows what is running, also where something always is; and what is running stays whole."""
        monkeypatch.setattr("otel_rollout.folder.journal.MIN_DEAD_BYTES", 5000)
        journal = writer.folder / "open" / f"{writer.worker}.otlp.zst"
        slow, sizes = trajectory(children=40), []
        for span in slow[:-1]:
            spans = trajectory(children=2, payload=2000)
            writer.write([span, *spans[:-1]])
            writer.write(spans[-1:])
            sizes.append(journal.stat().st_size)
        # Less than half as much as was written: what is running makes up 40 KB of it at the end.
        assert max(sizes) < 100_000
        writer.write(slow[-1:])
        assert contents(writer.folder)[place(writer, "steps=000000-000099")][-1] == ids(slow)
        assert not list(journal.parent.glob(".*"))


class TestRotation:
    """Files grow to a size, and few are open at a time."""

    def test_a_full_file_is_followed_by_another(self, tmp_path):
        """Each with an index of its own."""
        writer = FolderWriter(tmp_path, file_max_bytes=1000)
        trajectories = [trajectory(payload=400) for _ in range(3)]
        for spans in trajectories:
            writer.write(spans)
        found = {
            place(writer, "steps=000000-000099", number + 1): [ids(spans)] for number, spans in enumerate(trajectories)
        }
        assert contents(tmp_path) == found
        for path in found:
            [entry] = read_index(tmp_path / path.replace(".otlp.zst", ".index.jsonl"))
            assert entry.offset == 0
        writer.close()

    def test_a_bundle_that_comes_again_goes_on_in_its_file(self, writer):
        """Many bundles at a time are many files, of which few are open."""
        steps = range(0, 100 * (step_files.MAX_FILES + 3), 100)
        rounds = [[trajectory(step=step) for step in steps] for _ in range(2)]
        for trajectories in rounds:
            for spans in trajectories:
                writer.write(spans)
        for number, step in enumerate(steps):
            path = place(writer, bundle_folder(step, validate=False))
            assert contents(writer.folder)[path] == [ids(trajectories[number]) for trajectories in rounds]
            entries = read_index(writer.folder / path.replace(".otlp.zst", ".index.jsonl"))
            assert [entry.has_root for entry in entries] == [True, True]
            assert entries[1].offset == entries[0].length
        assert sum(is_being_written(writer.folder / path) for path in contents(writer.folder)) == step_files.MAX_FILES


class TestClosedIndex:
    """The index of a file that its worker has closed."""

    @staticmethod
    def paths(writer):
        """The open and the closed index of a bundle."""
        data = writer.folder / place(writer, "steps=000000-000099")
        opened = index_path(data)
        return opened, opened.with_name(f"{opened.name}.zst")

    def test_its_lines_are_compressed(self, writer):
        """The open index goes, the entries stay, and they take a fraction of the space."""
        trajectories = [trajectory(step=number % 9) for number in range(50)]
        for spans in trajectories:
            writer.write(spans)
        opened, closed = self.paths(writer)
        entries, size = read_index(opened), opened.stat().st_size
        writer.close()
        assert read_index(opened) == entries
        assert len(entries) == 50
        assert not opened.exists()
        assert closed.stat().st_size * 4 < size

    def test_what_comes_later_is_appended(self, writer):
        """A file that is written to again gets lines of their own: what was closed is not written anew."""
        writer.write(trajectory(step=1))
        writer._files.close()
        opened, closed = self.paths(writer)
        before = closed.read_bytes()
        writer.write(trajectory(step=2))
        assert closed.read_bytes() == before
        assert [entry.step for entry in read_index(opened)] == [1, 2]
        writer.close()
        assert closed.read_bytes().startswith(before)
        assert [entry.step for entry in read_index(opened)] == [1, 2]

    def test_a_crash_while_it_is_closed(self, writer, monkeypatch):
        """Lines that are in both, and a block that is torn, count once."""
        for number in range(3):
            writer.write(trajectory(step=number))
        opened, closed = self.paths(writer)
        lines = opened.read_bytes()
        writer.close()
        block = closed.read_bytes()
        for left in (block, block[:-5], block[: len(block) // 2], b""):
            closed.write_bytes(left)
            opened.write_bytes(lines)
            assert [entry.step for entry in read_index(opened)] == [0, 1, 2]
            assert [each.step for each in read_trajectories(writer.folder)] == [0, 1, 2]

    def test_one_that_cannot_be_written(self, writer):
        """The open index stays."""
        writer.write(trajectory(step=1))
        opened, closed = self.paths(writer)
        closed.mkdir()
        writer.close()
        closed.rmdir()
        assert [entry.step for entry in read_index(opened)] == [1]

    def test_one_that_is_damaged(self, writer):
        """The frames are read."""
        writer.write(trajectory(step=1))
        writer.close()
        _, closed = self.paths(writer)
        data = bytearray(closed.read_bytes())
        data[len(data) // 2] ^= 0xFF
        closed.write_bytes(data)
        assert [each.step for each in read_trajectories(writer.folder)] == [1]

    def test_a_worker_that_moved_on(self, writer, monkeypatch):
        """A file that nothing was written to for a minute is closed when another one is written to."""
        writer.write(trajectory(step=1))
        opened, closed = self.paths(writer)
        writer.write(trajectory(step=100))
        assert opened.exists()
        now = step_files.monotonic() + step_files.IDLE_SECONDS + 1
        monkeypatch.setattr(step_files, "monotonic", lambda: now)
        writer.write(trajectory(step=101))
        assert not opened.exists()
        assert closed.exists()
