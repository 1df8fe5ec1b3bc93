"""The file of a catalog: where it lies, who may read it, and what happens if it is damaged or can't be there."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest

from otel_rollout.catalog import Run
from tests.catalog.answers import answers
from tests.trace_folder.recordings import make_trajectory, write_folder

NAME, FOLDERS = "catalog.sqlite3", "folders.json"


@pytest.fixture
def folder(tmp_path):
    """Two prompts of two rollouts."""
    return write_folder(
        tmp_path / "traces", *(make_trajectory(1, number // 2, number % 2, reward=float(number)) for number in range(4))
    )


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "otel-rollout" / "catalogs"


def count(folder: Path) -> int:
    """Return the number of trajectories."""
    return sum(step.trajectories for step in Run([folder]).steps())


def places_of(catalogs: Path) -> list[str]:
    """Return the files of catalogs that SQLite doesn't remove by itself."""
    return sorted(path.name for path in catalogs.glob("*/*") if not path.name.endswith(("-wal", "-shm")))


class TestPlace:
    """A file in the reader's cache folder."""

    def test_is_private_and_the_same_for_all_names_of_a_folder(self, folder, cache, monkeypatch):
        """0600 in folders of 0700; by a link or a relative path it is the same catalog."""
        assert count(folder) == 4
        monkeypatch.chdir(folder.parent)
        assert count(Path("traces")) == 4
        folder.with_name("link").symlink_to(folder)
        assert count(folder.with_name("link")) == 4
        [place] = cache.iterdir()
        assert places_of(cache) == [NAME, FOLDERS]
        assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
        assert {path.stat().st_mode & 0o777 for path in (place, cache, cache.parent)} == {0o700}

    def test_its_tables_can_be_asked_by_sqlite(self, folder, cache):
        """A row for each trajectory, step, group and tool; none needs a function of ours."""
        count(folder)
        connection = sqlite3.connect(next(cache.glob(f"*/{NAME}")))
        assert connection.execute("SELECT count(*), sum(reward) FROM trajectories").fetchall() == [(4, 6.0)]
        for table, rows in (("steps", 1), ("groups", 2), ("tools", 4)):
            assert len(connection.execute(f"SELECT * FROM {table}").fetchall()) == rows
        connection.close()

    def test_catalogs_of_folders_that_are_gone_are_removed(self, folder, cache, tmp_path):
        """When another one is made; so is what a killed reader left, and nothing else."""
        count(folder)
        for name in ("notes", "0123456789abcdef.txt"):
            (cache / name).mkdir()
        (cache / "0123456789abcdef.00000000").mkdir()
        other = shutil.copytree(folder, tmp_path / "other")
        shutil.rmtree(folder)
        assert count(other) == 4
        assert {path.name for path in cache.iterdir() if not (path / NAME).exists()} == {
            "notes",
            "0123456789abcdef.txt",
        }
        assert len(list(cache.glob(f"*/{NAME}"))) == 1


class TestDoubt:
    """A catalog that is not as it should be is made again."""

    @pytest.mark.parametrize("damage", ["cut", "changed", "empty", "foreign", "version", "folder", "text"])
    def test_gives_the_same_answers(self, folder, cache, damage):
        """And lies in its place again."""
        expected = answers(folder)
        [path] = cache.glob(f"*/{NAME}")
        if damage == "folder":
            shutil.rmtree(path.parent)
            path.parent.write_text("a file")
        elif damage in ("version", "text"):
            connection = sqlite3.connect(path)
            change = "UPDATE about SET version = 'old'" if damage == "version" else "UPDATE trajectories SET tools = 7"
            connection.execute(change)
            connection.commit()
            connection.close()
        else:
            for rest in path.parent.glob(f"{path.name}-*"):
                rest.unlink()
            data = path.read_bytes()
            path.unlink()
            if damage == "foreign":
                connection = sqlite3.connect(path)
                connection.execute("CREATE TABLE about (other)")
                connection.commit()
                connection.close()
            else:
                changed = data[:4096] + os.urandom(len(data) - 4096)
                path.write_bytes({"cut": data[: len(data) // 2], "changed": changed, "empty": b""}[damage])
        for _ in range(2):
            assert answers(folder) == expected
        assert places_of(cache) == [NAME, FOLDERS]

    def test_while_a_run_has_it_open(self, folder, cache):
        """It goes on, and so does another one."""
        run = Run([folder])
        expected = run.steps()
        shutil.rmtree(cache)
        assert Run([folder]).steps() == expected
        write_folder(folder, make_trajectory(1, 9))
        assert [step.trajectories for step in run.steps()] == [5]
        assert count(folder) == 5

    def test_damage_while_a_run_has_it_open(self, folder, cache):
        """The run makes another one."""
        run = Run([folder])
        expected = run.steps()
        [path] = cache.glob(f"*/{NAME}")
        for each in path.parent.iterdir():
            with each.open("r+b") as file:
                file.write(os.urandom(each.stat().st_size))
        assert run.steps() == expected
        assert Run([folder]).steps() == expected


class TestNoPlace:
    """Where the cache folder can't have one."""

    def test_a_home_that_is_no_folder(self, folder, cache, tmp_path):
        """The reader has a catalog of its own, which is filled and asked as any other."""
        (tmp_path / "cache").write_text("a file")
        run = Run([folder])
        assert [step.trajectories for step in run.steps()] == [4]
        assert run.query("SELECT stddev(reward) FROM trajectories", max_rows=1, seconds=10.0).rows != []
        assert (tmp_path / "cache").read_text() == "a file"
        write_folder(folder, make_trajectory(1, 9))
        assert [step.trajectories for step in run.steps()] == [5]

    def test_a_reader_that_was_stopped_holds_the_lock(self, folder, cache, monkeypatch):
        """After a while others do without the file, and leave it as it is."""
        count(folder)
        [path] = cache.glob(f"*/{NAME}")
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr("otel_rollout.catalog.database.SECONDS_TO_WAIT", 0.01)
        tried = []
        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: tried.append(given) or connect(*given, **more))
        write_folder(folder, make_trajectory(1, 9))
        assert count(folder) == 5
        # Once, as long as it may wait, and in memory.
        assert len(tried) == 2
        holder.execute("ROLLBACK")
        holder.close()
        assert path.exists()
        assert count(folder) == 5


class TestFileSystems:
    """A write-ahead log only where all readers share memory."""

    @pytest.mark.parametrize(
        ("mounts", "mode"),
        [
            ("/dev/vda / ext4 rw 0 0\n", "wal"),
            ("/dev/vda / ext4 rw 0 0\nserver:/home {} nfs4 rw 0 0\n", "delete"),
            ("server:/ / nfs rw 0 0\n/dev/vda {} xfs rw 0 0\n", "wal"),
            ("/dev/vda / ext4 rw 0 0\nsshfs {} fuse.sshfs rw 0 0\n", "delete"),
            (None, "delete"),
        ],
    )
    def test_by_what_the_cache_folder_lies_on(self, folder, cache, tmp_path, monkeypatch, mounts, mode):
        """Of nested mounts the inner one counts; what is not known to be local is none, as without a list."""
        if mounts is not None:
            (tmp_path / "mounts").write_text(mounts.format(tmp_path))
        monkeypatch.setattr("otel_rollout.catalog.database.MOUNTS", tmp_path / "mounts")
        assert count(folder) == 4
        connection = sqlite3.connect(next(cache.glob(f"*/{NAME}")))
        assert connection.execute("PRAGMA journal_mode").fetchone() == (mode,)
        connection.close()
