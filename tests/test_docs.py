"""What the documentation says is what the code does."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import otel_rollout
from otel_rollout import semconv, testing
from scripts.write_tables import DOCS, TABLES, TYPES, rewritten

PAGES = sorted(DOCS.rglob("*.md"))
ROOT = DOCS.parent
SITE_PAGES = [*PAGES, *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))]
LINK = re.compile(r"\]\(([^)#:]*)(?:#([^)]*))?\)")


class TestTables:
    """The tables of settings and attributes."""

    @pytest.mark.parametrize("page", [*PAGES, TYPES], ids=lambda page: f"{page.parent.name}/{page.name}")
    def test_tables_agree_with_the_code(self, page: Path):
        """Each generated table, and the types of the viewer, are what the code has now (`make docs` writes them)."""
        text = page.read_text(encoding="utf-8")

        assert rewritten(text) == text

    def test_the_generated_tables_are_there(self):
        """The pages hold the tables that the previous test checks."""
        text = "".join(page.read_text(encoding="utf-8") for page in PAGES)

        assert {*re.findall(r"<!-- table: (\w+) -->", text), "summaries"} == set(TABLES)

    def test_every_attribute_key_is_documented(self):
        """Each key that the code can write has a row."""
        others = {"FUNCTION_TOOL", "JSON_MIME_TYPE", "SCHEMA_URL", "TEXT_MIME_TYPE", "USER"}
        constants = {
            value
            for name, value in vars(semconv).items()
            if name.isupper() and isinstance(value, str) and name not in others and not name.endswith("_EVENT")
        }

        assert constants == {row.key for row in semconv.ATTRIBUTES}

    def test_no_key_is_a_prefix_of_another(self):
        """No key is a dotted prefix of another: Phoenix and Weave turn dots into nested objects."""
        keys = [row.key for row in semconv.ATTRIBUTES]

        assert [(a, b) for a in keys for b in keys if b.startswith(f"{a}.")] == []


class TestLinks:
    """Links between the pages."""

    @pytest.mark.parametrize("page", SITE_PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
    def test_relative_links_lead_somewhere(self, page: Path):
        """Each relative link of a page, pictures too, leads to a file of the repository and a heading of it."""
        for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            file = page.parent / target if target else page

            assert file.exists(), target
            assert not anchor or anchor in anchors(file), f"{target}#{anchor}"

    @pytest.mark.parametrize("page", SITE_PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
    def test_the_site_has_what_links_lead_to(self, page: Path):
        """Each file that a page links to is among those that `make site` takes."""
        (source,) = re.findall(r"^SITE_SOURCE := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        targets = [target for target, _ in LINK.findall(page.read_text(encoding="utf-8")) if target]
        tops = {(page.parent / target).resolve().relative_to(ROOT).parts[0] for target in targets}

        assert tops - set(source.split()) == set()


class TestSite:
    """What the site needs of the pages; `make site` finds the rest."""

    def test_each_page_is_in_the_navigation(self):
        """The navigation of the site names each page, and none twice."""
        names = re.findall(r'= "([^"]+\.md)"', (ROOT / "zensical.toml").read_text(encoding="utf-8"))

        assert sorted(names) == sorted(page.relative_to(ROOT).as_posix() for page in SITE_PAGES)

    @pytest.mark.parametrize("page", SITE_PAGES, ids=lambda page: f"{page.parent.name}/{page.name}")
    def test_lists_are_those_of_both_kinds_of_markdown(self, page: Path):
        """What follows an empty line in a list item is indented by four: a Git host and the site agree on that."""
        text = re.sub(r"(?ms)^( *)```.*?^\1```$", r"\1```", page.read_text(encoding="utf-8"))

        assert re.findall(r"\n\n( {2,3}[^ ].*)", text) == []
        assert re.findall(r"\n {4}.*\n([-*] .*)", text) == [], "an empty line is needed before the next item"

    def test_each_public_name_is_on_the_api_page(self):
        """Each name of `otel_rollout` and `otel_rollout.testing` has its place on the API page."""
        shown = [documented(path) for path in api_paths()]

        for module in (otel_rollout, testing):
            missing = [name for name in module.__all__ if getattr(module, name) not in shown]

            assert missing == []

    def test_each_name_of_the_api_page_has_a_docstring(self):
        """The site has something to say of each name on the API page, its public methods and properties too."""
        for path in api_paths():
            value = documented(path)
            parts = vars(value).items() if inspect.isclass(value) else ()
            members = [part for name, part in parts if not name.startswith("_") and _is_code(part)]
            silent = [part for part in (value, *members) if not isinstance(part, str) and not inspect.getdoc(part)]

            assert silent == [], path


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def api_paths() -> list[str]:
    """Return the dotted names that the API page shows."""
    return re.findall(r"^::: (.+)$", (DOCS / "reference" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


def documented(path: str) -> Any:
    """Return what the site shows for a dotted name: a module, if there is one, even where its package hides it."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _is_code(part: Any) -> bool:
    return inspect.isroutine(part) or isinstance(part, property | classmethod | staticmethod)
