"""Each check finds its own fault in made-up steps, says how much of it there is, and proves it."""

from __future__ import annotations

import pytest

from otel_rollout.facts import ToolCounts
from otel_rollout.look.findings import CHECKS
from tests.findings.faulty_steps import FAULTS, HEALTHY
from tests.findings.made_up_steps import diagnosed, make_steps


class TestEachCheck:
    """A check and its fault."""

    def test_has_a_fault_here(self):
        """No check is without a test."""
        assert set(FAULTS) == {check.name for check in CHECKS}

    @pytest.mark.parametrize("name", FAULTS)
    def test_finds_its_fault(self, name):
        """The finding has the right number, whole sentences, and trajectories that have the fault."""
        change, steps, number = FAULTS[name]
        (finding,) = (each for each in diagnosed(make_steps(change, steps)).findings if each.check == name)
        assert finding.number == number
        assert finding.value > finding.threshold
        assert "threshold" in finding.measured
        for text in (finding.meaning, finding.advice):
            assert len(text) > 20
            assert not text.endswith((".", " ", ":"))
        assert 1 <= len(finding.evidence) <= 5
        assert len({each.trace_id for each in finding.evidence}) == len(finding.evidence)
        hit = {
            (step, group, rollout)
            for step in range(1, steps + 1)
            for group in range(8)
            for rollout in range(4)
            if change(step, group, rollout)
        }
        assert all((each.step, each.sample_index, each.rollout_n) in hit for each in finding.evidence)

    def test_turns_that_are_not_recorded_are_no_duplicates(self):
        """The evidence has none of them."""

        def change(_step, _group, rollout):
            return {"turn_hashes": (("same", ""), ("same", ""), ("same",), ("same",))[rollout]}

        found = diagnosed(make_steps(change, 1), thresholds={"duplicates": 0.1}).findings
        (finding,) = (each for each in found if each.check == "duplicates")
        assert finding.number == 8
        assert {each.rollout_n for each in finding.evidence} == {3}


class TestGroups:
    """Groups without signal."""

    def test_a_step_with_one_reward_tells_it(self):
        """Only its reader knows if 0 is the best of 0 and -1."""
        (finding,) = diagnosed(make_steps(lambda *_: {"reward": 0.0})).findings
        assert finding.check == "groups_without_signal"
        assert finding.meaning.endswith(": 0 is the only reward")


class TestHealthyRuns:
    """Runs that are unusual, and have no fault."""

    @pytest.mark.parametrize("name", HEALTHY)
    def test_have_no_finding(self, name):
        """Nothing is found in them."""
        assert [each.meaning for each in diagnosed(HEALTHY[name]()).findings] == []


class TestTruncation:
    """Truncated trajectories."""

    def test_without_a_better_reward_cost_nothing(self):
        """If all rewards are the same, or those of the others are no higher, there is no cost to tell."""

        def with_rewards(of_truncated: float, of_others: float) -> str:
            fields = {"status": "truncated", "reward": of_truncated}
            steps = make_steps(lambda _s, group, r: fields if r < 2 else {"reward": of_others if group else 0.5})
            (finding,) = (each for each in diagnosed(steps).findings if each.check == "truncated")
            return finding.meaning

        assert with_rewards(0.5, 0.5) == "16 of 32 trajectories were cut off"
        assert with_rewards(1.0, 0.0).endswith(
            "0 of 16 have the worst reward; their mean reward is 1 and that of the others 0.0625"
        )

    def test_tells_what_it_costs(self):
        """The sentence compares the rewards of truncated trajectories with those of the others."""
        steps = make_steps(lambda _s, _g, rollout: {"status": "truncated", "reward": 0.0} if rollout < 2 else {})
        (finding,) = (each for each in diagnosed(steps).findings if each.check == "truncated")
        assert finding.meaning == (
            "16 of 32 trajectories were cut off: 16 of 16 have the worst reward; their mean reward is 0 and that of "
            "the others 0.5, which costs the step 0.25 of its mean reward"
        )


class TestTools:
    """Tools by error rate."""

    def test_names_the_tools_with_most_errors_only(self):
        """A model that invents tools makes five findings, not thousands."""
        steps = make_steps(
            lambda _s, _g, _r: {"tools": {f"tool {number}": ToolCounts(10, 5 + number) for number in range(30)}}
        )
        found = [each.subject for each in diagnosed(steps).findings if each.check == "tool_errors"]
        assert found == [f"tool {number}" for number in (29, 28, 27, 26, 25)]


class TestRootless:
    """Trajectories without a root."""

    def test_may_run_in_the_last_step_of_a_live_run(self):
        """In a step that is being written they are no finding; in an earlier one they are."""
        steps = make_steps(lambda _s, group, r: {"has_root": False, "status": None} if not (group or r) else {}, 3)
        from otel_rollout.look.findings import last_steps
        from tests.findings.made_up_steps import summarise

        running = last_steps(list(map(summarise, steps)))
        (finding,) = diagnosed(steps, running=running).findings
        assert (finding.check, finding.steps) == ("rootless", (1, 2))


class TestRewardLevel:
    """The level of the reward over steps."""

    def test_a_fall_on_the_same_prompts_is_one(self):
        """Its first step is its onset, and all steps since are its steps."""
        steps = make_steps(lambda step, _g, rollout: {"reward": float(rollout == 1)} if step > 3 else {}, 6)
        (finding,) = diagnosed(steps).findings
        assert (finding.check, finding.onset, finding.steps) == ("reward_falls", 4, (4, 5, 6))


class TestGroupSizes:
    """Groups with fewer rollouts."""

    def test_of_a_last_step_alone_are_a_stopped_run(self):
        """A run that was stopped leaves such a step; a run that goes on has another one after it."""
        steps = make_steps(lambda step, _g, r: {"sample_index": None} if step == 3 and r > 1 else {}, 3)
        assert "incomplete_groups" not in {each.check for each in diagnosed(steps).findings}


class TestEvidence:
    """The trajectories that prove a finding."""

    def test_are_of_different_prompts(self):
        """If several prompts have the fault, the five are of five."""
        (finding,) = diagnosed(make_steps(lambda *_: {"status": "truncated"})).findings
        assert len({each.sample_index for each in finding.evidence}) == 5
