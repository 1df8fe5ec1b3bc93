"""A run read from its folders: the files that steps keep, what changes, what is damaged, what is asked for."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from otel_rollout import read_trajectories
from otel_rollout.catalog import Run, rollout_run, step_making
from otel_rollout.errors import NoTracesError
from otel_rollout.folder import STEP_SUMMARY, seal_of
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.folder.retention import enforce_bound
from tests.trace_folder.recordings import make_trajectory, trace_id_of, write_frames


def record(folder: Path, *trajectories) -> Path:
    """Write trajectories into a folder."""
    writer = FolderWriter(folder)
    for spans in trajectories:
        writer.write(spans)
    writer.close()
    return folder


def outline(steps) -> list[tuple]:
    """Return each step's number, kind and trajectories."""
    return [(step.step, step.validate, step.trajectories) for step in steps]


def sealed(line: dict) -> bytes:
    """Return a line of a step's file."""
    start = orjson.dumps({name: value for name, value in line.items() if name != "crc32"})[:-1]
    return start + seal_of(start)


@pytest.fixture
def folder(tmp_path):
    """Two steps with two prompts of two rollouts, and a validation."""
    trajectories = [
        make_trajectory(step, sample, rollout, reward=float(rollout))
        for step in (1, 2)
        for sample in (0, 1)
        for rollout in (0, 1)
    ]
    return record(tmp_path / "traces", *trajectories, make_trajectory(2, 0, validate=True))


@pytest.fixture
def makes(monkeypatch):
    """Counts the step folders that are read to make summaries."""
    made = []
    make = step_making.make_step
    monkeypatch.setattr(step_making, "make_step", lambda place: made.append(place.folder) or make(place))
    return made


