"""The bound on a trace folder."""

from __future__ import annotations

import errno
import os
import threading
import time

import pytest

from otel_rollout.files import exclusive_lock
from otel_rollout.folder import AppendFile, FolderBound, bundle_folder
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder.writing import contents, ids, trajectory


@pytest.fixture
def make_file(tmp_path):
    """Makes a file of so many bytes, that long after the epoch, in the trace folder."""

    def make(place, size=1000, modified=0):
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        os.utime(path, (modified, modified))
        return path

    return make


RETENTION = "otel_rollout.folder.retention"


def bundle(number):
    """The name of a folder of steps, one after the other."""
    return bundle_folder(100 * number, validate=False)


def enforce_bound(folder, max_bytes):
    """Enforce a bound once, and return how many bytes went."""
    before = size_of(folder)
    FolderBound(folder, max_bytes).enforce()
    return before - size_of(folder)


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class TestEnforceBound:
    """Removing what is oldest."""

    def test_the_oldest_go_until_the_rest_fits(self, tmp_path, make_file):
        """In the order in which they were last written, with their indexes, and folders that are empty then."""
        for number, step in enumerate((3, 1, 2)):
            make_file(f"{bundle(step)}/w-1-00ab.otlp.zst", modified=number)
            make_file(f"{bundle(step)}/w-1-00ab.index.jsonl", size=100, modified=number)
        assert enforce_bound(tmp_path, 1500) == 2200
        assert [path.name for path in tmp_path.iterdir()] == [bundle(2)]
        assert sorted(path.name for path in (tmp_path / bundle(2)).iterdir()) == [
            "w-1-00ab.index.jsonl",
            "w-1-00ab.otlp.zst",
        ]

    def test_an_index_that_is_closed_meanwhile_goes_as_well(self, tmp_path, make_file, monkeypatch):
        """Nobody would remove it later."""
        make_file("no-step/w-1-00ab.otlp.zst")
        index = make_file("no-step/w-1-00ab.index.jsonl", size=100)

        def close_index(folder):
            index.rename(index.with_name(f"{index.name}.zst"))
            return 0.0

        monkeypatch.setattr(f"{RETENTION}.file_clock", close_index)
        assert enforce_bound(tmp_path, 500) == 1100
        assert list(tmp_path.iterdir()) == []

    def test_validation_journals_and_what_has_no_step_count(self, tmp_path, make_file):
        """All that the folder's layout knows is in the bound, journals and other files that a crash left behind too."""
        places = [
            "validate/steps=000000-000099/w-1-00ab.otlp.zst",
            "no-step/w-1-00ab.otlp.zst",
            "open/w-1-00ab.otlp.zst",
            "open/.w-1-00ab.otlp.zst.new",
            "open/w-1-00ab.running.json",
            "open/.w-1-00ab.running.json.new",
            "steps=000000-000099/w-1-00ab-2.otlp.zst",
        ]
        for number, place in enumerate(places):
            make_file(place, modified=number)
        for left in range(len(places) - 1, -1, -1):
            assert enforce_bound(tmp_path, left * 1000 + 1) == 1000
            assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == sorted(
                tmp_path / place for place in places[len(places) - left :]
            )

    @pytest.mark.parametrize(
        "place",
        [
            "notes.jsonl",
            "other/w-1-00ab.otlp.zst",
            "validate/w-1-00ab.otlp.zst",
            "steps=000000-000099/my-notes.jsonl",
            "steps=000000-000099/data.otlp.zst",
            "steps=000000-000099/w-1-00ab.jsonl",
            "step=7/w-1-00ab.otlp.zst",
            "steps=0-99/w-1-00ab.otlp.zst",
            "steps=000001-000100/w-1-00ab.otlp.zst",
            "steps=\u0663-\u0663/w-1-00ab.otlp.zst",
            "open/dataset.otlp.zst",
            "open/dataset.otlp.zst.new",
            "no-step/results-2024-1.otlp.zst",
            "validate/steps=000000-000099/exported.otlp.zst",
        ],
    )
    def test_a_users_file_among_ours_stays(self, tmp_path, make_file, place):
        """A file is counted and removed only if it has the name and the place of one that we write."""
        path = make_file(place)
        make_file("steps=000000-000099/w-1-00ab.otlp.zst", modified=5)
        assert enforce_bound(tmp_path, 0) == 1000
        assert path.exists()

    @pytest.mark.parametrize(
        "place", ["steps=000000-000099", "open", "validate", "validate/steps=000000-000099", "no-step"]
    )
    def test_nothing_is_removed_behind_a_link(self, tmp_path, make_file, place):
        """A folder that is linked into this one is somebody else's, though its files have names like ours."""
        names = ("w-1-00ab.otlp.zst", "w-1-00ab.jsonl", "steps=000000-000099/w-1-00ab.otlp.zst")
        theirs = [make_file(f"elsewhere/{name}") for name in names]
        link = tmp_path / "traces" / place
        link.parent.mkdir(parents=True)
        link.symlink_to(tmp_path / "elsewhere")
        assert enforce_bound(tmp_path / "traces", 0) == 0
        assert all(path.exists() for path in theirs)

    def test_a_link_to_a_file_stays(self, tmp_path, make_file):
        """And so does the file."""
        theirs = make_file("elsewhere/w-1-00ab.otlp.zst")
        link = tmp_path / "traces" / "steps=000000-000099" / "w-1-00ab.otlp.zst"
        link.parent.mkdir(parents=True)
        link.symlink_to(theirs)
        assert enforce_bound(tmp_path / "traces", 0) == 0
        assert link.is_symlink()
        assert theirs.exists()

    def test_what_is_being_written_or_read_by_its_owner_stays(self, tmp_path, make_file):
        """A file that a process holds is left alone, however old; the next oldest goes in its place."""
        for number in (1, 2, 3):
            make_file(f"{bundle(number)}/w-1-00ab.otlp.zst", modified=number)
        held = AppendFile(tmp_path / bundle(1) / "w-1-00ab.otlp.zst")
        with exclusive_lock(tmp_path / bundle(2) / "w-1-00ab.otlp.zst"):
            assert enforce_bound(tmp_path, 0) == 1000
        held.close()
        assert sorted(path.name for path in tmp_path.iterdir()) == [bundle(1), bundle(2)]

    def test_two_at_once_remove_no_more_than_one(self, tmp_path, make_file):
        """Processes that look at the same time remove the same files, not each its own."""
        for number in range(40):
            make_file(f"{bundle(number)}/w-1-00ab.otlp.zst", modified=number)
        threads = [threading.Thread(target=FolderBound(tmp_path, 20_000).enforce) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(path.name for path in tmp_path.iterdir()) == [bundle(number) for number in range(20, 40)]

    def test_files_are_looked_at_each_time(self, tmp_path, make_file):
        """Files grow without a change of their folder."""
        path = make_file(f"{bundle(1)}/w-1-00ab.otlp.zst", size=1000, modified=time.time())
        bound = FolderBound(tmp_path, 1500)
        bound.enforce()
        assert path.exists()
        path.write_bytes(b"x" * 2000)
        bound.enforce()
        assert not path.exists()

    @pytest.mark.parametrize("ahead", [0, 3700, -3700])
    def test_a_clock_that_is_ahead_removes_no_file_of_a_living_writer(self, tmp_path, make_file, monkeypatch, ahead):
        """Without locks the age of a file counts, by the clock that stamps files."""
        path = make_file(f"{bundle(1)}/w-1-00ab.otlp.zst", modified=time.time())
        old = make_file(f"{bundle(2)}/w-1-00ab.otlp.zst", modified=time.time() - 3700)
        clock = time.time

        def refuse(*unused):
            raise OSError(errno.ENOTSUP, "no locks here")

        monkeypatch.setattr("fcntl.flock", refuse)
        monkeypatch.setattr(time, "time", lambda: clock() + ahead)
        assert enforce_bound(tmp_path, 0) == 1000
        assert path.exists()
        assert not old.exists()


class TestBoundedWriter:
    """A writer with a bound on the folder."""

    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch):
        """The thread that enforces the bound is waited for."""
        monkeypatch.setattr(f"{RETENTION}.BackgroundThread.start", lambda thread: thread.run_here())

    def test_several_writers_share_the_bound(self, tmp_path):
        """The files that are written can't be removed: together they take as much as those of one writer."""
        writers = [FolderWriter(tmp_path, max_bytes=400_000) for _ in range(8)]
        sizes = []
        for _ in range(20):
            for writer in writers:
                writer.write(trajectory(step=1, payload=4000))
            sizes.append(size_of(tmp_path))
        for writer in writers:
            writer.close()
        assert max(sizes) > 200_000
        assert max(sizes[5:]) < 400_000 * 1.25

    def test_the_folder_stays_within_its_bound(self, tmp_path):
        """Old steps go while new ones come; the newest is whole."""
        writer = FolderWriter(tmp_path, max_bytes=200_000)
        sizes, last = [], None
        for step in range(60):
            last = [trajectory(step=100 * step, payload=4000) for _ in range(4)]
            for spans in last:
                writer.write(spans)
            sizes.append(size_of(tmp_path))
        writer.close()
        # Beside what may be removed there is at most what is open, and what was written since the last look.
        assert max(sizes) < 200_000 * 1.25
        assert max(sizes) > 100_000
        found = contents(tmp_path)
        assert found[f"{bundle(59)}/{writer.worker}.otlp.zst"] == [ids(spans) for spans in last]
        assert not any(place.startswith(bundle(0)) for place in found)

    def test_a_step_larger_than_the_bound_loses_its_own_beginning(self, tmp_path):
        """Files are small enough that the oldest of a single step can go."""
        writer = FolderWriter(tmp_path, max_bytes=100_000)
        for number in range(60):
            writer.write(trajectory(step=1, payload=4000, rollout_n=number))
        writer.close()
        assert size_of(tmp_path) < 125_000
        places = list(contents(tmp_path))
        assert f"steps=000000-000099/{writer.worker}.otlp.zst" not in places
        assert len(places) > 1


class TestThread:
    """The thread that enforces the bound."""

    def test_a_writer_does_not_wait_for_it(self, tmp_path, monkeypatch):
        """While a look at the folder takes long, trajectories are written; at its end the writer waits."""
        looked, goes_on = threading.Event(), threading.Event()
        scandir = os.scandir

        def slow(folder):
            if threading.current_thread().name == "otel-rollout-retention":
                looked.set()
                assert goes_on.wait(120)
            return scandir(folder)

        monkeypatch.setattr(os, "scandir", slow)
        writer = FolderWriter(tmp_path, max_bytes=100_000)
        for number in range(40):
            writer.write(trajectory(step=1, payload=4000, rollout_n=number))
        assert looked.wait(120)
        assert size_of(tmp_path) > 125_000
        goes_on.set()
        writer.close()
        assert size_of(tmp_path) < 125_000
