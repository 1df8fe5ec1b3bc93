"""The command that messages name for an extra."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace

import pytest

from otel_rollout.installing import install_line

BY_NAME = "pip install 'otel-rollout[file]'"


@pytest.fixture
def direct_url(monkeypatch):
    """Set what the distribution's metadata says of its origin."""

    def set_to(text: str | None) -> None:
        metadata = SimpleNamespace(read_text=lambda name: text)
        monkeypatch.setattr(importlib.metadata, "distribution", lambda name: metadata)

    return set_to


class TestInstallLine:
    """`install_line` names a source that is there."""

    def test_a_release_is_installed_by_name(self, direct_url):
        """An index knows the distribution's name."""
        direct_url(None)

        assert install_line("file") == BY_NAME

    def test_a_clone_is_installed_from_its_folder(self, direct_url, tmp_path):
        """A clone is named by its path, and stays editable if it was; a space in the path is quoted."""
        clone = tmp_path / "my clone"
        clone.mkdir()

        direct_url(f'{{"url": "{clone.as_uri()}", "dir_info": {{}}}}')
        assert install_line("file") == f"pip install '{clone}[file]'"
        direct_url(f'{{"url": "{clone.as_uri()}", "dir_info": {{"editable": true}}}}')
        assert install_line("cli") == f"pip install -e '{clone}[cli]'"

    @pytest.mark.parametrize(
        "text",
        [
            '{"url": "file:///not/there", "dir_info": {}}',
            '{"url": "https://example.org/a.whl"}',
            "{",
            "[]",
            '{"url": 1}',
        ],
    )
    def test_an_unusable_origin_is_not_named(self, direct_url, text):
        """A folder that is gone, an address of the network or damaged metadata leave the name."""
        direct_url(text)

        assert install_line("file") == BY_NAME

    def test_without_metadata_there_is_the_name(self, monkeypatch):
        """The package's folder alone, as Ray ships it, has no metadata."""

        def missing(name: str) -> None:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata, "distribution", missing)

        assert install_line("file") == BY_NAME
