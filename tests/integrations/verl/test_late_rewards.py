"""Rewards that the trainer computes when the rollout is over, as with a colocated reward model."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from tests.integrations.verl.conftest import Run, RunProgram, traced

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STEP = {"prompts": ["plan a", "broken bb", "plan ccc"], "n": 2}
COLUMN = "otel_rollout_carrier"


@pytest.fixture(scope="module")
def late(run_program: RunProgram) -> Run:
    """A traced step with late rewards."""
    return run_program("run_late_reward.py", overrides=traced(), **STEP)


class TestLateRewardAsFeedback:
    """Late rewards in backends."""

    def test_reward_is_feedback(self, mlflow_server: Any, weave_server: Any, run_program: RunProgram) -> None:
        """MLflow and Weave have it as feedback of the trajectory, once each, as a reward that came in time."""
        variables = {**weave_server.variables, "MLFLOW_TRACKING_URI": mlflow_server.address}
        overrides = traced("trainer.project_name=team/late-rewards", backend="'json,mlflow,weave'")
        run = run_program("run_late_reward.py", variables=variables, overrides=overrides, **STEP)
        expected = {
            span["parent_id"]: span["attributes"]["rollout.reward"]
            for span in run.spans
            if span["name"] == "RewardLoopWorker.compute_score"
        }
        assert len(expected) == 6
        feedback = weave_server.feedback("team/late-rewards")
        found = [
            (int(each["weave_ref"].rpartition("/")[2], 16), each["payload"]["output"])
            for each in feedback
            if each["feedback_type"] == "wandb.runnable.reward"
        ]
        assert sorted(found) == sorted(expected.items())

        client = MlflowClient(tracking_uri=mlflow_server.address)
        experiment = client.get_experiment_by_name("team/late-rewards")
        traces = client.search_traces(locations=[experiment.experiment_id], filter_string="feedback.reward >= 0")
        rewards = [[one.value for one in trace.info.assessments if one.name == "reward"] for trace in traces]
        assert sorted(rewards) == sorted([reward] for reward in expected.values())


class TestLateReward:
    """Rewards of trajectories that have ended."""

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
                prompt = root["attributes"]["input.value"]
                assert f"The answer to {prompt!r}" in judge["attributes"]["input.value"]["text"]
                assert score["attributes"]["rollout.reward"] == judge["attributes"]["output.value"]
                assert json.loads(score["attributes"]["rollout.reward_parts"])["acc"] is True
            rewards.setdefault(root["attributes"]["rollout.uid"], []).append(scores[0]["attributes"]["rollout.reward"])
        given: dict[str, list[float]] = {}
        for uid, reward in json.loads((late.folder / "rewards").read_text()):
            given.setdefault(uid, []).append(reward)
        assert rewards == given
        # Four workers share the rows: verl has the first two scored once more, to have eight.
        assert len([span for span in late.spans if span["name"] == "RewardLoopWorker.compute_score"]) == 8

    def test_training_gets_the_same(self, late: Run, run_program: RunProgram) -> None:
        """The column of keys is gone after scoring, and the batch is that of an untraced run."""
        before, after = json.loads((late.folder / "columns").read_text())
        assert COLUMN in before
        assert COLUMN not in after
        untraced = run_program("run_late_reward.py", **STEP)
        assert COLUMN not in json.loads((untraced.folder / "columns").read_text())[0]
        assert late.digest == untraced.digest
