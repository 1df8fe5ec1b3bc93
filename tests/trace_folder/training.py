"""What the processes of trainings record, at times of their own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.trace_folder.recordings import make_trajectory, write_folder

ROLLOUTS = 4
"""The rollouts of each step, two of each of two prompts."""
A_DAY = 86_400


def train(
    folder: Path,
    run_id: str | None,
    steps: Iterable[int],
    day: int,
    *,
    experiment: str = "base",
    validations: Iterable[int] = (),
    samples: Iterable[int | None] = (0, 1),
    reward: float = 0.0,
) -> None:
    """Write what one process records on a day."""
    own = f"{folder} {run_id} {day} {experiment} {samples}"
    told: dict[str, Any] = {"experiment": experiment, "reward": reward, "run_id": run_id, "of": own}
    passes = [(step, False) for step in steps] + [(step, True) for step in validations]
    write_folder(
        folder,
        *(
            make_trajectory(step, sample, rollout, validate=validate, start=day * A_DAY + step, **told)
            for step, validate in passes
            for sample in samples
            for rollout in range(2)
        ),
    )
