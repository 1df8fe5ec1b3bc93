"""Everything that a run answers, from the catalog that is kept and from a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from otel_rollout.catalog import Run
from otel_rollout.facts.table import shown_of
from tests.run.asked import groups_of, summaries_of


def answers(*folders: Path) -> dict[str, Any]:
    """Return the steps, groups and trajectories of folders, their spans, and what can't be read."""
    problems: list[Any] = []
    run = Run(folders, problems.append)
    steps = run.steps()
    keys = dict.fromkeys((step.step, step.validate) for step in steps)
    summaries = [each for key in keys for each in summaries_of(run, *key)]
    return {
        "steps": steps,
        "groups": [groups_of(run, *key) for key in keys],
        "summaries": [shown_of(each) for each in summaries],
        "spans": [[span.name for span in run.trajectory(each.trace_id).spans] for each in summaries],
        "problems": sorted((each.what, str(each.path), each.offset) for each in problems),
    }


@contextmanager
def no_catalog() -> Iterator[Path]:
    """Give the block a cache folder of its own, which is empty."""
    with TemporaryDirectory() as cache, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", cache)
        yield Path(cache)


def assert_right(*folders: Path) -> dict[str, Any]:
    """Check that the catalog that is kept has the same answers as a new one, and return them."""
    with no_catalog():
        expected = answers(*folders)
    assert answers(*folders) == expected
    return expected
