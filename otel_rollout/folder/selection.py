"""Filters of trajectories, applied to the rows of an index."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import TypedDict

from otel_rollout.folder.index import IndexEntry
from otel_rollout.folder.layout import BUNDLE_STEPS


class Filters(TypedDict, total=False):
    """The filters of `read`, as its keyword arguments."""

    step: int | Container[int | None] | None
    sample_index: int | str | None
    rollout_n: int | str | None
    validate: bool | None
    experiment: str | None
    run: str | None
    status: str | None
    reward: tuple[float | None, float | None] | None


class Selection:
    """The filters of `read`, all of which must match; None matches everything."""

    def __init__(
        self,
        step: int | Container[int | None] | None = None,
        sample_index: int | str | None = None,
        rollout_n: int | str | None = None,
        validate: bool | None = None,
        experiment: str | None = None,
        run: str | None = None,
        status: str | None = None,
        reward: tuple[float | None, float | None] | None = None,
    ) -> None:
        self._steps: Container[int | None] | None = (step,) if isinstance(step, int) else step
        # Other containers may not support None: a range looks for it in all its numbers.
        self._takes_none = isinstance(step, (set, frozenset, list, tuple)) and None in step
        self._validate = validate
        # Only the given filters: a step has thousands of trajectories.
        self._checks: list[Callable[[IndexEntry], bool]] = []
        if sample_index is not None:
            self._checks.append(lambda row: row.sample_index is not None and str(row.sample_index) == str(sample_index))
        if rollout_n is not None:
            self._checks.append(lambda row: row.rollout_n is not None and str(row.rollout_n) == str(rollout_n))
        if validate is not None:
            self._checks.append(lambda row: bool(row.validate) == validate)
        if experiment is not None:
            self._checks.append(lambda row: row.experiment_name == experiment)
        if run is not None:
            self._checks.append(lambda row: row.run_id is not None and row.run_id.startswith(run))
        if status is not None:
            self._checks.append(lambda row: row.status == status)
        if reward is not None:
            low, high = reward
            self._checks.append(lambda row: _is_between(low, row.reward, high))

    def takes_step(self, step: int | None, *, validate: bool) -> bool:
        """Return True if trajectories of a step can match; without a step, `validate` is unknown."""
        if self._steps is not None and (step not in self._steps if step is not None else not self._takes_none):
            return False
        return step is None or self._validate in (None, validate)

    def takes_bundle(self, first: int, *, validate: bool) -> bool:
        """Return True if trajectories of a bundle can match, by its first step."""
        return any(self.takes_step(step, validate=validate) for step in range(first, first + BUNDLE_STEPS))

    def takes(self, row: IndexEntry) -> bool:
        """Return True if a trajectory of a step that `takes_step` matches, by its row of the index."""
        for check in self._checks:  # noqa: SIM110 - all() takes twice as long
            if not check(row):
                return False
        return True


def _is_between(low: float | None, reward: float | None, high: float | None) -> bool:
    return reward is not None and (low is None or low <= reward) and (high is None or reward <= high)
