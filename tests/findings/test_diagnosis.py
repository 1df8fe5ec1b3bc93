"""A diagnosis: steps joined, thresholds, comparison, evidence, hostile names."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from otel_rollout.catalog import StepSummary
from otel_rollout.facts import ToolCounts
from otel_rollout.look.findings import CHECKS, evidence_of
from tests.findings.faulty_steps import FAULTS
from tests.findings.made_up_steps import diagnosed, make_steps, make_trajectory, summarise

OVER_STEPS = [check.name for check in CHECKS if check.over_steps is not None]


def truncated(share: int):
    """Return the change that truncates this many rollouts of each group."""
    return lambda _s, _g, rollout: {"status": "truncated"} if rollout < share else {}


class TestSteps:
    """Several steps."""

    def test_are_one_finding(self):
        """A fault of several steps is one finding with their sum, the highest value, and evidence of the worst step."""
        steps = make_steps(lambda step, _g, rollout: {"status": "truncated"} if rollout < step - 1 else {}, 3)
        (finding,) = diagnosed(steps).findings
        assert (finding.steps, finding.number, finding.total, finding.value) == ((2, 3), 24, 64, 0.5)
        assert {each.step for each in finding.evidence} == {3}
        assert ": in step 3, " in finding.meaning
        assert (finding.measured, finding.compares_steps) == ("up to 50%, threshold 15%", False)

    def test_runs_are_apart(self):
        """Two experiments have a finding each, and checks over steps don't mix them."""
        one = make_steps(truncated(2))
        (other,) = make_steps(truncated(2))
        mixed = [*one, [replace(each, experiment_name="other", trace_id="f" + each.trace_id[1:]) for each in other]]
        contents = {found[0].experiment_name: found for found in mixed}
        from otel_rollout.look.findings import diagnose

        found = diagnose(list(map(summarise, mixed)), lambda step: contents[step.experiment_name]).findings
        assert [(each.experiment_name, each.number) for each in found] == [("exp", 16), ("other", 16)]

    def test_only_steps_with_evidence_are_loaded(self):
        """Healthy steps are judged by their summaries alone."""
        from otel_rollout.look.findings import diagnose

        steps = make_steps(lambda step, _g, _r: {"status": "truncated"} if step == 5 else {}, 9)
        loaded: list[int | None] = []

        def load(step: StepSummary):
            loaded.append(step.step)
            return steps[(step.step or 0) - 1]

        diagnose(list(map(summarise, steps)), load)
        assert loaded == [5]

    def test_a_step_that_is_removed_meanwhile_has_no_evidence(self):
        """The oldest steps of a folder with a bound: what their summaries tell is found all the same."""
        from otel_rollout.look.findings import diagnose

        for name, (change, steps, _) in FAULTS.items():
            made = list(map(summarise, make_steps(change, steps)))
            (finding,) = (each for each in diagnose(made, lambda _: []).findings if each.check == name)
            assert finding.evidence == ()

    def test_the_same_run_has_the_same_findings(self):
        """Findings depend on nothing but the summaries, in whatever order steps come."""
        steps = make_steps(lambda step, _g, rollout: {"status": "truncated"} if rollout < step - 1 else {}, 4)
        assert diagnosed(steps) == diagnosed(steps[::-1])


class TestOverSteps:
    """Checks that compare steps."""

    @pytest.mark.parametrize("check", OVER_STEPS)
    def test_a_step_that_has_begun_hides_nothing(self, check):
        """A last step of a few trajectories is not compared, and the evidence is of the last one that is."""
        change, steps, _ = FAULTS[check]
        made = make_steps(change, steps)
        whole, begun = diagnosed(made), diagnosed([*made, make_steps(steps=steps + 1)[-1][:4]])
        (before,), (after,) = ([each for each in found.findings if each.check == check] for found in (whole, begun))
        assert (after.number, after.total, after.steps, after.value) == (
            before.number,
            before.total,
            (1, steps),
            before.value,
        )
        assert after.evidence == before.evidence != ()

    def test_steps_without_the_amount_are_not_its_evidence(self):
        """Groups of one rollout can't be compared: a step of them is none that rollouts repeat in."""
        change, steps, _ = FAULTS["mode_collapse"]
        made = make_steps(change, steps)
        alone = [make_trajectory(steps + 1, group) for group in range(32)]
        (found,) = [each for each in diagnosed([*made, alone]).findings if each.check == "mode_collapse"]
        assert (found.steps, found.number, found.total) == ((1, steps), 24, 32)
        assert found.evidence

    def test_few_trajectories_at_the_end_are_too_few(self):
        """The trajectories of the last third count, not those of a step that isn't compared."""
        change, steps, _ = FAULTS["mode_collapse"]
        diagnosis = diagnosed([each[:8] for each in make_steps(change, steps)])
        assert [(each.check, each.total) for each in diagnosis.too_few if each.check == "mode_collapse"] == [
            ("mode_collapse", 8)
        ]


class TestThresholds:
    """Thresholds."""

    def test_can_be_set(self):
        """A value at the threshold is none above it."""
        steps = make_steps(truncated(2))
        assert [each.check for each in diagnosed(steps).findings] == ["truncated"]
        assert diagnosed(steps, thresholds={"truncated": 0.5}).findings == ()
        (finding,) = diagnosed(steps, thresholds={"truncated": 0.2}).findings
        assert (finding.threshold, finding.measured) == (0.2, "50%, threshold 20%")

    def test_all_are_told(self):
        """The diagnosis has the thresholds that it was made with."""
        assert diagnosed(make_steps(), thresholds={"truncated": 0.2}).thresholds["truncated"] == 0.2


