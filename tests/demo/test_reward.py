"""The reward is verifiable."""

import asyncio

import pytest

from otel_rollout.demo import Verifier


class TestVerifier:
    """The reward of an answer."""

    @pytest.mark.parametrize(
        ("answer", "reward"),
        [("47", 1.0), ("47.0", 1.0), ("46", 0.0), (None, 0.0), ("4.7.1", 0.0), ("", 0.0)],
    )
    def test_rewards_the_right_number_only(self, answer: str | None, reward: float):
        """However it is written, the right number earns 1 and everything else 0."""
        assert asyncio.run(Verifier().score(answer, 47)) == reward
