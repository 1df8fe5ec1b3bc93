"""Measure what `otel-rollout diagnose` finds: the precision and recall of each check over seeded faults.

    python -m benchmarks.diagnose              # 20 seeds of each fault and of healthy runs, as Markdown tables
    python -m benchmarks.diagnose --seeds 3    # quicker

The demo runs in a time of its own, in which nobody waits: a run takes a fraction of a second, and its spans have the
times of the demo.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

from otel_rollout.look.findings import CHECKS
from tests.demo.faults import Fault
from tests.demo.seeded_runs import run_demo

EXPECTED: Final = {
    Fault.DEAD_GROUPS: {"groups_without_signal"},
    Fault.TRUNCATION: {"truncated"},
    Fault.TOOL_ARGUMENTS: {"repeated_calls", "tool_errors"},
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
    Fault.DUPLICATES: {"failures", "groups_without_signal"},
    # The policy asks for a broken entry in the same words until its turns end.
    Fault.TOOL_ARGUMENTS: {
        "duplicates",
        "failures",
        "groups_without_signal",
        "punished_failures",
        "truncated",
    },
    # Short guesses repeat each other, and brevity takes the reward over.
    Fault.HACKED_PART: {"reward_part_dominates", "duplicates", "mode_collapse"},
}
"""The checks that may fire on a fault, as its consequences: neither right nor wrong."""


class Outcome(NamedTuple):
    """The outcome of one run.

    Args:
        found: The checks with findings.
        proven: The trajectories of the evidence of the fault's checks that the fault hit.
        evidence: All of that evidence.
    """

    found: set[str]
    proven: int
    evidence: int


def run_one(fault: Fault | None, seed: int) -> Outcome:
    """Run the demo with a fault, or healthy."""
    run = run_demo(() if fault is None else (fault,), seed)
    findings = run.diagnosis.findings
    hit = {(each.step, each.sample_index, each.rollout_n) for each in run.trajectories if fault in each.hit_by}
    evidence = [
        (each.step, each.sample_index, each.rollout_n)
        for finding in findings
        if fault is not None and finding.check in EXPECTED[fault]
        for each in finding.evidence
    ]
    return Outcome({finding.check for finding in findings}, sum(each in hit for each in evidence), len(evidence))


def measure(seeds: int) -> str:
    """Run everything, and return the tables."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    proven: dict[Fault, list[int]] = {fault: [0, 0] for fault in Fault}
    notes: Counter[str] = Counter()
    runs = [(fault, seed) for fault in (None, *Fault) for seed in range(seeds)]
    with ProcessPoolExecutor() as pool:
        outcomes = list(pool.map(run_one, *zip(*runs, strict=True)))
    for (fault, _), outcome in zip(runs, outcomes, strict=True):
        expected = EXPECTED[fault] if fault else set()
        others = outcome.found - expected - (ENTAILED.get(fault, set()) if fault else set())
        right.update(outcome.found & expected)
        missed.update(expected - outcome.found)
        wrong.update(others)
        notes.update(f"{fault.value if fault else 'healthy'}: {name}" for name in others)
        notes.update(f"{fault.value}: not {name}" for name in expected - outcome.found if fault)
        if fault:
            proven[fault][0] += outcome.proven
            proven[fault][1] += outcome.evidence
    strange = [f"{note}, {count} of {seeds} runs" for note, count in sorted(notes.items())]
    return "\n".join([*_check_table(right, wrong, missed), "", *_fault_table(proven), "", *strange])


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


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20, metavar="N", help="runs of each fault (default: 20)")
    print(measure(parser.parse_args(arguments).seeds))


if __name__ == "__main__":
    main()
