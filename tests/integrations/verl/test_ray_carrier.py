"""A trajectory's context across a real actor call, in a program that uses Ray and not verl."""

from __future__ import annotations

import pytest

from tests.integrations.verl.conftest import RunProgram

pytestmark = pytest.mark.integration


@pytest.mark.slow
class TestCarrierInAnActor:
    """`inject` in the driver, `extract` in an actor."""

    def test_op_of_an_actor_is_a_child(self, run_program: RunProgram) -> None:
        """An actor's spans for a trajectory stand under it, with its tags; its next spans don't."""
        run = run_program("run_carrier.py")
        assert len(run.traces()) == 2
        for number, (root, grade) in enumerate(run.traces()):
            assert (root["name"], grade["name"]) == ("rollout_trace", "grade")
            assert grade["parent_id"] == root["span_id"]
            assert grade["pid"] != root["pid"]
            for span in (root, grade):
                assert span["attributes"]["rollout.sample_index"] == 7
                assert span["attributes"]["rollout.rollout_n"] == number
