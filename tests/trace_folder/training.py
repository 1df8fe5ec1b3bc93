"""What the processes of trainings record, at times of their own."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource

from otel_rollout import semconv
from otel_rollout.folder.folder_writer import FolderWriter
from tests.trace_folder import recordings

ROLLOUTS = 4
"""The rollouts of each step, two of each of two prompts."""
A_DAY = 86_400 * recordings.SECOND


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
    names = {semconv.SERVICE_NAME: "p", semconv.PROJECT_NAME: "p", **({semconv.RUN_ID: run_id} if run_id else {})}
    own = uuid.uuid5(uuid.NAMESPACE_URL, f"{folder} {run_id} {day} {experiment} {samples}").int
    own_id, start = recordings.trace_id_of, recordings.START
    writer = FolderWriter(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordings, "RESOURCE", Resource(names))
        patch.setattr(recordings, "trace_id_of", lambda *tags, **more: own_id(*tags, **more) ^ own)
        for validate, passes in ((False, steps), (True, validations)):
            for step in passes:
                patch.setattr(recordings, "START", start + day * A_DAY + step * recordings.SECOND)
                for sample in samples:
                    for rollout in range(2):
                        tags = {"experiment": experiment, "reward": reward, "validate": validate}
                        writer.write(recordings.make_trajectory(step, sample, rollout, **tags))
    writer.close()
