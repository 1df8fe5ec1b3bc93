"""What a catalog has of a folder that is written, damaged, deleted and copied, beside a catalog made anew."""

from __future__ import annotations

import gc
import os
import random
import shutil
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from otel_rollout import RecordedTrajectory, semconv
from otel_rollout.catalog import Run, find_files
from otel_rollout.folder import StoredFile, read_index
from otel_rollout.folder.folder_writer import FolderWriter
from tests.catalog.answers import answers, assert_right
from tests.run.asked import groups_of, summaries_of
from tests.trace_folder.recordings import (
    make_span,
    make_trajectory,
    trace_id_of,
    write_folder,
    write_frames,
    write_lines,
)


@pytest.fixture
def folder(tmp_path):
    """Two steps of two bundles with two prompts of two rollouts, and a validation."""
    trajectories = [
        make_trajectory(step, sample, rollout, reward=float(rollout))
        for step in (1, 102)
        for sample in (0, 1)
        for rollout in (0, 1)
    ]
    return write_folder(tmp_path / "traces", *trajectories, make_trajectory(102, 0, validate=True))


@pytest.fixture
def reads(monkeypatch):
    """Lists the files that are read, with the offset from which on."""
    seen = []
    read = StoredFile.read

    def note(self, *known):
        seen.append((self.file.path.parent.name, known[0].end if known else 0))
        return read(self, *known)

    monkeypatch.setattr(StoredFile, "read", note)
    return seen


class TestWhatIsKept:
    """What stays in memory."""

    def test_spans_of_one_trajectory(self, folder):
        """Who reads the trajectories of a step has the spans of one of them in memory."""
        gc.collect()
        others = {id(known): known for known in gc.get_objects() if type(known) is RecordedTrajectory}
        for each in Run([folder]).read():
            assert each.spans
            found = (known for known in gc.get_objects() if type(known) is RecordedTrajectory)
            assert sum(known._spans is not None for known in found if id(known) not in others) == 1


