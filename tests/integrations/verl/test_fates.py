"""Advantage, fate and measures of trajectories, beside the tensors that verl's v1 trainer has."""

from __future__ import annotations

import json

import pytest

from tests.integrations.verl.conftest import RunProgram, agree, told, traced

pytestmark = pytest.mark.integration


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
                assert agree(facts, given[row])
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
