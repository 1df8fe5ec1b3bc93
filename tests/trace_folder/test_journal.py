"""The journal: requests of what is still running."""

from __future__ import annotations

import errno
import os

import pytest

from otel_rollout.files import is_being_written
from otel_rollout.folder import Journal, frame_of
from otel_rollout.folder import journal as journal_module
from otel_rollout.folder.frames import FAST_LEVEL


@pytest.fixture
def journal(tmp_path, monkeypatch):
    """A journal that is written anew once 100 bytes of it, and most of it, are dead."""
    monkeypatch.setattr(journal_module, "MIN_DEAD_BYTES", 100)
    journal = Journal(tmp_path / "open" / "worker.otlp.zst")
    yield journal
    journal.forget()


def request(text):
    """A request, as far as a journal can tell."""
    return b"request %b" % text


def stored(text):
    """The same request as it stands in the file."""
    return frame_of(request(text), FAST_LEVEL)


def refuse(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


class TestJournal:
    """Appending, reading, giving space back."""

    def test_lines_are_read_from_where_they_stand(self, journal):
        """What append returns leads back to the lines."""
        first, second = journal.append([request(b"one"), request(b"two")], [])
        [third] = journal.append([request(b"three")], [first, second])
        assert journal.read([third, first]) == [request(b"three"), request(b"one")]
        assert journal.path.read_bytes() == stored(b"one") + stored(b"two") + stored(b"three")
        assert journal.live_bytes == journal.path.stat().st_size

    def test_there_is_no_file_before_the_first_line_nor_after_the_last(self, journal):
        """Nothing is left behind where nothing runs."""
        assert not journal.path.parent.exists()
        parts = journal.append([request(b"one")], [])
        assert is_being_written(journal.path)
        journal.release(parts)
        journal.compact([])
        assert journal.path.read_bytes() == b""
        journal.close()
        assert not journal.path.exists()

    def test_a_journal_that_is_still_needed_stays(self, journal):
        """Closing it removes nothing that has no other place."""
        journal.append([request(b"one")], [])
        journal.close()
        assert journal.path.read_bytes() == stored(b"one")
        assert not is_being_written(journal.path)

    def test_it_is_written_anew_when_most_is_dead(self, journal):
        """The lines that are left stand elsewhere then, in a file that is held like the old one."""
        parts = journal.append([request(b"%d" % number) for number in range(10)], [])
        live = [parts[2], parts[8]]
        journal.release(part for part in parts if part not in live)
        journal.compact(reversed(live))
        assert journal.path.read_bytes() == stored(b"2") + stored(b"8")
        assert journal.read(live) == [request(b"2"), request(b"8")]
        assert is_being_written(journal.path)
        [more] = journal.append([request(b"more")], live)
        assert journal.read([more]) == [request(b"more")]
        assert [path.name for path in journal.path.parent.iterdir()] == ["worker.otlp.zst"]

    def test_little_that_is_dead_is_left_alone(self, journal):
        """Writing anew costs as much as what is alive."""
        parts = journal.append([request(b"x") for _ in range(10)], [])
        journal.release(parts[:4])
        journal.compact(parts[4:])
        assert journal.path.stat().st_size == 10 * len(stored(b"x"))

    def test_where_it_cannot_be_written_anew_it_stays_as_it_is(self, journal, monkeypatch):
        """A full disk in mid-way loses nothing and leaves nothing."""
        parts = journal.append([request(b"x"), request(b"y" * 200)], [])
        journal.release(parts[1:])
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", refuse)
            with pytest.raises(OSError, match="No space"):
                journal.compact(parts[:1])
        assert journal.read(parts[:1]) == [request(b"x")]
        assert [path.name for path in journal.path.parent.iterdir()] == ["worker.otlp.zst"]
        journal.compact(parts[:1])
        assert journal.read(parts[:1]) == [request(b"x")]
        assert journal.path.stat().st_size == len(stored(b"x"))

    def test_a_removed_file_is_put_back_with_what_is_alive(self, journal):
        """What was in it is still readable by the one who has it open."""
        parts = journal.append([request(b"one"), request(b"two")], [])
        journal.release(parts[:1])
        journal.path.unlink()
        [third] = journal.append([request(b"three")], parts[1:])
        assert journal.path.read_bytes() == stored(b"two") + stored(b"three")
        assert journal.read([parts[1], third]) == [request(b"two"), request(b"three")]

    def test_what_somebody_has_cut_away_or_overwritten_is_left_out(self, journal):
        """It is not made up, and what is still there is read."""
        parts = journal.append([request(b"one"), request(b"two"), request(b"three")], [])
        os.truncate(journal.path, parts[2].offset + 5)
        with journal.path.open("r+b") as file:
            file.write(b"other")
        assert journal.read(parts) == [request(b"two")]

    def test_what_is_left_of_a_changed_journal_survives_its_removal(self, journal):
        """It is written anew without what is gone."""
        parts = journal.append([request(b"one"), request(b"two")], [])
        os.truncate(journal.path, parts[1].offset + 5)
        journal.path.unlink()
        [third] = journal.append([request(b"three")], parts)
        assert journal.read([*parts, third]) == [request(b"one"), request(b"three")]
