"""Reading trace folders: what is found where, and in which order."""

from __future__ import annotations

import itertools
import os
import sys
import tracemalloc
from itertools import islice

import pytest

from otel_rollout import NoTracesError, read_trajectories
from otel_rollout.folder import stored_file
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.otlp import encode_spans

from .recordings import (
    data_file,
    index_file,
    make_span,
    make_trajectory,
    trace_id_of,
    write_folder,
    write_frames,
    write_lines,
)


def tags(trajectories):
    return [(each.step, each.sample_index, each.rollout_n) for each in trajectories]


def names(trajectory):
    return [span.name for span in trajectory.spans]


HARM = {
    "a line is missing": lambda lines: lines[:4] + lines[5:],
    "the last line is torn": lambda lines: [*lines[:-1], lines[-1][:40]],
    "a line is of no form": lambda lines: [*lines[:4], b"nonsense\n", *lines[5:]],
    "a line comes twice": lambda lines: [*lines[:4], *lines[3:]],
    "lines are swapped": lambda lines: [lines[1], lines[0], *lines[2:]],
    "a bit has flipped": lambda lines: [*lines[:4], lines[4].replace(b'"length":', b'"length":1'), *lines[5:]],
    "a reward has changed": lambda lines: [*lines[:4], lines[4].replace(b'"reward":', b'"reward":9'), *lines[5:]],
    "all but one are missing": lambda lines: lines[:1],
    "all are missing": lambda lines: [],
    "all are of another form": lambda lines: [b'["00", 0, 14475, {"rollout.step": 6}]\n'] * len(lines),
    "all are of another file": None,
}


class TestOneStep:
    """Of a bundle's hundred steps, one is asked for."""

    @pytest.mark.parametrize("harm", HARM.values(), ids=HARM)
    def test_with_a_harmed_index(self, folder, harm):
        """What fits is taken, once, the rest is found in the frames, and nothing is told."""
        trajectories = [
            make_trajectory(step, n, reward=n, payload=f'"{"x" * n * 99}"') for n in range(3) for step in (6, 7, 8)
        ]
        write_folder(folder, *trajectories)
        write_folder(folder, *(make_trajectory(102, n) for n in range(2)))
        index, problems = index_file(folder, 6), []
        lines = index.read_bytes().splitlines(keepends=True)
        index.write_bytes(index_file(folder, 102).read_bytes() if harm is None else b"".join(harm(lines)))
        for step in (6, 7, 8):
            found = list(read_trajectories(folder, step=step, on_problem=problems.append))
            assert [(each.step, each.sample_index, each.reward) for each in found] == [(step, n, n) for n in range(3)]
        assert problems == []


