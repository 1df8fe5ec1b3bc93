"""Numbers, durations and text for a terminal."""

from __future__ import annotations

import pytest

from otel_rollout.text import counted, duration, printable, shorten


class TestCounted:
    """A number with its noun."""

    @pytest.mark.parametrize(
        ("number", "noun", "text"),
        [
            (1, "span", "1 span"),
            (0, "span", "0 spans"),
            (1234, "trajectory", "1,234 trajectories"),
            (2, "batch", "2 batches"),
            (1, "batch", "1 batch"),
            (2, "process", "2 processes"),
            (2, "file for `import`", "2 files for `import`"),
        ],
    )
    def test_plural(self, number, noun, text):
        """The noun is in the plural, as English makes it, unless there is just one."""
        assert counted(number, noun) == text


class TestText:
    """Text for a terminal."""

    @pytest.mark.parametrize("text", ["plain", "é 漢 字", "a\N{IDEOGRAPHIC SPACE}b\N{NO-BREAK SPACE}c", "👩\u200d🔬"])
    def test_what_only_shows_is_kept(self, text):
        """Letters, spaces of any script and joined emoji stay as they are."""
        assert printable(text) == text

    @pytest.mark.parametrize("character", ["\x1b", "\x9b", "\r", "\n", "\x07", "\u202e", "\u2028", "\x00", "\udc80"])
    def test_what_a_terminal_acts_on_is_marked(self, character):
        """Control and format characters, line breaks and lone surrogates are replaced."""
        assert printable(f"a{character}b") == "a�b"

    def test_shortened_text_is_one_line(self):
        """Line breaks become blanks, and what is cut is marked."""
        assert shorten(" a\n\n b ", 10) == "a b"
        assert shorten("a" * 11, 10) == "a" * 9 + "…"

    @pytest.mark.parametrize(
        ("nanoseconds", "text"),
        [(0, "0 µs"), (1500, "2 µs"), (2_500_000, "2.5 ms"), (1_234_000_000, "1.23 s"), (-2_500_000, "-2.5 ms")],
    )
    def test_a_duration_has_a_unit_that_suits_it(self, nanoseconds, text):
        """Microseconds, milliseconds or seconds."""
        assert duration(nanoseconds) == text
