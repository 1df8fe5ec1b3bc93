"""Rewards that the trainer computes when the rollout is over, as with a colocated reward model."""

from __future__ import annotations

import json

import pytest

from tests.integrations.verl.conftest import Run, RunProgram, traced

pytestmark = pytest.mark.integration

STEP = {"prompts": ["plan a", "broken bb", "plan ccc"], "n": 2}
COLUMN = "otel_rollout_carrier"


@pytest.fixture(scope="module")
def late(run_program: RunProgram) -> Run:
    """A traced step with late rewards."""
    return run_program("run_late_reward.py", overrides=traced(), **STEP)


class TestLateReward:
    """Where a reward stands that comes when the trajectory has ended."""

    def test_reward_stands_in_its_trajectory(self, late: Run) -> None:
        """Each trajectory has its own reward under its root, though the trainer has put the rows in another order."""
        assert len(late.roots()) == 6
        rewards: dict[str, list[float]] = {}
        for trace in late.traces():
            root = trace[0]
            scores = [span for span in trace if span["name"] == "RewardLoopWorker.compute_score"]
            assert {span["parent_id"] for span in scores} == {root["span_id"]}
            assert "rollout.reward" not in root["attributes"]
            for score in scores:
                assert score["start_time"] > root["end_time"]
                assert score["attributes"]["rollout.sample_index"] == root["attributes"]["rollout.sample_index"]
                [judge] = [span for span in trace if span["parent_id"] == score["span_id"]]
                prompt = root["attributes"]["input.value"]["messages"][0]["content"]
                assert f"The answer to {prompt!r}" in judge["attributes"]["input.value"]["text"]
                assert score["attributes"]["rollout.reward"] == judge["attributes"]["output.value"]
            rewards.setdefault(root["attributes"]["rollout.uid"], []).append(scores[0]["attributes"]["rollout.reward"])
        given: dict[str, list[float]] = {}
        for uid, reward in json.loads((late.folder / "rewards").read_text()):
            given.setdefault(uid, []).append(reward)
        assert rewards == given
        # Four workers share the rows: verl has the first two scored once more, to have eight.
        assert len([span for span in late.spans if span["name"] == "RewardLoopWorker.compute_score"]) == 8

    def test_training_gets_the_same(self, late: Run, run_program: RunProgram) -> None:
        """What goes along with the rows is gone when they are scored, and the batch is that of an untraced run."""
        before, after = json.loads((late.folder / "columns").read_text())
        assert COLUMN in before
        assert COLUMN not in after
        untraced = run_program("run_late_reward.py", **STEP)
        assert COLUMN not in json.loads((untraced.folder / "columns").read_text())[0]
        assert late.digest == untraced.digest
