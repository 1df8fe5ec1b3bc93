"""The journal: requests of what is still running."""

from __future__ import annotations

import errno
import os

import pytest

from otel_rollout.folder import Journal
from otel_rollout.folder import journal as journal_module


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


def refuse(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


class TestJournal:
    """Appending, reading, giving space back."""

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
        assert journal.path.stat().st_size < 50

    def test_what_is_left_of_a_changed_journal_survives_its_removal(self, journal):
        """It is written anew without what is gone."""
        parts = journal.append([request(b"one"), request(b"two")], [])
        os.truncate(journal.path, parts[1].offset + 5)
        journal.path.unlink()
        [third] = journal.append([request(b"three")], parts)
        assert journal.read([*parts, third]) == [request(b"one"), request(b"three")]
