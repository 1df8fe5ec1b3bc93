"""The record of a reward and its parts, which every exporter reads."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout.facts import RewardPart, reward_of, reward_parts_of


def parts_of(parts: Any = None, **attributes: Any) -> tuple[RewardPart, ...]:
    """Return the reward parts of a span with these parts, as JSON or as a text that is no JSON."""
    text = parts if isinstance(parts, str) else json.dumps(parts)
    return reward_parts_of(ReadableSpan("root", attributes={**attributes, "rollout.reward_parts": text}))


class TestRewardParts:
    """`reward_parts`."""

    def test_total_and_parts(self) -> None:
        """The total comes first, then numbers, booleans, texts, and values with an explanation."""
        given = {
            "format": 0.25,
            "turns": 3,
            "correct": True,
            "verdict": "good",
            "judge": {"value": 0.5, "explanation": "half right"},
        }
        assert parts_of(given, **{"rollout.reward": 1.0}) == (
            RewardPart("reward", 1.0),
            RewardPart("format", 0.25),
            RewardPart("turns", 3.0),
            RewardPart("correct", True),
            RewardPart("verdict", "good"),
            RewardPart("judge", 0.5, "half right"),
        )

    def test_parts_without_a_total(self) -> None:
        """Parts may stand alone; one called `reward` is the total then, and not beside a total."""
        assert parts_of({"reward": 0.5}) == (RewardPart("reward", 0.5),)
        assert parts_of({"reward": 0.5}, **{"rollout.reward": 1.0}) == (RewardPart("reward", 1.0),)

    def test_an_integer_beyond_a_float(self) -> None:
        """An integer that no float holds is no reward, and costs no other span its own."""
        span = ReadableSpan("root", attributes={"rollout.reward": 10**400})
        assert reward_parts_of(span) == ()
        assert reward_of(span) is None

    def test_no_reward(self) -> None:
        """A span without a reward has no parts."""
        assert reward_parts_of(ReadableSpan("op")) == ()
        assert reward_parts_of(ReadableSpan("op", attributes={"rollout.step": 1})) == ()

    @pytest.mark.parametrize(
        "value", [None, [1, 2], {}, {"a": 1}, {"value": None}, {"value": [1]}, {"value": {"value": 1}}, ""]
    )
    def test_other_values_are_left_out(self, value: Any) -> None:
        """A part without a scalar value is left to the attribute."""
        assert parts_of({"part": value, "format": 1.0}) == (RewardPart("format", 1.0),)

    @pytest.mark.parametrize("text", ["", "{", "[1]", "1", '"format"', '{"part": NaN}'])
    def test_text_that_is_no_object(self, text: str) -> None:
        """An attribute that somebody else set in another form has no parts, and nothing raises."""
        assert parts_of(text) == ()

    @pytest.mark.parametrize("reward", [True, "1", float("nan"), float("inf")])
    def test_total_is_a_finite_number(self, reward: Any) -> None:
        """Booleans, texts and floats that are not finite are no totals."""
        assert parts_of({"format": 1.0}, **{"rollout.reward": reward}) == (RewardPart("format", 1.0),)

    def test_bounds(self) -> None:
        """Names, texts and the number of parts are bounded, and a name is not empty."""
        many = parts_of({"": 1.0, "  ": 1.0, **{f"part {number}": 1.0 for number in range(500)}})
        assert len(many) == 64
        [part] = parts_of({"n" * 5000: {"value": "v" * 5000, "explanation": "e" * 5000}})
        assert (len(part.name), len(str(part.value)), len(part.explanation)) == (200, 1000, 1000)