class TestTooFew:
    """Steps that are too small for a finding."""

    def test_a_share_that_may_be_chance_is_told(self):
        """A quarter of 32 is above 15 percent, and not surely; the line has the number that would be sure."""
        diagnosis = diagnosed(make_steps(truncated(1)))
        assert diagnosis.findings == ()
        (found,) = diagnosis.too_few
        assert (found.title, found.measured, found.total, found.least) == ("truncated", "25%", 32, 35)

    def test_small_steps_of_one_run_are_enough_together(self):
        """What no step can tell the run tells, and all of its steps above the threshold have it."""
        (finding,) = diagnosed([each[:12] for each in make_steps(truncated(1), 6)]).findings
        assert (finding.check, finding.steps) == ("truncated", (1, 2, 3, 4, 5, 6))
        assert (finding.number, finding.total) == (18, 72)

    def test_a_rise_that_may_be_chance_is_told(self):
        """Tokens of prompts that differ as much as the steps do tell nothing of a growth."""
        lengths = (10, 10, 10, 10, 10, 10, 10, 900)
        steps = make_steps(lambda step, group, _r: {"output_tokens": lengths[group] * (1 + (step > 3))}, 4)
        diagnosis = diagnosed(steps)
        assert diagnosis.findings == ()
        assert [each.check for each in diagnosis.too_few] == ["length_without_reward"]

    def test_healthy_or_large_steps_have_none(self):
        """Neither a small step without a fault nor a finding is told again."""
        assert diagnosed([make_steps()[0][:12]]).too_few == ()
        large, small = make_steps(truncated(4), 2)
        assert diagnosed([large, small[:12]]).too_few == ()


class TestComparison:
    """A run beside another."""

    def test_has_no_value_that_the_other_steps_cannot_tell(self):
        """One step has no change over steps, and one without validation says nothing of it."""
        change, steps, _ = FAULTS["mode_collapse"]
        before = list(map(summarise, make_steps()))
        found = {each.check: each for each in diagnosed(make_steps(change, steps), against=before).findings}
        assert (found["mode_collapse"].before, found["duplicates"].before) == (None, 0.0)
        validation = make_steps(lambda *place: {**truncated(2)(*place), "validate": True})
        (finding,) = diagnosed(validation, against=before).findings
        assert (finding.before, finding.measured) == (None, "50%, threshold 15%")

    def test_what_these_steps_cannot_tell_is_not_gone(self):
        """A run that is too short for a check over steps, or has no validation, mends neither."""
        change, steps, _ = FAULTS["mode_collapse"]
        validation = make_steps(lambda *place: {**truncated(2)(*place), "validate": True})
        before = list(map(summarise, [*make_steps(change, steps), *validation]))
        assert [each.check for each in diagnosed(make_steps(steps=2), against=before).gone] == [
            "noisy_rewards",
            "duplicates",
        ]
        assert [each.check for each in diagnosed(make_steps(steps=4), against=before).gone] == [
            "noisy_rewards",
            "duplicates",
            "mode_collapse",
        ]


class TestFailures:
    """The classes of failures."""

    def test_are_counted_with_the_share_of_unknown(self):
        """The share of unknown is that of all failures."""
        unknown = {"status": "error", "error_type": "KeyError", "reward": None}
        diagnosis = diagnosed(make_steps(lambda _s, group, r: unknown if (group, r) == (0, 0) else {}))
        assert diagnosis.failures == {"model": 15, "unknown": 1}
        assert diagnosis.unknown_share == 1 / 16


class TestEvidence:
    """Evidence."""

    def test_has_a_command_and_an_address(self):
        """The command shows the trajectory, the address is the viewer's."""
        evidence = evidence_of(make_trajectory(7, 3, 2, validate=True), folder="my traces", run_id=None)
        assert evidence.command == f"otel-rollout show 'my traces' --trace {evidence.trace_id}"
        assert evidence.address == "#/step/7/sample/3/rollout/2?validate=1&experiment=exp"

    def test_without_a_prompt_is_addressed_by_its_id(self):
        """A trajectory that has no place in a group has an address all the same."""
        evidence = evidence_of(make_trajectory(sample_index=None), folder=None, run_id=None)
        assert evidence.address == f"#/trajectory/{evidence.trace_id}"

    def test_hostile_tags_stay_inside_the_address(self):
        """A prompt's name with slashes, quotes and marks is one part of the path."""
        evil = "../a?b&c#d'\"<script>\u202e"
        evidence = evidence_of(make_trajectory(sample_index=evil, experiment_name=evil), folder="a;b", run_id=evil)
        path, _, query = evidence.address.partition("?")
        assert path.count("/") == 6
        assert query.count("&") == 1
        assert not set("<>'\"\u202e ") & set(evidence.address)
        assert evidence.command.startswith("otel-rollout show 'a;b' --trace ")


class TestHostileNames:
    """Names that a model wrote."""

    def test_any_text_can_be_a_tools_name(self):
        """A finding with it is JSON."""
        evil = "</script>\x1b[31m\u202e" + "x" * 10_000
        (finding,) = diagnosed(make_steps(lambda *_: {"tools": {evil: ToolCounts(5, 5)}})).findings
        assert orjson.loads(orjson.dumps(finding))["subject"] == evil
        assert len(finding.meaning) + len(finding.title) < 300
