"""Measure what `otel-rollout diagnose` finds: the precision and recall of each check over seeded faults.

    python -m benchmarks.diagnose              # 20 seeds of each fault and 40 healthy runs, as a Markdown table
    python -m benchmarks.diagnose --seeds 3    # quicker

The demo runs in a time of its own, in which nobody waits: a run takes a fraction of a second, and its spans have the
times of the demo.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from otel_rollout.analysis.findings.diagnosis import Diagnosis
from otel_rollout.analysis.findings.registry import CHECKS
from otel_rollout.demo.faults import Fault
from tests.demo.seeded_runs import SeededRun, run_demo

EXPECTED: Final = {
    Fault.DEAD_GROUPS: {"groups_all_worst"},
    Fault.TRUNCATION: {"truncated"},
    Fault.TOOL_ARGUMENTS: {"tool_errors"},
    Fault.TIMEOUTS: {"failures", "tool_errors"},
    Fault.DUPLICATES: {"duplicates"},
    Fault.MODE_COLLAPSE: {"mode_collapse", "duplicates"},
    Fault.HACKED_PART: {"reward_part_traded"},
    Fault.PREFIX_BREAKS: {"prefix_breaks"},
    Fault.STRAGGLERS: {"stragglers"},
    Fault.STALE_WEIGHTS: {"stale_weights"},
    Fault.LOST_SPANS: {"lost_spans", "rootless"},
}
"""The checks that must fire on each fault."""

ENTAILED: Final = {
    # Groups of one draw are all best or all worst, or all fail.
    Fault.DUPLICATES: {"failures", "groups_all_worst", "groups_all_best"},
    # The policy asks for a broken entry in the same words until its turns end.
    Fault.TOOL_ARGUMENTS: {
        "duplicates",
        "failures",
        "groups_all_worst",
        "punished_failures",
        "repeated_calls",
        "truncated",
    },
    # Short guesses repeat each other, and brevity takes the reward over.
    Fault.HACKED_PART: {"reward_part_dominates", "duplicates", "mode_collapse"},
}
"""The checks that may fire on a fault, as its consequences: neither right nor wrong."""


def fired(diagnosis: Diagnosis) -> set[str]:
    """Return the names of the checks with findings."""
    return {finding.check for finding in diagnosis.findings}


def proves(run: SeededRun, fault: Fault, checks: Iterable[str]) -> tuple[int, int]:
    """Return how much of the evidence of these checks was hit by the fault, and how much there is."""
    hit = {(each.step, each.sample_index, each.rollout_n) for each in run.trajectories if fault in each.hit_by}
    evidence = [
        (each.step, each.sample_index, each.rollout_n)
        for finding in run.diagnosis.findings
        if finding.check in checks
        for each in finding.evidence
    ]
    return sum(each in hit for each in evidence), len(evidence)


def measure(seeds: int) -> str:
    """Run everything, and return the tables."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    proven: dict[Fault, list[int]] = defaultdict(lambda: [0, 0])
    strange: Counter[str] = Counter()
    for seed in range(2 * seeds):
        found = fired(run_demo((), seed).diagnosis)
        wrong.update(found)
        strange.update(f"healthy: {name}" for name in found)
    for fault in Fault:
        for seed in range(seeds):
            run = run_demo((fault,), seed)
            found = fired(run.diagnosis)
            right.update(found & EXPECTED[fault])
            missed.update(EXPECTED[fault] - found)
            others = found - EXPECTED[fault] - ENTAILED.get(fault, set())
            wrong.update(others)
            strange.update(f"{fault.value}: {name}" for name in others)
            strange.update(f"{fault.value}: not {name}" for name in EXPECTED[fault] - found)
            true, all_of = proves(run, fault, EXPECTED[fault])
            proven[fault][0] += true
            proven[fault][1] += all_of
    return "\n".join([*_check_table(right, wrong, missed), "", *_fault_table(proven), "", *_notes(strange)])


def _check_table(right: Counter[str], wrong: Counter[str], missed: Counter[str]) -> Iterable[str]:
    yield "| check | runs with its fault | found | found elsewhere | precision | recall |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for check in CHECKS:
        name = check.name
        total, found = right[name] + missed[name], right[name] + wrong[name]
        precision = f"{right[name] / found:.2f}" if found else "-"
        recall = f"{right[name] / total:.2f}" if total else "-"
        yield f"| `{name}` | {total} | {right[name]} | {wrong[name]} | {precision} | {recall} |"


def _fault_table(proven: dict[Fault, list[int]]) -> Iterable[str]:
    yield "| fault | checks that must find it | evidence that the fault hit |"
    yield "| --- | --- | --- |"
    for fault, (true, total) in proven.items():
        checks = ", ".join(f"`{name}`" for name in sorted(EXPECTED[fault]))
        yield f"| `{fault.value}` | {checks} | {true} of {total} |"


def _notes(strange: Counter[str]) -> Iterable[str]:
    return [f"{note}: {count} runs" for note, count in sorted(strange.items())]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="runs of each fault (default: 20)")
    print(measure(parser.parse_args(arguments).seeds))


if __name__ == "__main__":
    main()
