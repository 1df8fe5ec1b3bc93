"""Advantage and measures of trajectories, beside the tensors that verl's old trainer has."""

from __future__ import annotations

import json

import pytest

from tests.integrations.verl.conftest import PROGRAMS, RunProgram, agree, told, traced

pytestmark = pytest.mark.integration


class TestOldTrainer:
    """The old trainer, which reorders the rows of a batch."""

    def test_facts_are_those_of_the_tensors(self, run_program: RunProgram) -> None:
        """Each row's facts stand in the trajectory that it came from, the one with its reward."""
        reward = f"reward.custom_reward_function.path={PROGRAMS / 'training_reward.py'}"
        prompts = ["vary a", "vary bb", "plan ccc"]
        run = run_program("run_late_reward.py", overrides=traced(reward), prompts=prompts, n=2)
        given = json.loads((run.folder / "facts").read_text())
        groups: dict[str, list[tuple[float, float]]] = {}
        for trace, (root, facts) in zip(run.traces(), told(run), strict=True):
            rows = [
                number for number, (uid, row) in enumerate(given) if uid == root["rollout.uid"] and agree(facts, row)
            ]
            assert "fate_reason" not in facts
            # Both rows of `plan ccc` have the same ids, and so the same facts.
            assert len(rows) == 1 or root["input.value"] == "plan ccc"
            given.pop(rows[0])
            scores = [span["attributes"] for span in trace if span["name"] == "RewardLoopWorker.compute_score"]
            groups.setdefault(root["rollout.uid"], []).append((scores[0]["rollout.reward"], facts["advantage"]))
        assert given == []
        # GRPO's advantages have the order of the rewards.
        assert all(sorted(group) == sorted(group, key=lambda pair: pair[1]) for group in groups.values())
        assert "lost" not in run.output