class TestSteps:
    """`steps()`, and the file that each step's folder keeps."""

    def test_in_order(self, folder):
        """Training before validation, with the number of trajectories of each."""
        assert outline(Run([folder]).steps()) == [(1, False, 4), (2, False, 4), (2, True, 1)]

    def test_are_made_once(self, folder, makes):
        """A second reader takes them from the files; in one that has them nothing is read again."""
        run = Run([folder])
        steps = run.steps()
        assert len(makes) == 3
        assert run.steps() == steps
        assert Run([folder]).steps() == steps
        assert len(makes) == 3

    def test_are_made_anew_once_a_file_has_changed(self, folder, makes):
        """A step with more trajectories is read again, the others are not."""
        run = Run([folder])
        run.steps()
        version = run.version()
        record(folder, make_trajectory(1, 7))
        assert run.version() != version
        assert outline(run.steps())[0] == (1, False, 5)
        assert [Path(place).name for place in makes[3:]] == ["step=000001"]

    def test_while_they_are_written(self, folder):
        """A trajectory counts once it is written; no file is kept of a step that a process writes."""
        run = Run([folder])
        writer = FolderWriter(folder)
        for number in range(3):
            writer.write(make_trajectory(9, number))
            assert outline(run.steps())[-1] == (9, False, number + 1)
            assert not (folder / "step=000009" / STEP_SUMMARY).exists()
        writer.close()
        Run([folder]).steps()
        assert (folder / "step=000009" / STEP_SUMMARY).exists()

    def test_running_trajectories_count(self, folder):
        """One whose root has not ended is in its step, without a root; once it has ended it counts once."""
        writer = FolderWriter(folder)
        spans = make_trajectory(1, 7)
        writer.write(spans[:2])
        run = Run([folder])
        assert (run.steps()[0].trajectories, run.steps()[0].rootless) == (5, 1)
        assert run.group(1, False, 7)[0].statuses == (None,)
        writer.write(spans[2:])
        assert (run.steps()[0].trajectories, run.steps()[0].rootless) == (5, 0)
        writer.close()

    def test_without_an_index(self, folder):
        """Frames that no index has are read."""
        write_frames(folder / "step=000003" / "host-1-abcd.otlp.zst", make_trajectory(3))
        for index in folder.rglob("*.index.jsonl"):
            index.unlink()
        steps = outline(Run([folder]).steps())
        assert steps == [(1, False, 4), (2, False, 4), (2, True, 1), (3, False, 1)]

    def test_what_is_torn_is_reported_each_time(self, folder):
        """Also by a reader that takes the summary from the step's file."""
        [path] = folder.glob("step=000001/*.zst")
        os.truncate(path, path.stat().st_size - 10)
        for _ in range(2):
            problems = []
            run = Run([folder], problems.append)
            assert run.steps()[0].trajectories == 3
            run.groups(1)
            assert [(problem.what, problem.path) for problem in problems] == [("torn frame", path)]

    def test_a_damaged_file_is_made_anew(self, folder):
        """Cut, changed, empty, of another program or version: it is never trusted."""
        steps, groups = Run([folder]).steps(), Run([folder]).same_prompt(1)
        place = folder / "step=000001" / STEP_SUMMARY
        data = place.read_bytes()
        lines = data.splitlines(keepends=True)
        for damaged in (
            b"",
            data[:-20],
            data.replace(b'"trajectories":4', b'"trajectories":5'),
            b"".join(lines[:-1]),
            b"{}\n" * 5,
            b"\xff" * 100,
            lines[0],
            data.replace(b'"format":"', b'"format":"9'),
        ):
            place.write_bytes(damaged)
            assert Run([folder]).same_prompt(1) == groups
            assert Run([folder]).steps() == steps

    @pytest.mark.parametrize("value", [{"x": {}}, [[1]], True])
    def test_a_file_with_fields_of_another_type_is_made_anew(self, folder, value):
        """Checksums that hold do not make it ours: no reader has to expect another type."""
        steps, groups = Run([folder]).steps(), Run([folder]).same_prompt(1)
        place = folder / "step=000001" / STEP_SUMMARY
        lines = [orjson.loads(line) for line in place.read_bytes().splitlines()]
        for number, line in enumerate(lines):
            # A prompt's line is found by its number, and the header has no numbers of the step.
            for field in line.keys() - {"crc32", "sample_index", "groups", "steps", "files", "problems"}:
                if type(line[field]) is bool:
                    continue
                changed = [{**each} for each in lines]
                changed[number][field] = value
                place.write_bytes(b"".join(map(sealed, changed)))
                assert Run([folder]).same_prompt(1) == groups, field
                assert Run([folder]).steps() == steps, field

    def test_a_folder_that_cannot_be_written(self, folder, monkeypatch):
        """The summaries are the same, and nothing is written."""

        def refuse(*arguments):
            raise PermissionError

        expected = Run([shutil.copytree(folder, folder.with_name("copy"))]).steps()
        monkeypatch.setattr("otel_rollout.catalog.step_file.open_private", refuse)
        assert Run([folder]).steps() == expected
        assert list(folder.rglob(STEP_SUMMARY)) == []

    def test_files_are_private(self, folder):
        """As all files of a trace folder: 0600, or with the bits of a shared folder."""
        (folder / "step=000002").chmod(0o750)
        Run([folder]).steps()
        modes = [(folder / step / STEP_SUMMARY).stat().st_mode & 0o777 for step in ("step=000001", "step=000002")]
        assert modes == [0o600, 0o640]

    def test_nothing_is_written_through_a_symlink(self, folder, tmp_path):
        """Neither where the file is a link, nor below a linked folder."""
        precious = tmp_path / "precious"
        precious.write_text("mine")
        for name in (STEP_SUMMARY, f".{STEP_SUMMARY}.new"):
            (folder / "step=000001" / name).symlink_to(precious)
        elsewhere = (folder / "step=000002").rename(tmp_path / "elsewhere")
        (folder / "step=000002").symlink_to(elsewhere)
        assert outline(Run([folder]).steps()) == [(1, False, 4), (2, False, 4), (2, True, 1)]
        assert precious.read_text() == "mine"
        assert not (elsewhere / STEP_SUMMARY).exists()

    def test_other_readers_pass_over_the_file(self, folder):
        """It is no file of traces: readers report nothing, and the bound on the folder removes it with its step."""
        Run([folder]).steps()
        problems = []
        assert len(list(read_trajectories(folder, on_problem=problems.append))) == 9
        assert problems == []
        enforce_bound(folder, 0)
        assert [path.name for path in folder.rglob("*") if path.is_file()] == []
        assert not (folder / "step=000001").exists()

    def test_by_several_processes(self, folder, monkeypatch):
        """Many steps are made by child processes: the same summaries, progress, and the problems that they met."""
        expected = Run([shutil.copytree(folder, folder.with_name("copy"))]).steps()
        monkeypatch.setattr(step_making, "MIN_BYTES", 0)
        monkeypatch.setattr(step_making.os, "cpu_count", lambda: 2)
        [path] = folder.glob("step=000001/*.zst")
        os.truncate(path, path.stat().st_size - 10)
        problems, progress = [], []
        steps = Run([folder], problems.append, lambda done, total: progress.append((done, total))).steps()
        assert outline(steps) == [(1, False, 3), (2, False, 4), (2, True, 1)]
        assert steps[1:] == expected[1:]
        assert [problem.path for problem in problems] == [path]
        assert progress == [(done, 3) for done in range(4)]
        assert len(list(folder.rglob(STEP_SUMMARY))) == 3

    def test_if_no_process_can_be_started(self, folder, monkeypatch):
        """This one makes them."""

        def refuse(*arguments):
            raise OSError

        monkeypatch.setattr(step_making, "MIN_BYTES", 0)
        monkeypatch.setattr(step_making, "WorkerProcess", refuse)
        assert outline(Run([folder]).steps()) == [(1, False, 4), (2, False, 4), (2, True, 1)]

    def test_a_folder_without_traces(self, tmp_path):
        """It is named."""
        with pytest.raises(NoTracesError, match="nowhere"):
            Run([tmp_path / "nowhere"]).steps()


