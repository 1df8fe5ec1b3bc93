"""The journal: lines of what is still running."""

from __future__ import annotations

import errno
import os

import pytest

from otel_rollout.trace_folder import journal as journal_module
from otel_rollout.trace_folder.file_lock import is_being_written
from otel_rollout.trace_folder.journal import Journal


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """A journal that is written anew once 100 bytes of it, and most of it, are dead."""
    monkeypatch.setattr(journal_module, "MIN_DEAD_BYTES", 100)
    journal = Journal(tmp_path / "open" / "worker.jsonl")
    yield journal
    journal.forget()


def refuse(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


class TestJournal:
    """Appending, reading, giving space back."""

    def test_lines_are_read_from_where_they_stand(self, journal):
        """What append returns leads back to the lines."""
        first, second = journal.append([b"one\n", b"two\n"], [])
        [third] = journal.append([b"three\n"], [first, second])
        assert journal.read([third, first]) == [b"three\n", b"one\n"]
        assert journal.path.read_bytes() == b"one\ntwo\nthree\n"
        assert journal.live_bytes == 14

    def test_there_is_no_file_before_the_first_line_nor_after_the_last(self, journal):
        """Nothing is left behind where nothing runs."""
        assert not journal.path.parent.exists()
        parts = journal.append([b"one\n"], [])
        assert is_being_written(journal.path)
        journal.release(parts)
        journal.tidy([])
        assert journal.path.read_bytes() == b""
        journal.close()
        assert not journal.path.exists()

    def test_a_journal_that_is_still_needed_stays(self, journal):
        """Closing it removes nothing that has no other place."""
        journal.append([b"one\n"], [])
        journal.close()
        assert journal.path.read_bytes() == b"one\n"
        assert not is_being_written(journal.path)

    def test_it_is_written_anew_when_most_is_dead(self, journal):
        """The lines that are left stand elsewhere then, in a file that is held like the old one."""
        parts = journal.append([b"%020d\n" % number for number in range(10)], [])
        live = [parts[2], parts[8]]
        journal.release(part for part in parts if part not in live)
        journal.tidy(reversed(live))
        assert journal.path.read_bytes() == b"%020d\n%020d\n" % (2, 8)
        assert journal.read(live) == [b"%020d\n" % 2, b"%020d\n" % 8]
        assert is_being_written(journal.path)
        [more] = journal.append([b"more\n"], live)
        assert journal.read([more]) == [b"more\n"]
        assert [path.name for path in journal.path.parent.iterdir()] == ["worker.jsonl"]

    def test_little_that_is_dead_is_left_alone(self, journal):
        """Writing anew costs as much as what is alive."""
        parts = journal.append([b"x" * 50 + b"\n" for _ in range(10)], [])
        journal.release(parts[:4])
        journal.tidy(parts[4:])
        assert journal.path.stat().st_size == 510

    def test_where_it_cannot_be_written_anew_it_stays_as_it_is(self, journal, monkeypatch):
        """A full disk in mid-way loses nothing and leaves nothing."""
        parts = journal.append([b"x" * 50 + b"\n", b"y" * 200], [])
        journal.release(parts[1:])
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", refuse)
            with pytest.raises(OSError, match="No space"):
                journal.tidy(parts[:1])
        assert journal.read(parts[:1]) == [b"x" * 50 + b"\n"]
        assert [path.name for path in journal.path.parent.iterdir()] == ["worker.jsonl"]
        journal.tidy(parts[:1])
        assert journal.read(parts[:1]) == [b"x" * 50 + b"\n"]
        assert journal.path.stat().st_size == 51

    def test_a_removed_file_is_put_back_with_what_is_alive(self, journal):
        """What was in it is still readable by the one who has it open."""
        parts = journal.append([b"one\n", b"two\n"], [])
        journal.release(parts[:1])
        journal.path.unlink()
        [third] = journal.append([b"three\n"], parts[1:])
        assert journal.path.read_bytes() == b"two\nthree\n"
        assert journal.read([parts[1], third]) == [b"two\n", b"three\n"]

    def test_a_file_that_was_cut_off_is_an_error(self, journal):
        """What somebody else has cut away is not made up."""
        parts = journal.append([b"one\n", b"two\n"], [])
        os.truncate(journal.path, 5)
        with pytest.raises(OSError, match="cut off"):
            journal.read(parts)
