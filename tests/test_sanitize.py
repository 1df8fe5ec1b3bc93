"""Text and integers that every encoder and backend accepts."""

import pytest

from otel_rollout.text import INT64_MAX, INT64_MIN, fits_int64, replace_surrogates


class TestReplaceSurrogates:
    """Text for UTF-8."""

    @pytest.mark.parametrize("text", ["", "plain", "grün 漢字 😀", "\x00"])
    def test_text_without_surrogates_is_unchanged(self, text):
        """Text that UTF-8 can encode is returned unchanged."""
        assert replace_surrogates(text) == text

    def test_each_lone_surrogate_becomes_a_question_mark(self):
        """A lone surrogate, high or low, is replaced; its neighbours are not."""
        assert replace_surrogates("a\ud800é\udfff😀") == "a?é?😀"


class TestInt64:
    """Integers of 64 bits."""

    @pytest.mark.parametrize("number", [0, -1, 2**63 - 1, -(2**63), True])
    def test_what_fits(self, number):
        """The bounds themselves fit."""
        assert fits_int64(number)

    @pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**400])
    def test_what_does_not_fit(self, number):
        """One beyond a bound does not."""
        assert not fits_int64(number)

    def test_bounds(self):
        """The constants are the bounds of a signed 64-bit integer."""
        assert (INT64_MIN, INT64_MAX) == (-(2**63), 2**63 - 1)
