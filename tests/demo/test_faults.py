"""Seeded faults: whom they hit, what they leave in the traces, and that each is found."""

from __future__ import annotations

from functools import cache

import pytest

from tests.demo.faults import Fault, Faults

TOGETHER = (
    (Fault.DEAD_GROUPS, Fault.PREFIX_BREAKS, Fault.STRAGGLERS, Fault.STALE_WEIGHTS, Fault.LOST_SPANS),
    (Fault.TRUNCATION,),
    (Fault.TIMEOUTS,),
    (Fault.DUPLICATES,),
    (Fault.TOOL_ARGUMENTS,),
)
"""Faults that don't hide each other, found in one step."""
OVER_STEPS = (Fault.MODE_COLLAPSE, Fault.HACKED_PART)


@pytest.fixture(scope="module")
def run_demo():
    pytest.importorskip("tokenizers")
    from tests.demo.seeded_runs import run_demo

    @cache
    def run(*faults, steps=1):
        return run_demo(faults, 1, steps=steps)

    return run


@pytest.fixture(scope="module")
def expected():
    from benchmarks.diagnose import EXPECTED

    return EXPECTED


class TestHitting:
    """The trajectories that a fault hits."""

    def test_are_decided_by_the_seed(self):
        """The same seed hits the same ones, another one others."""
        places = [(step, sample, rollout) for step in (1, 2) for sample in range(16) for rollout in range(8)]
        for fault in Fault:
            hit = [[Faults(frozenset({fault}), seed).hitting(*place) for place in places] for seed in (0, 0, 1)]
            assert hit[0] == hit[1]
        assert hit[0] != hit[2]

    def test_no_fault_hits_nobody(self):
        """A run without faults is as it was."""
        assert Faults().hitting(1, 0, 0) == frozenset()


class TestDiagnosis:
    """What is found in a run with faults."""

    def test_of_a_healthy_run_is_empty(self, run_demo):
        """The demo's own mistakes are below all thresholds."""
        assert run_demo(steps=2).diagnosis.findings == ()

    @pytest.mark.parametrize("faults", TOGETHER, ids=lambda faults: "-".join(each.value for each in faults))
    def test_finds_each_fault(self, run_demo, expected, faults):
        """The checks of each fault fire."""
        run = run_demo(*faults)
        assert {check for fault in faults for check in expected[fault]} <= {
            finding.check for finding in run.diagnosis.findings
        }

    def test_finds_faults_over_steps(self, run_demo, expected):
        """A mode collapse and a hacked reward are seen in how steps differ."""
        run = run_demo(*OVER_STEPS, steps=4)
        assert {"mode_collapse", "reward_part_traded"} <= {finding.check for finding in run.diagnosis.findings}

    def test_tells_timeouts_from_lost_connections(self, run_demo):
        """Both come from the same tool; their exceptions tell them apart."""
        run = run_demo(Fault.TIMEOUTS)
        assert {"environment", "timeout"} <= {
            finding.subject for finding in run.diagnosis.findings if finding.check == "failures"
        }


class TestTruth:
    """The record of what was done."""

    def test_is_with_each_trajectory(self, run_demo):
        """The results name the faults that hit each; validation has none."""
        run = run_demo(*TOGETHER[0])
        hit = {
            (each.sample_index, each.rollout_n)
            for each in run.trajectories
            if Fault.STALE_WEIGHTS in each.hit_by and Fault.LOST_SPANS not in each.hit_by
        }
        stale = {
            (each.sample_index, each.rollout_n)
            for each in run.summaries[1, False]
            if each.staleness is not None and not each.dropped_spans
        }
        assert hit == stale
        assert not any(each.validate for each in run.trajectories)
