"""Advantage, fate and measures of trajectories, beside the tensors that verl's trainers have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integrations.verl.conftest import PROGRAMS, Run, RunProgram, traced

pytestmark = pytest.mark.integration

FACTS = ("advantage", "fate", "log_prob_gap", "log_prob_gap_max", "entropy", "importance_weight")


def told(run: Run) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The attributes of each trajectory's root, and the facts of training below it: one annotation each, or none."""
    found = []
    for root, *others in run.traces():
        late = [span["attributes"] for span in others if span["name"] == "annotate"]
        assert len(late) <= 1
        facts = late[0] if late else {}
        found.append((root["attributes"], {key.removeprefix("rollout."): value for key, value in facts.items()}))
    return found


def same(found: dict[str, Any], given: dict[str, Any]) -> bool:
    """Return True if the facts are those that a program has read from the tensors."""
    return found["fate"] == given["fate"] and all(
        found[name] == pytest.approx(given[name], rel=1e-5) for name in FACTS if name != "fate"
    )


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
                number for number, (uid, row) in enumerate(given) if uid == root["rollout.uid"] and same(facts, row)
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


class TestV1Trainer:
    """The v1 trainer, on its replay buffer and TransferQueue in Ray actors."""

    def test_each_trajectory_has_one_fate(self, run_program: RunProgram) -> None:
        """Trained, stale, filtered, failed and surplus ones have reasons; the others never reached the buffer."""
        run = run_program("run_training.py", overrides=traced(), seconds=1200)
        prompts = json.loads((run.folder / "prompts").read_text())
        given = json.loads((run.folder / "facts").read_text())
        fates: dict[str, set[tuple[str, str | None]]] = {}
        missing = []
        for root, facts in told(run):
            row = f"{root['rollout.uid']}_{root['rollout.rollout_n']}_0"
            if not facts:
                missing.append((root["rollout.status"], row in prompts))
                continue
            fates.setdefault(prompts[row], set()).add((facts["fate"], facts.get("fate_reason")))
            assert ("advantage" in facts) is (row in given) is (facts["fate"] == "trained")
            if row in given:
                assert same(facts, given[row])
        # The grader failed for one of the rollouts of c: it never reached the buffer, and its sibling was thrown away.
        assert missing == [("error", False)]
        assert len(given) == 4
        assert fates.pop("vary old") == {("stale", "5 versions of the weights, 2 allowed")}
        assert fates.pop("hopeless b") == {("filtered", "reward is 0.25 in the whole group")}
        assert fates.pop("brief c") == {("failed", "a rollout of the group failed")}
        # Of three groups that can be trained, two are; verl takes any of those that are equally old.
        trained, surplus = {("trained", None)}, {("surplus", "more groups than the batch takes")}
        assert fates.keys() == {"vary a", "vary d", "vary e"}
        assert sorted(map(sorted, fates.values())) == [sorted(surplus), sorted(trained), sorted(trained)]
        # Rows that only fill the batch up are no trajectories.
        assert "lost" not in run.output
