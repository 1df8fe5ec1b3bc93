"""The README's and the tutorials' code runs as it is pasted, and prints what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import check, pages

TUTORIALS = [name for name in pages(servers=False) if name.startswith(("README", "docs/tutorials/"))]


@pytest.mark.parametrize("name", TUTORIALS)
def test_the_code_runs(name: str, tmp_path: Path):
    """Each block that is not marked otherwise succeeds, and prints what the page shows."""
    check(name, tmp_path, {})
