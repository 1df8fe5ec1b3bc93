"""The check of words: what it finds in source and pages, and what it leaves alone."""

from __future__ import annotations

import pytest

from scripts.words import RECORDED, places


def found(tmp_path, group, name, text):
    """Return the words that are found in a file of a group."""
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    for other in ("README.md", "CONTRIBUTING.md", "SECURITY.md"):
        (tmp_path / other).touch()
    return [(place.line, place.plain) for place in places(group, tmp_path)]


class TestModules:
    """Python files."""

    @pytest.mark.parametrize(
        ("source", "line"),
        [
            ('"""What is sent."""\n', 1),
            ('"""Return what is sent."""\n', 1),
            ('def send():\n    """Send.\n\n    Args:\n        spans: Whether it has spans.\n    """\n', 5),
            ("# Of a span twice in a batch the later counts.\n", 1),
            ("x = 1\n# The name tells\n# which one.\n", 2),
            ("# The spans, and those of others.\n", 1),
            ("# Sent at once.\n", 1),
            ("# The path beside it.\n", 1),
        ],
    )
    def test_docstrings_and_comments_are_read(self, tmp_path, source, line):
        """Verbless openers, clauses for nouns, things that speak and translated prepositions are found."""
        assert [at for at, _ in found(tmp_path, "otel_rollout", "otel_rollout/a.py", source)] == [line]

    @pytest.mark.parametrize(
        "source",
        [
            '"""Send spans to the backend."""\n',
            'TEXT = "what is said beside it"\n',
            "# `those of` is code.\n",
            "# A user knows the name.\n",
            "# Runs behind a proxy, once; it stands for another at once a second.\n",
        ],
    )
    def test_plain_words_code_and_strings_pass(self, tmp_path, source):
        """People may know things, code is code, and messages are strings."""
        assert found(tmp_path, "otel_rollout", "otel_rollout/a.py", source) == []

    def test_names_that_explain_nothing(self, tmp_path):
        """A module of such a name is found."""
        assert found(tmp_path, "otel_rollout", "otel_rollout/amounts.py", "") == [(1, "a name that explains")]


class TestPages:
    """Markdown files."""

    def test_prose_is_read_and_code_is_not(self, tmp_path):
        """Blocks and inline code are left out, and lines keep their numbers."""
        page = "# What is it?\n\n```sh\necho beside\n```\n\nThe file `beside` stands here.\n"
        assert [line for line, _ in found(tmp_path, "docs", "docs/a.md", page)] == [7]


def test_every_group_has_a_record():
    """The groups are the folders whose words are checked."""
    assert set(RECORDED) >= {"otel_rollout", "exporters", "docs"}
