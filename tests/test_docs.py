"""What the documentation says is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otel_rollout import semconv
from scripts.write_tables import DOCS, rewritten

PAGES = sorted(DOCS.glob("*.md"))
ROOT = DOCS.parent


class TestTables:
    """The tables of settings and attributes."""

    @pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
    def test_tables_agree_with_the_code(self, page: Path):
        """Each generated table of a page is what the code has now (`make docs` writes it anew)."""
        text = page.read_text(encoding="utf-8")

        assert rewritten(text) == text

    def test_the_generated_tables_are_there(self):
        """The pages hold the tables that the previous test checks."""
        text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

        assert set(re.findall(r"<!-- table: (\w+) -->", text)) == {"settings", "standard", "attributes"}

    def test_every_attribute_key_is_documented(self):
        """Each key that the code can write has a row."""
        constants = {
            value
            for name, value in vars(semconv).items()
            if name.isupper() and isinstance(value, str) and name not in ("EXCEPTION_EVENT", "JSON_MIME_TYPE")
        }

        assert constants == {row.key for row in semconv.ATTRIBUTES}

    def test_no_key_is_a_prefix_of_another(self):
        """No key is a dotted prefix of another: Phoenix and Weave turn dots into nested objects."""
        keys = [row.key for row in semconv.ATTRIBUTES]

        assert [(a, b) for a in keys for b in keys if b.startswith(f"{a}.")] == []


class TestLinks:
    """Links between the pages."""

    @pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
    def test_relative_links_lead_somewhere(self, page: Path):
        """Each relative link of a page, pictures too, leads to a file of the repository."""
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))

        assert [target for target in targets if not (page.parent / target).exists()] == []