class TestWhatIsRead:
    """Only what is new."""

    def test_nothing_a_second_time(self, folder, reads):
        """Neither by the same reader, nor by another one."""
        run = Run([folder])
        run.steps()
        assert len(reads) == 3
        run.steps()
        groups_of(Run([folder]), 1)
        assert len(reads) == 3

    def test_new_lines_of_a_file_that_grew(self, tmp_path, reads):
        """From the end of what the index had; files that did not change are left alone."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1, 0))
        writer.write(make_trajectory(102, 0))
        run = Run([tmp_path])
        assert [step.trajectories for step in run.steps()] == [1, 1]
        [path] = tmp_path.glob("steps=000100-000199/*.otlp.zst")
        size = path.stat().st_size
        writer.write(make_trajectory(102, 1))
        del reads[:]
        assert [step.trajectories for step in run.steps()] == [1, 2]
        assert reads == [("steps=000100-000199", size)]
        writer.close()
        assert_right(tmp_path)

    def test_one_look_for_all_questions_of_a_block(self, folder, monkeypatch):
        """A page asks many; outside of a block each question looks anew."""
        looks = []
        find = "otel_rollout.catalog.filling.find_files"
        monkeypatch.setattr(find, lambda *given: looks.append(1) or find_files(*given))
        run = Run([folder])
        run.steps()
        del looks[:]
        with run.one_look():
            first, *_ = run.steps()
            for each in summaries_of(run, 1):
                assert run.trajectory(each.trace_id).spans
            run.same_prompt(0, first)
        assert len(looks) == 1
        run.steps()
        run.steps()
        assert len(looks) == 3


class TestChanges:
    """The same answers as a catalog that is made anew."""

    def test_a_file_is_replaced(self, folder):
        """By one with other trajectories, of the same or another size."""
        answers(folder)
        [path] = folder.glob("steps=000000-000099/*.otlp.zst")
        [index] = folder.glob("steps=000000-000099/*.index.jsonl.zst")
        index.unlink()
        path.unlink()
        write_frames(path, make_trajectory(1, 5), make_trajectory(1, 6))
        assert assert_right(folder)["steps"][0].trajectories == 2

    def test_a_frame_is_cut_and_more_follow(self, folder):
        """What a later process appends after a torn frame counts."""
        answers(folder)
        [path] = folder.glob("steps=000000-000099/*.otlp.zst")
        os.truncate(path, path.stat().st_size - 10)
        answers(folder)
        write_frames(path, make_trajectory(1, 8))
        assert assert_right(folder)["steps"][0].trajectories == 4

    def test_lines_of_an_index_are_damaged(self, tmp_path):
        """Before they were read, and after: the frames have the same facts."""
        folder = tmp_path / "traces"
        writer = FolderWriter(folder)
        for number in range(4):
            writer.write(make_trajectory(1, number))
        whole = answers(folder)
        [index] = folder.glob("steps=000000-000099/*.index.jsonl")
        data = index.read_bytes()
        index.write_bytes(data.replace(b'"reward":1.0', b'"reward":9.0', 1))
        assert assert_right(folder) == whole
        shutil.rmtree(Path(os.environ["XDG_CACHE_HOME"]))
        assert assert_right(folder) == whole
        index.write_bytes(data[: len(data) // 2])
        write_folder(folder, make_trajectory(1, 9))
        assert assert_right(folder)["steps"][0].trajectories == 5
        writer.close()

    def test_a_trajectory_that_runs_and_ends(self, tmp_path):
        """It is one, without a root and then with one, in the journal and then in its step's folder."""
        writer = FolderWriter(tmp_path)
        spans = make_trajectory(1, 7)
        writer.write(spans[:1])
        assert [step.rootless for step in assert_right(tmp_path)["steps"]] == [1]
        writer.write(spans[1:2])
        assert [step.spans for step in assert_right(tmp_path)["steps"]] == [2]
        writer.write(spans[2:])
        [step] = assert_right(tmp_path)["steps"]
        assert (step.trajectories, step.rootless, step.spans) == (1, 0, 3)
        writer.close()
        [step] = assert_right(tmp_path)["steps"]
        assert (step.trajectories, step.rootless, step.spans) == (1, 0, 3)

    def test_what_a_killed_process_left_is_reported_then(self, tmp_path):
        """While it lives the end of its file may be half a frame; afterwards that is damage, though nothing changed."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1, 0))
        [path] = tmp_path.glob("steps=000000-000099/*.otlp.zst")
        with path.open("ab") as file:
            file.write(path.read_bytes()[:-10])
        assert answers(tmp_path)["problems"] == []
        writer.close()
        assert [what for what, _, _ in assert_right(tmp_path)["problems"]] == ["torn frame"]

    def test_a_reward_that_comes_late(self, folder):
        """A further line of a known trace is joined with the others, in whatever order they are read."""
        answers(folder)
        trace_id = trace_id_of(1, 0, 0)
        tags = {semconv.STEP: 1, semconv.SAMPLE_INDEX: 0, semconv.ROLLOUT_N: 0}
        late = make_span("reward", 77, trace_id, attributes={semconv.REWARD: 5.0, **tags}, seconds=(9.0, 9.5))
        write_folder(folder, [late])
        found = assert_right(folder)
        assert found["steps"][0].trajectories == 4
        assert max(group for each in found["groups"][0] for group in each.rewards) == 5.0
        later = make_span("reward", 78, trace_id, attributes={semconv.REWARD: 6.0, **tags}, seconds=(19.0, 19.5))
        write_folder(folder, [later])
        assert max(each for group in assert_right(folder)["groups"][0] for each in group.rewards) == 6.0

    def test_a_file_of_another_program(self, folder):
        """Its lines can be of any step, several traces in one; it is read anew when it grows."""
        write_lines(folder / "other.jsonl", [*make_trajectory(1, 30), *make_trajectory(102, 31)])
        assert [step.trajectories for step in assert_right(folder)["steps"]] == [5, 5, 1]
        write_lines(folder / "other.jsonl", make_trajectory(1, 32))
        assert [step.trajectories for step in assert_right(folder)["steps"]] == [6, 5, 1]

    def test_a_file_that_was_copied(self, folder, tmp_path):
        """What is in both counts once, also after one of them is gone."""
        copy = shutil.copytree(folder, tmp_path / "copy")
        assert assert_right(folder, copy)["steps"][0].trajectories == 4
        shutil.rmtree(folder / "steps=000000-000099")
        assert assert_right(folder, copy)["steps"][0].trajectories == 4

    def test_parts_of_a_step_in_two_folders(self, tmp_path):
        """Two nodes wrote them; two experiments and two runs are told apart."""
        first = write_folder(tmp_path / "a", make_trajectory(1, 0, 0), make_trajectory(1, 5, 0, experiment="other"))
        second = write_folder(tmp_path / "b", make_trajectory(1, 0, 1))
        found = assert_right(first, second)
        assert [step.trajectories for step in found["steps"]] in ([1, 2], [2, 1])
        write_folder(second, make_trajectory(1, 0, 2))
        assert sorted(step.trajectories for step in assert_right(first, second)["steps"]) == [1, 3]


class TestAtOnce:
    """Several readers beside writers."""

    def test_readers_have_what_was_written_before_they_asked(self, tmp_path):
        """Threads and their catalogs, while a writer goes on."""
        writer = FolderWriter(tmp_path)
        writer.write(make_trajectory(1, 0))

        def ask(number: int) -> bool:
            if number % 4 == 0:
                writer.write(make_trajectory(1, number + 1))
            count = sum(len(read_index(path)) for path in tmp_path.rglob("*.index.jsonl"))
            return Run([tmp_path]).steps()[0].trajectories >= count

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(ask, range(32)))
        writer.close()
        assert_right(tmp_path)

    def test_processes(self, tmp_path):
        """64 writers in four processes, and four readers that fill one catalog together."""
        writing = [(_write, tmp_path, number) for number in range(4)]
        reading = [(_count, tmp_path, 0)] * 4
        with ProcessPoolExecutor(4, mp_context=get_context("spawn")) as pool:
            counts = [each.result() for each in [pool.submit(*each) for each in writing + reading]][4:]
        assert all(first <= 256 and second <= 256 for first, second in counts)
        assert [step.trajectories for step in assert_right(tmp_path)["steps"]] == [256, 256]


def _write(folder: Path, number: int) -> None:
    writers = [FolderWriter(folder) for _ in range(16)]
    for rollout in range(4):
        for sample, writer in enumerate(writers):
            for step in (1, 2):
                writer.write(make_trajectory(step, 16 * number + sample, rollout))
    for writer in writers:
        writer.close()


def _count(folder: Path, number: int) -> list[int]:
    return [step.trajectories for step in Run([folder]).steps()]


class TestKilledReaders:
    """A reader that is killed at any instant."""

    def test_before_it_compares_with_the_scale(self, folder, monkeypatch):
        """The figures of steps are there, those by the run's scale aren't: the next one adds them."""
        with monkeypatch.context() as patch:
            patch.setattr("otel_rollout.catalog.figures.judge_steps", _raise_interrupt)
            with pytest.raises(KeyboardInterrupt):
                Run([folder]).steps()
        assert [step.solved for step in assert_right(folder)["steps"]] == [0.5, 0.5, 1.0]

    @pytest.mark.parametrize("rounds", [8, pytest.param(50, marks=pytest.mark.slow)])
    def test_leave_a_catalog_with_the_right_answers(self, tmp_path, monkeypatch, rounds):
        """While it reads a new folder, more of it, or after files are gone: the next one goes on."""
        monkeypatch.setattr("otel_rollout.catalog.filling.SECONDS_BETWEEN_COMMITS", 0.0)
        rng = random.Random(rounds)
        for number in range(rounds):
            write_folder(
                tmp_path, *(make_trajectory(step, number, rollout) for step in (1, 102, 203) for rollout in range(4))
            )
            if number % 3 == 2:
                shutil.rmtree(tmp_path / "steps=000100-000199")
            started = time.perf_counter()
            with_new = Run([tmp_path])
            if number == 0:
                with_new.steps()
            seconds = max(0.02, time.perf_counter() - started)
            for _ in range(4):
                _read_until_killed(tmp_path, rng.uniform(0, seconds))
            assert_right(tmp_path)


def _raise_interrupt(*unused):
    raise KeyboardInterrupt


def _read_until_killed(folder: Path, seconds: float) -> None:
    child = os.fork()
    if child == 0:
        try:
            # The signal ends the process at once, as SIGKILL does.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-4))
            Run([folder]).steps()
            signal.pause()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGALRM
