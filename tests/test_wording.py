"""Words that go with numbers."""

from __future__ import annotations

import pytest

from otel_rollout.wording import counted


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
        ],
    )
    def test_plural(self, number, noun, text):
        """The noun is in the plural, as English makes it, unless there is just one."""
        assert counted(number, noun) == text
