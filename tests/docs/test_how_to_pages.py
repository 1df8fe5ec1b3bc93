"""The code of how-to pages without servers runs as it is pasted, and prints what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import check, pages

HOW_TO = "docs/how-to/"
LONG = ("docs/how-to/use-the-data.md", "docs/how-to/share-a-trajectory.md")
"""Pages that take many seconds, of commands that other tests run too."""
VIEWING = tuple(f"{HOW_TO}{name}.md" for name in ("compare", "diagnose", "notebook"))
"""Pages that look at the runs of a demo, which are tested in a file of their own: a file is one worker's."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name in LONG else ())
        for name in pages(servers=False)
        if name.startswith(HOW_TO) and name not in VIEWING
    ],
)
def test_the_code_runs(name: str, tmp_path: Path):
    """Each block that is not marked otherwise succeeds, and prints what the page shows."""
    check(name, tmp_path, {})
