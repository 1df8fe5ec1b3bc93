"""What can be asked of a replay, and what can't."""

from __future__ import annotations

import pytest

from otel_rollout.errors import ConfigurationError


class TestRequests:
    """What can't be asked for."""

    def test_a_folder_into_itself(self, record, replayed, monkeypatch):
        """The `file` exporter can't be given the folder that is read: it would never end."""
        folder = record()
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(folder))

        with pytest.raises(ConfigurationError, match=r"writes to .* itself"):
            replayed(folder, "file")

    @pytest.mark.parametrize(("source", "target"), [("steps=000000-000099", "."), (".", "copy")])
    def test_a_folder_into_one_in_it_or_around_it(self, record, replayed, monkeypatch, source, target):
        """A step into its own folder, or a folder into one within, would be there twice for whoever reads it."""
        folder = record()
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(folder / target))

        with pytest.raises(ConfigurationError, match=r"replay it to another folder"):
            replayed(folder / source, "file")

    def test_remove_is_for_spools(self, record, replayed, memory):
        """An archive is never removed."""
        folder = record()

        with pytest.raises(ConfigurationError, match=r"--remove empties a spool: .* is a trace folder"):
            replayed(folder, memory, is_removing=True)