class TestOrder:
    """What comes when."""

    def test_steps_come_in_order(self, folder):
        """Steps are in the order of their numbers, validation after its step, what has no step last."""
        write_folder(
            folder,
            make_trajectory(None, "x"),
            make_trajectory(10),
            make_trajectory(9, validate=True),
            make_trajectory(9),
            make_trajectory(1_000_000),
        )
        assert [(each.step, each.validate) for each in read_trajectories(folder)] == [
            (9, False),
            (9, True),
            (10, False),
            (1_000_000, False),
            (None, False),
        ]

    def test_reading_is_lazy(self, folder):
        """Nothing of a later bundle is looked at before it is its turn: removing it meanwhile does no harm."""
        write_folder(folder, make_trajectory(1), make_trajectory(102))
        trajectories = read_trajectories(folder)
        assert next(trajectories).step == 1
        data_file(folder, 102).unlink()
        assert list(trajectories) == []

    def test_memory_does_not_grow_with_the_folder(self, folder):
        """Reading twenty trajectories takes no more memory than reading one, and listing them hardly any."""
        payload = '"' + "x" * 200_000 + '"'
        write_folder(folder, *(make_trajectory(step // 4 * 100, step, payload=payload) for step in range(20)))

        def peak(trajectories, look):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            for each in trajectories:
                assert look(each) == 3
            return tracemalloc.get_traced_memory()[1] - before

        tracemalloc.start()
        try:
            one = peak(islice(read_trajectories(folder), 1), lambda each: len(each.spans))
            everything = peak(read_trajectories(folder), lambda each: len(each.spans))
            indexes = peak(read_trajectories(folder), lambda each: each.span_count)
        finally:
            tracemalloc.stop()
        assert everything < 1.5 * one
        assert indexes < 200_000


class TestFilters:
    """Which trajectories are given."""

    @pytest.fixture
    def recorded(self, folder):
        """Six trajectories that differ."""
        write_folder(
            folder,
            make_trajectory(1, 0, 0, reward=0.0),
            make_trajectory(1, 0, 1, reward=1.0),
            make_trajectory(1, "uid", 0, reward=None, status="error"),
            make_trajectory(102, 7, 0, reward=0.5, experiment="other"),
            make_trajectory(102, 7, 0, reward=-1.0, validate=True),
            make_trajectory(None, 8, 0, reward=0.25),
        )
        return folder

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({}, 6),
            ({"step": 1}, 3),
            ({"step": {102, 3}}, 2),
            ({"step": range(1, 2)}, 3),
            ({"step": [1, 102]}, 5),
            ({"step": 5}, 0),
            ({"sample_index": 7}, 2),
            ({"sample_index": "7"}, 2),
            ({"sample_index": "uid"}, 1),
            ({"sample_index": 0, "rollout_n": 1}, 1),
            ({"validate": True}, 1),
            ({"validate": False}, 5),
            ({"step": 102, "validate": False}, 1),
            ({"experiment": "other"}, 1),
            ({"status": "error"}, 1),
            ({"reward": (0.5, 1.0)}, 2),
            ({"reward": (None, 0.0)}, 2),
            ({"reward": (0.25, None)}, 3),
            ({"reward": (1.0, 1.0), "status": "error"}, 0),
        ],
    )
    def test_every_filter_must_agree(self, recorded, filters, expected):
        """A filter lets through what it names, several together what all of them name."""
        assert len(list(read_trajectories(recorded, **filters))) == expected

    def test_no_frame_is_read_to_filter(self, recorded, monkeypatch):
        """Filters are answered by the indexes alone."""

        def fail(*arguments):
            raise AssertionError(arguments)

        monkeypatch.setattr(stored_file, "read_frame", fail)
        monkeypatch.setattr(stored_file, "scan_frames", fail)
        found = list(
            read_trajectories(
                recorded, sample_index=0, rollout_n=1, status="completed", reward=(1, 1), experiment="exp"
            )
        )
        assert tags(found) == [(1, 0, 1)]

    def test_the_other_bundles_are_not_even_listed(self, recorded):
        """A folder of other steps that nobody may list is no obstacle."""
        listed = []
        genuine = os.scandir
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "scandir", lambda path: listed.append(str(path)) or genuine(path))
            assert len(list(read_trajectories(recorded, step=1))) == 3
        assert [path for path in listed if "steps=000000-000099" in path]
        assert not [path for path in listed if "steps=000100-000199" in path]


class TestPlaces:
    """Folders of other kinds."""

    def test_a_step_can_be_read_by_itself(self, folder):
        """A step's folder, or one above several trace folders, can be read like a trace folder."""
        write_folder(folder / "a", make_trajectory(1))
        write_folder(folder / "b", make_trajectory(2))
        assert tags(read_trajectories(folder / "b" / "steps=000000-000099")) == [(2, 0, 0)]
        assert tags(read_trajectories(folder)) == [(1, 0, 0), (2, 0, 0)]

    def test_names_that_begin_like_a_step(self, folder):
        """What is called almost like a step's folder is no step: its lines say themselves of which step they are."""
        write_lines(folder / "step=7-export.jsonl", make_trajectory(12, 0))
        write_folder(folder / "step=final", make_trajectory(12, 1), make_trajectory(2, 1))
        write_folder(folder, make_trajectory(12, 2), make_trajectory(-12, 2))
        assert sorted(tags(read_trajectories(folder, step=12))) == [(12, 0, 0), (12, 1, 0), (12, 2, 0)]
        assert tags(read_trajectories(folder, step=-12)) == [(-12, 2, 0)]

    def test_a_spool_is_read_like_a_folder(self, folder):
        """Files without an index, at any depth, several traces in a line: in the order of steps all the same."""
        first, second, third = make_trajectory(3), make_trajectory(2, 1), make_trajectory(2, 2)
        write_frames(folder / "mlflow" / "host-1-abcd-1.otlp.zst", first + second[:1], second[1:] + third)
        found = list(read_trajectories(folder))
        assert tags(found) == [(2, 1, 0), (2, 2, 0), (3, 0, 0)]
        assert [names(each) for each in found] == [["generate", "look_up", "rollout"]] * 3
        assert [each.span_count for each in found] == [3, 3, 3]
        assert tags(read_trajectories(folder, step=3)) == [(3, 0, 0)]

    def test_the_rows_of_a_spool_are_small(self, folder):
        """Each part of a trajectory takes little memory while the first ones are read."""
        for number in range(20):
            batch = [make_trajectory(1, sample, number)[0] for sample in range(100)]
            write_frames(folder / "mlflow" / f"host-1-abcd-{number + 1}.otlp.zst", batch)
        tracemalloc.start()
        try:
            first = next(read_trajectories(folder))
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert first.summary.turns == 1
        assert held < 2000 * 1700

    def test_plain_lines_of_any_exporter(self, folder):
        """Uncompressed OTLP JSON lines are read as well, and foreign spans in them."""
        foreign = make_span("GET /", 9, 5, parent=None)
        write_lines(folder / "export.jsonl", make_trajectory(1), [foreign], [*make_trajectory(2), foreign])
        found = list(read_trajectories(folder))
        assert tags(found) == [(1, 0, 0), (2, 0, 0), (None, None, None)]
        assert names(found[2]) == ["GET /"]
        assert found[2].has_root

    @pytest.mark.parametrize("is_there", [True, False])
    def test_a_folder_without_traces_is_an_error(self, folder, is_there):
        """A wrong path is noticed at once, not taken for an empty result."""
        if is_there:
            (folder / "sub").mkdir(parents=True)
            (folder / "sub" / "notes.txt").write_text("no traces")
        with pytest.raises(NoTracesError, match=str(folder)):
            read_trajectories(folder)


