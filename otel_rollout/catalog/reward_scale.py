"""The scale of a run's rewards, by which a rollout is solved, and a group all best or all worst."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from otel_rollout.facts.amounts import is_same_reward

_LEFT_OUT: Final = 10
"""One step in so many is left out for its extreme reward, and one at least of three: an outlier is no scale."""
_FEW: Final = 3


class Scale(NamedTuple):
    """The worst and the best reward of a run, whatever a single step or outlier has."""

    lowest: float
    highest: float

    @property
    def size(self) -> float:
        """Their distance."""
        return self.highest - self.lowest

    @property
    def middle(self) -> float:
        """The reward in the middle; a solved rollout has more."""
        return self.lowest / 2 + self.highest / 2

    def place(self, reward: float) -> float:
        """Return a reward's place between the worst, 0, and the best, 1."""
        return (reward - self.lowest) / self.size

    def zero_variance(self, rewards: Sequence[float]) -> str | None:
        """Return the end of the scale, or `other`, that rewards are at if all are the same; None if they are not."""
        lowest, highest = min(rewards), max(rewards)
        if not is_same_reward(lowest, highest):
            return None
        if is_same_reward(self.lowest, self.highest):
            return "best" if highest > 0 else "worst"
        if highest > self.highest or is_same_reward(highest, self.highest):
            return "best"
        return "worst" if lowest < self.lowest or is_same_reward(lowest, self.lowest) else "other"

    def is_solved(self, reward: float) -> bool:
        """Return True for a reward in the upper half; for one above 0 if all rewards are the same."""
        if is_same_reward(self.lowest, self.highest):
            return reward > 0
        return reward > self.middle and not is_same_reward(reward, self.middle)


def scale_of(ranges: Iterable[tuple[float | None, float | None]]) -> Scale | None:
    """Return the scale of a run; its ends are the same if all rewards are, and it is None if there are none.

    Args:
        ranges: The lowest and the highest reward of each step; None without rewards.
    """
    known = [(low, high) for low, high in ranges if low is not None and high is not None]
    if not known:
        return None
    lows, highs = sorted(low for low, _ in known), sorted(high for _, high in known)
    out = max(1, len(known) // _LEFT_OUT) if len(known) >= _FEW else 0
    # A single step that fails is no outlier if all others are solved.
    ends = ((lows[out], highs[-1 - out]), (lows[0], highs[-1 - out]), (lows[0], highs[-1]))
    return Scale(*next((each for each in ends if each[0] < each[1]), ends[-1]))
