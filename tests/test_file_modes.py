"""Who may read the files that we make."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from otel_rollout.deliver import open_spool
from otel_rollout.files import make_folder, narrow, open_private
from otel_rollout.folder.folder_writer import FolderWriter
from otel_rollout.replay import DeliveredLog
from otel_rollout_mlflow.sqlite_file import ensure_sqlite_file
from tests.trace_folder.recordings import make_trajectory


@pytest.fixture(params=[0o000, 0o022, 0o027, 0o077], ids=oct)
def umask(request):
    """What the user's umask is: none of this depends on it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def modes_in(folder):
    """The modes of the folders in a folder, and of the files."""
    paths = sorted(folder.rglob("*"))
    return [{mode_of(path) for path in paths if kind(path)} for kind in (Path.is_dir, Path.is_file)]


def write(folder):
    """Have a trace folder with files of each kind."""
    writer = FolderWriter(folder)
    writer.write(make_trajectory(1))
    writer.write(make_trajectory(1, validate=True))
    writer.write(make_trajectory(2)[:2])
    writer._files.close()
    writer._journal.forget()
    log = DeliveredLog(folder, "console", "here")
    log.add(["token"])
    log.close()
    assert len(list(folder.rglob("*.*"))) == 7


class TestTraceFolder:
    """The files of a trace folder, and what a replay notes in it."""

    def test_one_that_we_make_is_private(self, tmp_path, umask):
        """Folders are 0700 and files 0600, also those above it that were missing."""
        folder = tmp_path / "above" / "traces"
        write(folder)
        assert (mode_of(tmp_path / "above"), mode_of(folder)) == (0o700, 0o700)
        assert modes_in(folder) == [{0o700}, {0o600}]

    @pytest.mark.parametrize(("mode", "files"), [(0o750, 0o640), (0o770, 0o660), (0o755, 0o644), (0o711, 0o600)])
    def test_one_that_exists_decides(self, tmp_path, umask, mode, files):
        """What is made in it has its group and other bits: a shared disk is set up once, by its folder."""
        folder = tmp_path / "traces"
        folder.mkdir()
        folder.chmod(mode)
        write(folder)
        assert mode_of(folder) == mode
        assert modes_in(folder) == [{mode}, {files}]

    def test_a_set_group_id_is_handed_down(self, tmp_path):
        """Folders in a folder whose files are to have its group hand that on too."""
        folder = tmp_path / "traces"
        folder.mkdir()
        folder.chmod(0o2770)
        write(folder)
        assert modes_in(folder) == [{0o2770}, {0o660}]

    def test_one_that_is_removed_and_made_again_is_private(self, tmp_path):
        """The folder above it says nothing of what belongs to it."""
        tmp_path.chmod(0o755)
        folder = tmp_path / "open"
        folder.mkdir(0o755)
        writer = FolderWriter(folder)
        folder.rmdir()
        writer.write(make_trajectory(1))
        writer.close()
        assert mode_of(folder) == 0o700
        assert modes_in(folder) == [{0o700}, {0o600}]


class TestSpool:
    """What waits on disk for a backend."""

    @pytest.mark.parametrize(("mode", "folders", "files"), [(None, 0o700, 0o600), (0o750, 0o750, 0o640)])
    def test_is_private_unless_its_folder_says_otherwise(self, tmp_path, umask, mode, folders, files):
        """Also after what was delivered was cut off, which writes a file anew."""
        if mode is not None:
            (tmp_path / "spool").mkdir()
            (tmp_path / "spool").chmod(mode)
        spool = open_spool(str(tmp_path / "spool"), "otlp", 2**20)
        spool.append(make_trajectory(1))
        spool.append(make_trajectory(2))
        assert modes_in(tmp_path) == [{folders}, {files}]
        spool.settle(spool.take())
        spool.close()
        assert modes_in(tmp_path) == [{folders}, {files}]


class TestSqliteFile:
    """A database that is made for MLflow."""

    @pytest.mark.parametrize(("mode", "files"), [(None, 0o600), (0o700, 0o600), (0o750, 0o640)])
    def test_is_no_more_open_than_its_folder(self, tmp_path, mode, files):
        """And in a folder that we make it is private; so is the file of its lock."""
        before = os.umask(0o022)
        folder = tmp_path / "store"
        if mode is not None:
            folder.mkdir(mode)
        try:
            ensure_sqlite_file(folder / "mlruns.db", lambda path: path.write_bytes(b""))
        finally:
            os.umask(before)
        assert sorted(path.name for path in folder.iterdir()) == ["mlruns.db", "mlruns.db.init.lock"]
        assert mode_of(folder) == (mode or 0o700)
        assert modes_in(folder) == [set(), {files}]


class TestOpenPrivate:
    """Files, one by one."""

    def test_no_link_is_followed(self, tmp_path):
        """What somebody put in the place of a file is not written to."""
        (tmp_path / "theirs").write_text("theirs")
        (tmp_path / "ours").symlink_to(tmp_path / "theirs")
        with pytest.raises(OSError, match="symbolic links"):
            open_private(tmp_path / "ours", os.O_RDWR)

    def test_one_that_is_there_keeps_its_mode(self, tmp_path):
        """Whoever opened it to others meant that."""
        path = tmp_path / "ours"
        path.touch()
        path.chmod(0o644)
        os.close(open_private(path, os.O_RDWR))
        assert mode_of(path) == 0o644

    def test_what_a_library_made_is_narrowed(self, tmp_path):
        """To what its folder allows, and never opened."""
        tmp_path.chmod(0o750)
        path = tmp_path / "database"
        for before, after in ((0o644, 0o640), (0o666, 0o640), (0o600, 0o600)):
            path.touch()
            path.chmod(before)
            narrow(path)
            assert mode_of(path) == after

    def test_a_file_in_a_folders_place(self, tmp_path):
        """Is an error, and not overwritten."""
        (tmp_path / "file").touch()
        with pytest.raises(FileExistsError):
            make_folder(tmp_path / "file")


@pytest.mark.parametrize(("folder", "file"), [(0o1777, 0o600), (0o1770, 0o660)])
def test_a_folder_with_the_sticky_bit(tmp_path, umask, folder, file):
    """In one where everybody may write, as in /tmp, a file is private; in a group's it is the group's."""
    tmp_path.chmod(folder)
    os.close(open_private(tmp_path / "file", os.O_WRONLY))
    assert mode_of(tmp_path / "file") == file