class TestRunning:
    """Folders that are written at this moment, or were when their process died."""

    def test_a_running_trajectory_has_no_root(self, folder):
        """What has not ended is found with the spans so far, in its step's place."""
        write_folder(folder, make_trajectory(1), make_trajectory(3))
        writer = FolderWriter(folder)
        writer.write(make_trajectory(2, 5)[:2])
        running = list(read_trajectories(folder))
        assert tags(running) == [(1, 0, 0), (2, 5, 0), (3, 0, 0)]
        assert [each.has_root for each in running] == [True, False, True]
        assert running[1].status is None
        assert running[1].reward is None
        assert running[1].experiment_name == "exp"
        assert names(running[1]) == ["generate", "look_up"]
        assert tags(read_trajectories(folder, step=2)) == [(2, 5, 0)]
        writer.write(make_trajectory(2, 5)[2:])
        [ended] = read_trajectories(folder, step=2)
        assert ended.has_root
        assert names(ended) == ["generate", "look_up", "rollout"]
        writer.close()

    def test_one_that_ends_between_listing_and_reading(self, folder):
        """Spans that move from the journal to their final place are found there, all of them."""
        writer = FolderWriter(folder)
        spans = make_trajectory(2)
        writer.write(spans[:1])
        [running] = read_trajectories(folder)
        assert not running.has_root
        writer.write(spans[1:])
        writer.write(make_trajectory(2, 9)[:2])
        assert names(running) == ["generate", "look_up", "rollout"]
        writer.close()

    def test_one_that_ends_while_the_journals_are_read(self, folder, monkeypatch):
        """A trajectory that ends while a folder is read is given once, whole."""
        writer = FolderWriter(folder)
        spans = make_trajectory(2)
        writer.write(spans[:2])
        monkeypatch.setattr(stored_file, "entries_of", _before(stored_file.entries_of, lambda: writer.write(spans[2:])))
        [found] = read_trajectories(folder)
        assert names(found) == ["generate", "look_up", "rollout"]
        assert found.has_root
        writer.close()

    def test_the_order_of_a_journals_lines_does_not_matter(self, folder):
        """Of a trajectory without a root the first span that knows its step gives the name and the tags."""
        spans = make_trajectory(2)
        foreign = make_span("GET /", 9, trace_id_of(2, 0, 0), seconds=(-1.0, 0.0))
        journal = folder / "open" / "host-7-abcd.otlp.zst"
        for lines in itertools.permutations([[spans[0]], [spans[1]], [foreign]]):
            write_frames(journal, *lines)
            [found] = read_trajectories(folder)
            assert (found.name, found.step, found.experiment_name, found.span_count) == ("generate", 2, "exp", 3)
            journal.unlink()

    def test_foreign_spans_in_a_journal_find_their_trajectory(self, folder):
        """Spans of other instrumentations carry no tags: they belong to the step of their trace all the same."""
        write_folder(folder, make_trajectory(1), make_trajectory(2))
        foreign = make_span("GET /", 9, trace_id_of(2, 0, 0))
        write_frames(folder / "open" / "host-7-abcd.otlp.zst", [foreign])
        for found in (list(read_trajectories(folder)), [None, *read_trajectories(folder, step=2)]):
            assert len(found) == 2
            assert names(found[1]) == ["generate", "look_up", "GET /", "rollout"]

    def test_spans_in_journal_and_frame_have_their_size_once(self, folder):
        """While a folder grows its sizes don't count what a journal still has."""
        spans = make_trajectory(1)
        write_folder(folder, spans)
        [alone] = read_trajectories(folder)
        size = alone.size_bytes
        write_frames(folder / "open" / "host-7-abcd.otlp.zst", spans[:1], spans[1:2])
        [found] = read_trajectories(folder)
        assert (found.size_bytes, found.summary.bytes, found.summary.spans) == (size, size, 3)

    def test_late_spans_beside_a_copy_count(self, folder):
        """A line of a journal that has a new span beside known ones is read, and its size counts."""
        spans = make_trajectory(1)
        write_folder(folder, spans)
        [alone] = read_trajectories(folder)
        size = alone.size_bytes
        late = make_span("late", 99, spans[0].context.trace_id)
        write_frames(folder / "open" / "host-7-abcd.otlp.zst", spans[:1], [spans[1], late])
        [found] = read_trajectories(folder)
        assert found.summary.spans == 4
        assert found.summary.bytes == found.size_bytes == size + len(encode_spans([spans[1], late]))


