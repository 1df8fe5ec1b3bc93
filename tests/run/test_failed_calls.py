"""The search for calls of a tool, and for those that failed."""

from __future__ import annotations

import pytest

from otel_rollout.catalog import Run
from tests.view.made_run import STEPS, write_made_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run whose tool fails for prompt 4."""
    path = tmp_path_factory.mktemp("run") / "traces"
    write_made_run(path)
    return Run([path])


class TestCalls:
    """`within` tool and failed."""

    def test_a_failed_call_stands_with_its_arguments_and_its_error(self, run):
        """Only trajectories in which the tool failed are found; the match is the tool's name."""
        hits = list(run.search("Calc", "failed", step=2, experiment="first"))
        assert {hit.tags["sample_index"] for hit in hits} == {4}
        first = min(hits, key=lambda hit: str(hit.tags["rollout_n"])).match
        assert first.excerpt == 'calculate {"expression":"4 * 10 + 0"} → division by zero'
        assert first.excerpt[first.start : first.end] == "calc"

    def test_a_call_stands_with_its_arguments(self, run):
        """All calls of the tool are found, whatever they came to."""
        hits = list(run.search("calculate", "tool", experiment="first", validate=False))
        assert len(hits) == STEPS * 24
        shown = {hit.match.excerpt for hit in hits if hit.tags["sample_index"] == 0}
        assert 'calculate {"expression":"0 * 10 + 3"}' in shown
