"""Which trajectories of a folder are asked for."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from otel_rollout.trace_folder.recorded_trajectory import RecordedTrajectory

__all__ = ["Filters", "Selection"]


class Filters(TypedDict, total=False):
    """The filters of `read`, as its keyword arguments."""

    step: int | Container[int] | None
    sample_index: int | str | None
    rollout_n: int | str | None
    validate: bool | None
    experiment: str | None
    status: str | None
    reward: tuple[float | None, float | None] | None


@dataclass(frozen=True)
class Selection:
    """Filters; one that is None lets everything through, all others must agree.

    Args:
        step: One training step, or whatever says which steps are `in` it: a range, a set, a list.
        sample_index: The prompt; compared as text, so that 7 and "7" are the same prompt.
        rollout_n: Which rollout of the prompt; compared as text.
        validate: Validation passes only, or none of them.
        experiment: The experiment's name.
        status: What became of the trajectory.
        reward: The lowest and the highest reward, both included; None for an open end.
    """

    step: int | Container[int] | None = None
    sample_index: int | str | None = None
    rollout_n: int | str | None = None
    validate: bool | None = None
    experiment: str | None = None
    status: str | None = None
    reward: tuple[float | None, float | None] | None = None

    def takes_folder(self, step: int | None, *, validate: bool) -> bool:
        """Say whether a folder of this step can hold what is asked for.

        Args:
            step: The folder's step; None for what has no step.
            validate: Whether it holds validation passes.
        """
        # What has no step can still be a validation pass: nothing but its tags can say so.
        return self._takes_step(step) and (self.validate in (None, validate) or step is None)

    def takes(self, trajectory: RecordedTrajectory) -> bool:
        """Say whether `trajectory` is asked for."""
        return (
            self._takes_step(trajectory.step)
            and _same(self.sample_index, trajectory.sample_index)
            and _same(self.rollout_n, trajectory.rollout_n)
            and self.validate in (None, trajectory.validate)
            and self.experiment in (None, trajectory.experiment_name)
            and self.status in (None, trajectory.status)
            and self._takes_reward(trajectory.reward)
        )

    def _takes_step(self, step: int | None) -> bool:
        if self.step is None:
            return True
        if step is None:
            return False
        return step == self.step if isinstance(self.step, int) else step in self.step

    def _takes_reward(self, reward: float | None) -> bool:
        if self.reward is None:
            return True
        low, high = self.reward
        return reward is not None and (low is None or low <= reward) and (high is None or reward <= high)


def _same(wanted: int | str | None, found: int | str | None) -> bool:
    return wanted is None or (found is not None and str(wanted) == str(found))
