"""Results of tools that hold nothing, or are errors in data, are odd; ordinary ones are not."""

from __future__ import annotations

import json

import pytest

from otel_rollout.facts import is_odd_result
from tests.results.cases import ODD, ORDINARY
from tests.results.score import wrong_of


class TestResults:
    """The results of search APIs, sandboxes, clients and protocols."""

    def test_that_are_odd(self) -> None:
        """Nothing in any nesting, statuses, flags and objects of errors, and words that say so: 97 of 100 are found."""
        assert len(wrong := wrong_of(ODD, is_odd=True)) <= 0.03 * len(ODD), wrong

    def test_that_are_ordinary(self) -> None:
        """Zeros, reports on errors, texts that mention them, and actions without a result: 99 of 100 are ordinary."""
        assert len(wrong := wrong_of(ORDINARY, is_odd=False)) <= 0.01 * len(ORDINARY), wrong

    @pytest.mark.parametrize("depth", [3, 30, 5000])
    def test_that_are_deep(self, depth: int) -> None:
        """A deep result is judged as far as it is looked into, and the time for it is bounded."""
        value = '{"data":' * depth + "[]" + "}" * depth
        assert is_odd_result(value) is (depth < 5000)

    def test_that_are_long(self) -> None:
        """A long object is not parsed: it holds something."""
        assert not is_odd_result(json.dumps({"query": "w" * 20_000, "results": []}))
        assert is_odd_result("Traceback (most recent call last):\n" + "  File\n" * 5000)

    @pytest.mark.parametrize(
        ("payload", "expected"),
        [
            (None, True),
            ('""', True),
            ('{"status":503,"body":""}', True),
            ('"TimeoutError: took too long"', True),
            ('{"status":"TimeOut","run_result":{"status":"TimeLimitExceeded","stdout":"1"}}', True),
            ('"3 pages on errors in engines"', False),
            ('{"error":null,"hits":3}', False),
            ("[3", False),
        ],
    )
    def test_as_payloads(self, payload: str | None, expected: bool) -> None:
        """A payload that is missing is odd; JSON of a text is that text, and what is no JSON is a text."""
        assert is_odd_result(payload) is expected
