"""The reward is verifiable, and the advantages are those of GRPO."""

import asyncio

import pytest

from otel_rollout.demo.report import advantages
from otel_rollout.demo.rollout import Verifier


class TestVerifier:
    """The reward of an answer."""

    @pytest.mark.parametrize(
        ("answer", "reward"),
        [("47", 1.0), ("47.0", 1.0), ("46", 0.0), (None, 0.0), ("4.7.1", 0.0), ("", 0.0)],
    )
    def test_rewards_the_right_number_only(self, answer: str | None, reward: float):
        """However it is written, the right number earns 1 and everything else 0."""
        assert asyncio.run(Verifier().score(answer, 47)) == reward


class TestAdvantages:
    """Rewards measured against their group."""

    def test_are_measured_against_the_group(self):
        """The one that did better than its group stands above zero, the others below, and their sum is zero."""
        better, *others = advantages([1.0, 0.0, 0.0, 0.0])
        assert better == pytest.approx(1.732, abs=1e-3)
        assert others == [pytest.approx(-0.577, abs=1e-3)] * 3

    def test_are_zero_where_all_did_the_same(self):
        """A group that agrees teaches nothing."""
        assert advantages([1.0, 1.0]) == [0.0, 0.0]
