"""The code of how-to pages that look at a run does what the pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import check
from tests.docs.test_how_to_pages import VIEWING


@pytest.mark.parametrize("name", VIEWING)
def test_the_code_runs(name: str, tmp_path: Path):
    """Each block that is not marked otherwise succeeds, and prints what the page shows."""
    check(name, tmp_path, {})