def _before(function, act):
    acts = [act]

    def call(*arguments):
        if acts:
            acts.pop()()
        return function(*arguments)

    return call


class TestCopies:
    """The same lines in more than one place."""

    @pytest.mark.parametrize("above", [".", ".."])
    def test_a_copied_file_adds_nothing(self, folder, problems, above):
        """A trajectory that stands in two files word for word is one, and counted once, in its bundle or outside."""
        write_folder(folder, make_trajectory(1), make_trajectory(1, 1))
        path = data_file(folder, 1)
        sizes = [each.size_bytes for each in read_trajectories(folder)]
        (path.parent / above / f"copy-{path.name}").write_bytes(path.read_bytes())
        found = list(read_trajectories(folder, on_problem=problems.append))
        assert [each.size_bytes for each in found] == sizes
        assert [(each.sample_index, each.span_count) for each in found] == [(0, 3), (1, 3)]
        assert not problems

    def test_links_lead_nowhere_twice(self, folder, problems):
        """A folder that a link leads to once more is not read again, a file's lines count once, and a circle ends."""
        write_folder(folder, make_trajectory(1), make_trajectory(2))
        (folder / "again").symlink_to(folder)
        (folder / "steps=000000-000099" / "up").symlink_to(folder.parent)
        (folder / "latest").symlink_to(folder / "steps=000000-000099")
        (folder / "link.otlp.zst").symlink_to(data_file(folder, 1))
        found = list(read_trajectories(folder, on_problem=problems.append))
        assert [(each.step, each.span_count) for each in found] == [(1, 3), (2, 3)]
        assert not problems

    def test_folders_in_folders(self, folder):
        """Their depth does not matter to Python's stack."""
        write_folder(folder, make_trajectory(1))
        (folder / "/".join(["in"] * 400)).mkdir(parents=True)
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(400)
        try:
            assert tags(read_trajectories(folder)) == [(1, 0, 0)]
        finally:
            sys.setrecursionlimit(limit)

    def test_a_linked_step_is_read(self, folder, tmp_path):
        """An archive elsewhere that is linked into the folder belongs to it."""
        write_folder(tmp_path / "elsewhere", make_trajectory(102))
        write_folder(folder, make_trajectory(1))
        (folder / "steps=000100-000199").symlink_to(tmp_path / "elsewhere" / "steps=000100-000199")
        assert tags(read_trajectories(folder)) == [(1, 0, 0), (102, 0, 0)]


class TestSeveralLines:
    """Trajectories that stand in more than one place."""

    def test_late_children_belong_to_their_trajectory(self, folder):
        """A span that ends after its root is part of the same trajectory, which keeps its root last."""
        spans = make_trajectory(1)
        late = make_span("late", 4, trace_id_of(1, 0, 0), attributes=spans[0].attributes, seconds=(0.5, 3.0))
        write_folder(folder, spans, [late])
        [found] = read_trajectories(folder)
        assert names(found) == ["generate", "look_up", "late", "rollout"]
        assert found.span_count == 4
        assert found.duration == 1.0
        assert found.reward == 1.0

    @pytest.mark.parametrize("filters", [{}, {"step": 7}, {"step": 7, "sample_index": 3}, {"step": range(10)}])
    def test_late_spans_without_a_step_belong_to_their_trajectory(self, folder, filters):
        """After a restart its writer doesn't know the step of a trace any more: readers join it by its id."""
        spans = make_trajectory(7, 3)
        write_folder(folder, spans, make_trajectory(8))
        write_folder(folder, *([make_span("POST", sample, trace_id_of(sample, 3, 0))] for sample in (7, 9)))
        assert len(list((folder / "no-step").glob("*.otlp.zst"))) == 1
        [found] = [each for each in read_trajectories(folder, **filters) if each.step == 7]
        assert found.span_count == len(found.spans) == len(spans) + 1
        assert len([each for each in read_trajectories(folder, **filters) if each.step is None]) == (not filters)

    def test_parts_from_several_processes_are_one_trajectory(self, folder):
        """A trajectory whose ops ran in two processes is given once."""
        spans = make_trajectory(1)
        write_folder(folder, spans[:1])
        write_folder(folder, spans[1:])
        [found] = read_trajectories(folder)
        assert sorted(names(found)) == ["generate", "look_up", "rollout"]
        assert found.status == "completed"
