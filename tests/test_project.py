"""What the project's own files say of each other is true."""

from __future__ import annotations

import re
from pathlib import Path

from scripts.test_versions import VERSIONS

ROOT = Path(__file__).resolve().parent.parent


def text_of(name: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


class TestVersions:
    """The Python versions that are supported."""

    def test_ci_runs_what_is_declared(self):
        """CI tests the versions of the package's classifiers, and so does `make test-versions`."""
        declared = re.findall(r"Python :: (3\.\d+)", text_of("pyproject.toml"))
        (matrix,) = re.findall(r"python: \[(.*)\]", text_of(".github/workflows/ci.yml"))

        assert re.findall(r"[\d.]+", matrix) == declared
        assert list(VERSIONS) == declared


class TestContributing:
    """What CONTRIBUTING.md tells somebody who wants to change something."""

    def test_each_command_has_its_time(self):
        """The table has a row, with a time, for each target of the Makefile that checks, tests, measures or writes."""
        targets = set(re.findall(r"^([a-z-]+):.*## ", text_of("Makefile"), re.MULTILINE))
        rows = set(re.findall(r"^\| `make ([a-z-]+)` \|.*\| .+ \|$", text_of("CONTRIBUTING.md"), re.MULTILINE))

        assert targets - rows == {"help", "demo", "clean"}
        assert rows - targets == set()
