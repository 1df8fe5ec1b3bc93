"""Reading trace folders: what is found where, in which order, and what damage costs."""

from __future__ import annotations

import errno
import itertools
import json
import logging
import os
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import pytest
import zstandard

from otel_rollout import NoTracesError, read
from otel_rollout.trace_folder import stored_file
from otel_rollout.trace_folder.folder_writer import FolderWriter
from otel_rollout.trace_folder.index import read_index
from otel_rollout.trace_folder.otlp_json import encode_line

from .recordings import frame, make_span, make_trajectory, trace_id_of, write_frames, write_lines


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "traces"


def record(folder, *trajectories):
    """Write trajectories as the `file` exporter does, by one process that ends."""
    writer = FolderWriter(folder)
    for spans in trajectories:
        writer.write(spans)
    writer.close()


def data_file(folder, step):
    [path] = folder.glob(f"step={step:06}/*.jsonl.zst")
    return path


def index_file(folder, step):
    [path] = folder.glob(f"step={step:06}/*.index.jsonl")
    return path


def tags(trajectories):
    return [(each.step, each.sample_index, each.rollout_n) for each in trajectories]


def names(trajectory):
    return [span.name for span in trajectory.spans]


@pytest.fixture
def problems():
    return []


class TestOrder:
    """What comes when."""

    def test_steps_come_in_order(self, folder):
        """Steps are in the order of their numbers, validation after its step, what has no step last."""
        record(
            folder,
            make_trajectory(None, "x"),
            make_trajectory(10),
            make_trajectory(9, validate=True),
            make_trajectory(9),
            make_trajectory(1_000_000),
        )
        assert [(each.step, each.validate) for each in read(folder)] == [
            (9, False),
            (9, True),
            (10, False),
            (1_000_000, False),
            (None, False),
        ]

    def test_the_files_of_several_workers_are_one_folder(self, folder):
        """What many processes wrote of a step comes together, and with rotated files of one process."""
        record(folder, make_trajectory(1, 0), make_trajectory(2, 0))
        record(folder, make_trajectory(1, 1))
        assert sorted(tags(read(folder))) == [(1, 0, 0), (1, 1, 0), (2, 0, 0)]

    def test_reading_is_lazy(self, folder):
        """Nothing of a later step is looked at before it is its turn: removing it meanwhile does no harm."""
        record(folder, make_trajectory(1), make_trajectory(2))
        trajectories = read(folder)
        assert next(trajectories).step == 1
        data_file(folder, 2).unlink()
        assert list(trajectories) == []

    def test_memory_does_not_grow_with_the_folder(self, folder):
        """Reading twenty trajectories takes no more memory than reading one, and listing them hardly any."""
        payload = '"' + "x" * 200_000 + '"'
        record(folder, *(make_trajectory(step // 4, step, payload=payload) for step in range(20)))

        def peak(trajectories, look):
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            for each in trajectories:
                assert look(each) == 3
            return tracemalloc.get_traced_memory()[1] - before

        tracemalloc.start()
        try:
            one = peak(islice(read(folder), 1), lambda each: len(each.spans))
            everything = peak(read(folder), lambda each: len(each.spans))
            indexes = peak(read(folder), lambda each: each.span_count)
        finally:
            tracemalloc.stop()
        assert everything < 1.5 * one
        assert indexes < 200_000


class TestFilters:
    """Which trajectories are given."""

    @pytest.fixture
    def recorded(self, folder):
        """Six trajectories that differ."""
        record(
            folder,
            make_trajectory(1, 0, 0, reward=0.0),
            make_trajectory(1, 0, 1, reward=1.0),
            make_trajectory(1, "uid", 0, reward=None, status="error"),
            make_trajectory(2, 7, 0, reward=0.5, experiment="other"),
            make_trajectory(2, 7, 0, reward=-1.0, validate=True),
            make_trajectory(None, 8, 0, reward=0.25),
        )
        return folder

    @pytest.mark.parametrize(
        ("filters", "expected"),
        [
            ({}, 6),
            ({"step": 1}, 3),
            ({"step": {2, 3}}, 2),
            ({"step": range(1, 2)}, 3),
            ({"step": [1, 2]}, 5),
            ({"step": 5}, 0),
            ({"sample_index": 7}, 2),
            ({"sample_index": "7"}, 2),
            ({"sample_index": "uid"}, 1),
            ({"sample_index": 0, "rollout_n": 1}, 1),
            ({"validate": True}, 1),
            ({"validate": False}, 5),
            ({"step": 2, "validate": False}, 1),
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
        assert len(list(read(recorded, **filters))) == expected

    def test_no_frame_is_read_to_filter(self, recorded, monkeypatch):
        """Filters are answered by the indexes alone."""

        def fail(*arguments):
            raise AssertionError(arguments)

        monkeypatch.setattr(stored_file, "read_frame", fail)
        monkeypatch.setattr(stored_file, "scan_frames", fail)
        found = list(read(recorded, sample_index=0, rollout_n=1, status="completed", reward=(1, 1), experiment="exp"))
        assert tags(found) == [(1, 0, 1)]

    def test_the_indexes_of_other_steps_are_not_read(self, recorded, monkeypatch):
        """A step is found by the names of the folders."""
        opened = []
        genuine = stored_file.read_rows
        monkeypatch.setattr(stored_file, "read_rows", lambda path: opened.append(str(path)) or genuine(path))
        assert len(list(read(recorded, step=1))) == 3
        assert len(opened) == 1
        assert "step=000001" in opened[0]

    def test_the_other_steps_folders_are_not_even_listed(self, recorded):
        """A folder of another step that nobody may list is no obstacle."""
        listed = []
        genuine = os.scandir
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "scandir", lambda path: listed.append(str(path)) or genuine(path))
            assert len(list(read(recorded, step=1))) == 3
        assert [path for path in listed if "step=000001" in path]
        assert not [path for path in listed if "step=000002" in path]


class TestPlaces:
    """Folders of other kinds."""

    def test_a_step_can_be_read_by_itself(self, folder):
        """A step's folder, or one above several trace folders, can be read like a trace folder."""
        record(folder / "a", make_trajectory(1))
        record(folder / "b", make_trajectory(2))
        assert tags(read(folder / "b" / "step=000002")) == [(2, 0, 0)]
        assert tags(read(folder)) == [(1, 0, 0), (2, 0, 0)]

    def test_names_that_begin_like_a_step(self, folder):
        """What is called almost like a step's folder is no step: its lines say themselves of which step they are."""
        write_lines(folder / "step=7-export.jsonl", make_trajectory(12, 0))
        record(folder / "step=final", make_trajectory(12, 1), make_trajectory(2, 1))
        record(folder, make_trajectory(12, 2), make_trajectory(-12, 2))
        assert sorted(tags(read(folder, step=12))) == [(12, 0, 0), (12, 1, 0), (12, 2, 0)]
        assert tags(read(folder, step=-12)) == [(-12, 2, 0)]

    def test_a_spool_is_read_like_a_folder(self, folder):
        """Files without an index, at any depth, several traces in a line: in the order of steps all the same."""
        first, second, third = make_trajectory(3), make_trajectory(2, 1), make_trajectory(2, 2)
        write_frames(folder / "mlflow" / "host-1-abcd-1.jsonl.zst", first + second[:1], second[1:] + third)
        found = list(read(folder))
        assert tags(found) == [(2, 1, 0), (2, 2, 0), (3, 0, 0)]
        assert [names(each) for each in found] == [["generate", "look_up", "rollout"]] * 3
        assert [each.span_count for each in found] == [3, 3, 3]
        assert tags(read(folder, step=3)) == [(3, 0, 0)]

    def test_plain_lines_of_any_exporter(self, folder):
        """Uncompressed OTLP JSON lines are read as well, and foreign spans in them."""
        foreign = make_span("GET /", 9, 5, parent=None)
        write_lines(folder / "export.jsonl", make_trajectory(1), [foreign], [*make_trajectory(2), foreign])
        found = list(read(folder))
        assert tags(found) == [(1, 0, 0), (2, 0, 0), (None, None, None)]
        assert names(found[2]) == ["GET /"]
        assert found[2].has_root

    def test_a_line_of_many_traces_is_decoded_once(self, folder, monkeypatch):
        """The traces of a batch are read with one look at its line."""
        write_lines(folder / "export.jsonl", [span for sample in range(50) for span in make_trajectory(1, sample)])
        found = list(read(folder))
        calls = []
        genuine = stored_file.decode_line
        monkeypatch.setattr(stored_file, "decode_line", lambda line: calls.append(1) or genuine(line))
        assert sum(len(each.spans) for each in found) == 150
        assert len(calls) == 1

    @pytest.mark.parametrize("is_there", [True, False])
    def test_a_folder_without_traces_is_an_error(self, folder, is_there):
        """A wrong path is noticed at once, not taken for an empty result."""
        if is_there:
            (folder / "sub").mkdir(parents=True)
            (folder / "sub" / "notes.txt").write_text("no traces")
        with pytest.raises(NoTracesError, match=str(folder)):
            read(folder)

    def test_nothing_of_a_step_is_no_error(self, folder):
        """A folder with other steps is a trace folder, with nothing to give."""
        record(folder, make_trajectory(1))
        assert list(read(folder, step=2)) == []


class TestRunning:
    """Folders that are written at this moment, or were when their process died."""

    def test_a_running_trajectory_has_no_root(self, folder):
        """What has not ended is found with the spans so far, in its step's place."""
        record(folder, make_trajectory(1), make_trajectory(3))
        writer = FolderWriter(folder)
        writer.write(make_trajectory(2, 5)[:2])
        running = list(read(folder))
        assert tags(running) == [(1, 0, 0), (2, 5, 0), (3, 0, 0)]
        assert [each.has_root for each in running] == [True, False, True]
        assert running[1].status is None
        assert running[1].reward is None
        assert running[1].experiment_name == "exp"
        assert names(running[1]) == ["generate", "look_up"]
        assert tags(read(folder, step=2)) == [(2, 5, 0)]
        writer.write(make_trajectory(2, 5)[2:])
        [ended] = read(folder, step=2)
        assert ended.has_root
        assert names(ended) == ["generate", "look_up", "rollout"]
        writer.close()

    def test_one_that_ends_between_listing_and_reading(self, folder):
        """Spans that move from the journal to their final place are found there, all of them."""
        writer = FolderWriter(folder)
        spans = make_trajectory(2)
        writer.write(spans[:1])
        [running] = read(folder)
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
        [found] = read(folder)
        assert names(found) == ["generate", "look_up", "rollout"]
        assert found.has_root
        writer.close()

    def test_a_crash_leaves_what_was_there(self, folder):
        """A process that is killed leaves its running trajectories readable."""
        program = (
            "import os, sys; sys.path.insert(0, sys.argv[2])\n"
            "from tests.trace_folder.recordings import make_trajectory\n"
            "from otel_rollout.trace_folder.folder_writer import FolderWriter\n"
            "from pathlib import Path\n"
            "writer = FolderWriter(Path(sys.argv[1]))\n"
            "writer.write(make_trajectory(1)); writer.write(make_trajectory(2)[:2]); os._exit(9)\n"
        )
        root = Path(__file__).parents[2]
        done = subprocess.run([sys.executable, "-c", program, folder, root], check=False, timeout=60)
        assert done.returncode == 9
        found = list(read(folder))
        assert [(each.step, each.has_root, each.span_count) for each in found] == [(1, True, 3), (2, False, 2)]

    def test_the_order_of_a_journals_lines_does_not_matter(self, folder):
        """Of a trajectory without a root the first span that knows its step gives the name and the tags."""
        spans = make_trajectory(2)
        foreign = make_span("GET /", 9, trace_id_of(2, 0, 0), seconds=(-1.0, 0.0))
        journal = folder / "open" / "host-7-abcd.jsonl"
        for lines in itertools.permutations([[spans[0]], [spans[1]], [foreign]]):
            write_lines(journal, *lines)
            [found] = read(folder)
            assert (found.name, found.step, found.experiment_name, found.span_count) == ("generate", 2, "exp", 3)
            journal.unlink()

    def test_foreign_spans_in_a_journal_find_their_trajectory(self, folder):
        """Spans of other instrumentations carry no tags: they belong to the step of their trace all the same."""
        record(folder, make_trajectory(1), make_trajectory(2))
        foreign = make_span("GET /", 9, trace_id_of(2, 0, 0))
        write_lines(folder / "open" / "host-7-abcd.jsonl", [foreign])
        for found in (list(read(folder)), [None, *read(folder, step=2)]):
            assert len(found) == 2
            assert names(found[1]) == ["generate", "look_up", "GET /", "rollout"]

    def test_spans_in_journal_and_frame_are_given_once(self, folder):
        """What a crash left in both is one trajectory without doubles."""
        spans = make_trajectory(1)
        record(folder, spans)
        write_lines(folder / "open" / "host-7-abcd.jsonl", spans[:1], spans[1:2])
        [found] = read(folder)
        assert names(found) == ["generate", "look_up", "rollout"]
        assert found.span_count == 3
        assert found.has_root


def _before(function, act):
    acts = [act]

    def call(*arguments):
        if acts:
            acts.pop()()
        return function(*arguments)

    return call


class TestJournalOfTheDead:
    """The journal of a process that is gone, which is parsed once."""

    @pytest.fixture
    def journal(self, folder, monkeypatch):
        """A journal of a process that was killed, large enough for an index."""
        monkeypatch.setattr(stored_file, "MIN_BYTES", 0)
        record(folder, make_trajectory(1))
        writer = FolderWriter(folder)
        for spans in (make_trajectory(2)[:1], make_trajectory(3)[:2], make_trajectory(2)[1:2]):
            writer.write(spans)
        [journal] = folder.glob("open/*.jsonl")
        writer._files.close()
        writer._journal.forget()
        return journal

    @pytest.fixture
    def parsed(self, monkeypatch):
        """The lines that are parsed to know what they are."""
        parsed = []
        genuine = stored_file.entries_of
        monkeypatch.setattr(stored_file, "entries_of", lambda *line: parsed.append(line) or genuine(*line))
        return parsed

    def facts(self, folder):
        """What a reader is given of each trajectory."""
        return [(each.step, each.span_count, each.size_bytes, each.start_time, names(each)) for each in read(folder)]

    def test_the_second_reader_parses_nothing(self, folder, journal, parsed):
        """The first one leaves an index beside it, which says the same."""
        first = self.facts(folder)
        assert len(parsed) == 3
        assert self.facts(folder) == first
        assert len(parsed) == 3
        assert len(read_index(journal.with_suffix(".index.jsonl"))) == 3

    def test_a_journal_that_is_written_is_parsed(self, folder, parsed, monkeypatch):
        """Of a process that lives nothing is remembered: more may come, and the file may be written anew."""
        monkeypatch.setattr(stored_file, "MIN_BYTES", 0)
        writer = FolderWriter(folder)
        writer.write(make_trajectory(2)[:1])
        assert len(list(read(folder))) == len(list(read(folder))) == 1
        assert len(parsed) == 2
        assert not list(folder.glob("open/*.index.jsonl"))
        writer.close()

    def test_a_folder_that_cannot_be_written_to(self, folder, journal, parsed, monkeypatch):
        """Each reader parses the journal, none fails, and nothing is left behind."""

        def refuse(*arguments):
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr("otel_rollout.trace_folder.index.open_private", refuse)
        assert self.facts(folder) == self.facts(folder)
        assert len(parsed) == 6
        assert [path.name for path in journal.parent.iterdir()] == [journal.name]

    def test_a_full_disk_leaves_no_half_of_an_index(self, folder, journal, monkeypatch):
        """What could not be written whole is removed."""

        def refuse(entry):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("otel_rollout.trace_folder.index.index_line", refuse)
        assert len(self.facts(folder)) == 3
        assert [path.name for path in journal.parent.iterdir()] == [journal.name]

    def test_a_small_journal_has_no_index(self, folder, journal, monkeypatch):
        """It is parsed in no time."""
        monkeypatch.undo()
        assert len(self.facts(folder)) == 3
        assert [path.name for path in journal.parent.iterdir()] == [journal.name]

    def test_its_torn_end_is_told_each_time(self, folder, journal, parsed, problems):
        """A process that was killed while it wrote: the index covers what is whole."""
        with journal.open("ab") as file:
            file.write(b'{"resourceSpans":[')
        for _ in range(2):
            assert len(list(read(folder, on_problem=problems.append))) == 3
        assert len(parsed) == 3
        assert [problem.what for problem in problems] == ["torn line"] * 2

    def test_an_index_that_is_damaged_or_of_another_journal(self, folder, journal, parsed):
        """It is passed over."""
        first = self.facts(folder)
        index = journal.with_suffix(".index.jsonl")
        data = index.read_bytes()
        for damaged in (data[:-5], data[5:], data.replace(b'"spans":1', b'"spans":7'), b"", data + data):
            index.write_bytes(damaged)
            assert self.facts(folder) == first

    def test_readers_at_once_do_not_harm_each_other(self, folder, journal):
        """Whoever comes first writes it; all say the same."""
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: self.facts(folder), range(16)))
        assert found == [found[0]] * 16
        assert sorted(path.suffixes for path in journal.parent.iterdir()) == [[".index", ".jsonl"], [".jsonl"]]


class TestCopies:
    """The same lines in more than one place."""

    def test_a_copied_file_adds_nothing(self, folder, problems):
        """A trajectory that stands in two files word for word is one, and counted once."""
        record(folder, make_trajectory(1), make_trajectory(1, 1))
        path = data_file(folder, 1)
        path.with_name(f"copy-{path.name}").write_bytes(path.read_bytes())
        found = list(read(folder, on_problem=problems.append))
        assert [(each.sample_index, each.span_count) for each in found] == [(0, 3), (1, 3)]
        assert not problems

    def test_links_lead_nowhere_twice(self, folder, problems):
        """A folder or a file that a link leads to once more is not read again, and a circle ends."""
        record(folder, make_trajectory(1), make_trajectory(2))
        (folder / "again").symlink_to(folder)
        (folder / "step=000001" / "up").symlink_to(folder.parent)
        (folder / "latest").symlink_to(folder / "step=000002")
        (folder / "link.jsonl.zst").symlink_to(data_file(folder, 1))
        found = list(read(folder, on_problem=problems.append))
        assert [(each.step, each.span_count) for each in found] == [(1, 3), (2, 3)]
        assert not problems

    def test_a_linked_step_is_read(self, folder, tmp_path):
        """An archive elsewhere that is linked into the folder belongs to it."""
        record(tmp_path / "elsewhere", make_trajectory(2))
        record(folder, make_trajectory(1))
        (folder / "step=000002").symlink_to(tmp_path / "elsewhere" / "step=000002")
        assert tags(read(folder)) == [(1, 0, 0), (2, 0, 0)]


class TestSeveralLines:
    """Trajectories that stand in more than one place."""

    def test_late_children_belong_to_their_trajectory(self, folder):
        """A span that ends after its root is part of the same trajectory, which keeps its root last."""
        spans = make_trajectory(1)
        late = make_span("late", 4, trace_id_of(1, 0, 0), attributes=spans[0].attributes, seconds=(0.5, 3.0))
        record(folder, spans, [late])
        [found] = read(folder)
        assert names(found) == ["generate", "look_up", "late", "rollout"]
        assert found.span_count == 4
        assert found.duration == 3.0
        assert found.reward == 1.0

    def test_parts_from_several_processes_are_one_trajectory(self, folder):
        """A trajectory whose ops ran in two processes is given once."""
        spans = make_trajectory(1)
        record(folder, spans[:1])
        record(folder, spans[1:])
        [found] = read(folder)
        assert sorted(names(found)) == ["generate", "look_up", "rollout"]
        assert found.status == "completed"


class TestDamage:
    """What is torn or missing costs itself alone, and is told."""

    def test_a_torn_last_frame(self, folder, problems):
        """A frame that was not written to its end is left out and told; all others are read."""
        record(folder, *(make_trajectory(1, sample) for sample in range(3)))
        path = data_file(folder, 1)
        os.truncate(path, path.stat().st_size - 10)
        assert len(list(read(folder, on_problem=problems.append))) == 2
        [problem] = problems
        assert (problem.what, problem.path) == ("torn frame", path)
        assert str(problem) == f"torn frame skipped in {path} at byte {problem.offset}"

    def test_a_problem_is_logged_where_nobody_listens(self, folder, caplog):
        """Without `on_problem`, a warning says what was left out."""
        record(folder, make_trajectory(1), make_trajectory(1, 1))
        path = data_file(folder, 1)
        os.truncate(path, path.stat().st_size - 10)
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            assert len(list(read(folder))) == 1
        assert "torn frame skipped" in caplog.text

    def test_a_frame_cut_off_altogether(self, folder, problems):
        """An index line whose frame never reached the disk is told as well."""
        record(folder, make_trajectory(1), make_trajectory(1, 1))
        first = read_index(index_file(folder, 1))[0]
        os.truncate(data_file(folder, 1), first.length)
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0)]
        assert [problem.what for problem in problems] == ["torn frame"]

    def test_a_file_without_an_index(self, folder, problems):
        """Without its index a file is read all the same."""
        record(folder, make_trajectory(1), make_trajectory(1, 1, reward=0.5))
        index_file(folder, 1).unlink()
        found = list(read(folder, on_problem=problems.append))
        assert tags(found) == [(1, 0, 0), (1, 1, 0)]
        assert found[1].reward == 0.5
        assert found[1].name == "rollout"
        assert not problems

    @pytest.mark.parametrize("torn", [b"", b'{"trace_id":"00'])
    def test_an_index_that_ends_early(self, folder, problems, torn):
        """Frames behind the index's end, or behind a line of it that is torn, are found."""
        record(folder, *(make_trajectory(1, sample) for sample in range(3)))
        path = index_file(folder, 1)
        path.write_bytes(path.read_bytes().splitlines(keepends=True)[0] + torn)
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0), (1, 1, 0), (1, 2, 0)]
        assert not problems

    def test_an_index_with_a_gap(self, folder, problems):
        """A frame whose index line is missing, between others, is found."""
        record(folder, *(make_trajectory(1, sample) for sample in range(4)))
        path = index_file(folder, 1)
        first, *_, last = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(first + last)
        assert tags(read(folder, on_problem=problems.append)) == [(1, sample, 0) for sample in range(4)]
        assert not problems

    def test_a_damaged_line_of_an_index(self, folder, problems):
        """A line that says something else than was written is passed over: the frame says what it was."""
        record(folder, *(make_trajectory(1, sample, reward=1.0) for sample in range(3)))
        path = index_file(folder, 1)
        data = path.read_bytes()
        place = data.index(b'"reward":1.0', len(data) // 2) + len(b'"reward":')
        path.write_bytes(data[:place] + b"9" + data[place + 1 :])
        assert [each.reward for each in read(folder, on_problem=problems.append)] == [1.0] * 3
        assert not problems

    @pytest.mark.parametrize("change", ["swapped", "doubled", "of another file"])
    def test_an_index_whose_lines_are_not_where_they_belong(self, folder, problems, change):
        """Each line is looked at beside the file: what fits is taken, once, the rest is found in the frames."""
        record(folder, *(make_trajectory(1, sample, payload=f'"{"x" * sample * 99}"') for sample in range(3)))
        record(folder, *(make_trajectory(2, sample) for sample in range(2)))
        path = index_file(folder, 1)
        first, second, third = path.read_bytes().splitlines(keepends=True)
        if change == "of another file":
            path.write_bytes(index_file(folder, 2).read_bytes())
        else:
            path.write_bytes(second + first + third if change == "swapped" else first + second + second + third)
        assert tags(read(folder, step=1, on_problem=problems.append)) == [(1, sample, 0) for sample in range(3)]
        assert not problems

    def test_an_index_of_the_first_form(self, folder, problems):
        """Folders whose index is a list of values are read from their frames."""
        record(folder, make_trajectory(1, reward=0.5))
        [entry] = read_index(index_file(folder, 1))
        text = '["rollout","project","run",{}]'
        values = [*entry[:11], entry.offset, entry.length, entry.bytes, entry.spans, entry.status_code, text]
        values[values.index(0.5)] = 0.75
        index_file(folder, 1).write_text(json.dumps(values) + "\n")
        assert [each.reward for each in read(folder, on_problem=problems.append)] == [0.5]
        assert not problems

    def test_an_index_of_another_form(self, folder, problems):
        """Lines that are JSON, but not what an index has today, are passed over: the frames say the same."""
        record(folder, make_trajectory(1), make_trajectory(1, 1, reward=0.5))
        path = index_file(folder, 1)
        path.write_text('["00", 0, 14475, {"rollout.step": 1}]\n' * 2)
        found = list(read(folder, on_problem=problems.append))
        assert [(each.sample_index, each.reward) for each in found] == [(0, 1.0), (1, 0.5)]
        assert not problems

    def test_a_torn_frame_between_others(self, folder, problems):
        """Damage in the middle of a file costs its own frame and no other."""
        path = folder / "spool-1.jsonl.zst"
        write_frames(path, make_trajectory(1, 0))
        with path.open("ab") as file:
            file.write(frame(make_trajectory(1, 1))[:-10])
        write_frames(path, make_trajectory(1, 2))
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0), (1, 2, 0)]
        assert [problem.what for problem in problems] == ["torn frame"]

    def test_a_frame_whose_bytes_have_changed(self, folder, problems):
        """A frame that is whole, but not as it was written, is left out and told."""
        path = folder / "spool-1.jsonl.zst"
        write_frames(path, make_trajectory(1, 0), make_trajectory(1, 1))
        data = bytearray(path.read_bytes())
        data[30] ^= 0xFF
        path.write_bytes(data)
        assert tags(read(folder, on_problem=problems.append)) == [(1, 1, 0)]
        assert {problem.what for problem in problems} == {"torn frame"}

    def test_a_frame_that_is_being_written(self, folder, problems):
        """The half of a frame that a living process is about to finish is no damage."""
        writer = FolderWriter(folder)
        writer.write(make_trajectory(1))
        with data_file(folder, 1).open("ab") as file:
            file.write(frame(make_trajectory(1, 1))[:20])
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0)]
        assert not problems
        writer.close()

    def test_a_torn_journal_line(self, folder, problems):
        """A line of a journal that a crash cut off is left out and told."""
        journal = folder / "open" / "host-7-abcd.jsonl"
        write_lines(journal, make_trajectory(1)[:2])
        with journal.open("ab") as file:
            file.write(encode_line(make_trajectory(2)[:2])[:50])
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0)]
        assert [problem.what for problem in problems] == ["torn line"]

    def test_a_journal_whose_bytes_have_changed(self, folder, problems):
        """A line of a journal has a checksum too: no other text is shown for what was there."""
        writer = FolderWriter(folder)
        writer.write(make_trajectory(1, payload='"hello"')[:1])
        writer.write(make_trajectory(2)[:1])
        [journal] = folder.glob("open/*.jsonl")
        journal.write_bytes(journal.read_bytes().replace(b"hello", b"hallo", 1))
        assert tags(read(folder, on_problem=problems.append)) == [(2, 0, 0)]
        assert [problem.what for problem in problems] == ["unreadable line"]
        writer.close()

    def test_a_journal_without_checksums(self, folder, problems):
        """One that another tool wrote, or an earlier version, is read all the same."""
        write_lines(folder / "open" / "host-7-abcd.jsonl", make_trajectory(1)[:2])
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0)]
        assert not problems

    def test_a_line_longer_than_any(self, folder, problems, monkeypatch):
        """It is told and left out, and takes no more memory than the longest of ours."""
        monkeypatch.setattr("otel_rollout.trace_folder.lines.MAX_LINE_BYTES", 50_000)
        monkeypatch.setattr("otel_rollout.trace_folder.lines._SKIPPED_BYTES", 1000)
        path = folder / "export.jsonl"
        write_lines(path, make_trajectory(1), make_trajectory(2, payload='"' + "x" * 40_000 + '"'), make_trajectory(3))
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0), (3, 0, 0)]
        assert [problem.what for problem in problems] == ["unreadable line"]

    @pytest.mark.parametrize("item", [b"[],", b"1000,"])
    def test_a_small_file_of_many_values(self, folder, problems, item):
        """A line that would take a gigabyte as objects is told and left out before it is parsed."""
        path = folder / "step=000001" / "host-9-0009.jsonl.zst"
        path.parent.mkdir(parents=True)
        line = b'{"resourceSpans":[' + item * 5_000_000 + b"1]}"
        path.write_bytes(zstandard.compress(line, 1))
        tracemalloc.start()
        try:
            assert list(read(folder, on_problem=problems.append)) == []
            assert tracemalloc.get_traced_memory()[1] < 8 * len(line)
        finally:
            tracemalloc.stop()
        assert [problem.what for problem in problems] == ["unreadable line"]

    def test_many_commas_in_a_text_are_no_values(self, folder, problems):
        """A long payload of numbers or lists is a text, whatever is in it."""
        payload = json.dumps("[1,2]," * 3_000_000)
        write_frames(folder / "step=000001" / "host-9-0009.jsonl.zst", make_trajectory(1, payload=payload)[2:])
        [found] = read(folder, on_problem=problems.append)
        assert found.spans[0].attributes["input.value"] == payload
        assert not problems

    @pytest.mark.parametrize("kind", ["pipe", "device", "loop"])
    def test_what_is_no_file(self, folder, problems, kind):
        """What is named like a file of ours and is none is told; nobody waits for it."""
        record(folder, make_trajectory(1))
        path = folder / "step=000001" / "host-9-0009.jsonl"
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero" if kind == "device" else path)
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0)]
        assert [(problem.what, problem.path) for problem in problems] == [("unreadable file", path)]

    def test_a_name_can_not_draw_on_the_terminal(self, folder, caplog):
        """What is logged of a file is text alone, whatever the file is called."""
        path = folder / "\x1b[31m.jsonl"
        write_lines(path, make_trajectory(1))
        path.write_bytes(path.read_bytes() + b"hello\n")
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            assert len(list(read(folder))) == 1
        assert "unreadable line" in caplog.text
        assert "\x1b" not in caplog.text

    def test_lines_that_are_no_traces(self, folder, problems):
        """What is no OTLP JSON is left out and told; empty lines are nothing."""
        path = folder / "export.jsonl"
        write_lines(path, make_trajectory(1))
        with path.open("ab") as file:
            file.write(b'\nhello\n[1]\n{"resourceSpans": 3}\n{"resourceLogs": []}\n')
        write_lines(path, make_trajectory(2))
        assert tags(read(folder, on_problem=problems.append)) == [(1, 0, 0), (2, 0, 0)]
        assert [problem.what for problem in problems] == ["unreadable line"] * 3