class TestFolders:
    """Several folders."""

    def test_of_one_run(self, tmp_path):
        """The parts of a step that two nodes wrote are one step."""
        first = record(tmp_path / "a", make_trajectory(1, 0, 0), make_trajectory(1, 0, 1))
        second = record(tmp_path / "b", make_trajectory(1, 0, 2))
        for _ in range(2):
            run = Run([first, second])
            assert outline(run.steps()) == [(1, False, 3)]
            assert run.group(1, False, 0)[0].rollout_ns == (0, 1, 2)
            assert [group.rollout_ns for group in run.same_prompt(0)] == [(0, 1, 2)]

    def test_of_two_experiments(self, tmp_path):
        """Each has its steps; they are told apart by the experiment."""
        folders = [
            record(tmp_path / name, make_trajectory(1, 0, number, experiment=name, reward=float(number)))
            for number, name in enumerate("ab")
        ]
        run = Run(folders)
        assert [(step.experiment_name, step.reward_mean) for step in run.steps()] == [("a", 0.0), ("b", 1.0)]
        assert [group.rewards for group in run.groups(1, experiment="b")] == [(1.0,)]
        assert [group.rewards for group in run.same_prompt(0, experiment="a")] == [(0.0,)]

    def test_one_inside_another(self, folder):
        """What is in both counts once."""
        assert outline(Run([folder, folder / "step=000001", folder]).steps())[0] == (1, False, 4)

    def test_one_that_has_nothing_yet(self, folder, tmp_path):
        """It is passed over."""
        assert len(Run([tmp_path / "later", folder]).steps()) == 3


class TestTrajectories:
    """What is asked for by step, prompt or id."""

    def test_a_step(self, folder):
        """Its trajectories in the order of prompts and rollouts, its groups in the order of prompts."""
        run = Run([folder])
        assert [(each.sample_index, each.rollout_n) for each in run.summaries(1)] == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert [group.rewards for group in run.groups(1)] == [(0.0, 1.0), (0.0, 1.0)]
        assert [each.validate for each in run.summaries(2, validate=True)] == [True]
        assert run.summaries(77) == []

    def test_a_group(self, folder):
        """By a number or its text."""
        group, rollouts = Run([folder]).group(1, False, "1")
        assert group.trace_ids == tuple(each.trace_id for each in rollouts)
        with pytest.raises(KeyError, match="99"):
            Run([folder]).group(1, False, 99)

    def test_one_by_its_id(self, folder):
        """In a run that has read nothing yet, with and without the steps' files; its spans are read."""
        trace_id = f"{trace_id_of(2, 1, 1):032x}"
        for _ in range(2):
            run = Run([folder])
            assert (run.summary(trace_id).step, run.summary(trace_id).sample_index) == (2, 1)
            assert len(run.trajectory(trace_id).spans) == 3
            run.steps()
        with pytest.raises(KeyError, match="f00"):
            Run([folder]).trajectory("f00")

    def test_a_prompt_at_all_steps(self, folder):
        """From the steps' files, of training or of validation; a text is no number's beginning."""
        run = Run([folder])
        run.steps()
        assert [group.step for group in run.same_prompt(1)] == [1, 2]
        assert [group.step for group in run.same_prompt("1")] == [1, 2]
        assert [group.step for group in run.same_prompt(0, validate=True)] == [2]
        assert run.same_prompt("1,") == []


class TestMemory:
    """What is kept."""

    def test_the_steps_that_were_used_last(self, folder, monkeypatch):
        """Beyond the bound the trajectories of other steps are read again."""
        monkeypatch.setattr(rollout_run, "MAX_TRAJECTORIES", 6)
        reads = []
        read_step = rollout_run.read_step
        monkeypatch.setattr(rollout_run, "read_step", lambda *given: reads.append(given) or read_step(*given))
        run = Run([folder])
        for step in (1, 1, 2, 2, 1):
            run.groups(step)
        assert len(reads) == 3
        run.groups(77)
        run.groups(1)
        assert len(reads) == 4


class TestThreads:
    """Many at once, as a server's."""

    def test_get_the_same_answers(self, folder):
        """Whatever is asked, while the folder is written."""
        run = Run([folder])
        trace_id = f"{trace_id_of(1, 1, 1):032x}"
        writer = FolderWriter(folder)

        def ask(number: int):
            if number % 10 == 0:
                writer.write(make_trajectory(5, number))
            assert outline(run.steps())[:3] == [(1, False, 4), (2, False, 4), (2, True, 1)]
            assert len(run.groups(1)) == 2
            assert run.summary(trace_id).step == 1
            return len(run.trajectory(trace_id).spans)

        with ThreadPoolExecutor(8) as pool:
            assert set(pool.map(ask, range(40))) == {3}
        writer.close()
        assert outline(run.steps())[-1] == (5, False, 4)
