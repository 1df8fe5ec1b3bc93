"""How a run is judged: by the answer of `otel-rollout diagnose` and the truth."""

from __future__ import annotations

import importlib
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.runs.kind import HEALTHY, UNHEALTHY, Key, Truth
from tests.runs.recorded_run import write_run

CHECKS_OF: dict[str, tuple[str, ...]] = {
    "answers are duplicates": ("duplicates",),
    "answers grow for nothing": ("length_without_reward",),
    "calls are repeated": ("repeated_calls",),
    "engine is slow": ("slow_engine",),
    "failures of others": ("failures", "punished_failures"),
    "groups without signal": ("groups_without_signal",),
    "prompts are forgotten": ("forgotten_prompts",),
    "reward falls": ("reward_falls",),
    "reward is exploited": ("reward_exploited", "reward_part_traded"),
    "reward is missing": ("missing_rewards",),
    "reward is no number": ("invalid_rewards",),
    "reward is noisy": ("noisy_rewards",),
    "rollouts are missing": ("incomplete_groups",),
    "steps are slow": ("slow_steps",),
    "stragglers": ("stragglers",),
    "tool results fail": ("tool_errors", "tool_results"),
    "truncated": ("truncated",),
    "weights are old": ("stale_weights",),
}
"""The checks that name each problem."""
FIRST = 3
"""A check counts among this many first findings."""
OVERLAP = 0.8
"""The share of a finding's evidence that must have the problem."""


class Answer(NamedTuple):
    """The answer of `diagnose` for one run.

    Args:
        kind: The kind's name.
        seed: The seed.
        is_hit: True if it names the problem; of a healthy run, if it has no finding.
        words: What it named, in short.
        severities: The severities of its findings.
    """

    kind: str
    seed: int
    is_hit: bool
    words: str
    severities: tuple[str, ...]


def answer_of(asked: tuple[tuple[str, ...], str, int]) -> Answer:
    """Make a run, diagnose it by the command, and judge the answer."""
    modules, kind, seed = asked
    for module in modules:
        importlib.import_module(module)
    made = {**UNHEALTHY, **HEALTHY}[kind](random.Random(f"{kind} {seed}"))
    with tempfile.TemporaryDirectory(prefix="otel-rollout-run-") as folder:
        write_run(made.run, Path(folder))
        command = [sys.executable, "-m", "otel_rollout.cli", "diagnose", folder, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        return Answer(kind, seed, False, done.stderr.strip()[-200:], ())
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    severities = tuple(finding["severity"] for finding in findings)
    if made.truth is None:
        return Answer(kind, seed, not findings, ", ".join(sorted({f["check"] for f in findings})) or "none", severities)
    wrong = list(faults(made.truth, findings))
    return Answer(kind, seed, not wrong, "; ".join(wrong) or "named", severities)


def faults(truth: Truth, findings: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what keeps the findings from naming the problem."""
    checks = CHECKS_OF[truth.problem]
    found = [finding for finding in findings[:FIRST] if finding["check"] in checks]
    if not found:
        yield f"not named, but {', '.join(finding['check'] for finding in findings[:FIRST]) or 'nothing'}"
        return
    finding = found[0]
    if truth.onset is not None and abs(onset_of(finding) - truth.onset) > 1:
        yield f"onset {onset_of(finding)} for {truth.onset}"
    evidence: list[Key] = [(e["step"], e["sample_index"], e["rollout_n"]) for e in finding["evidence"]]
    hit = sum(key in truth.affected for key in evidence)
    if not evidence or hit / len(evidence) < OVERLAP:
        yield f"evidence {hit} of {len(evidence)}"


def onset_of(finding: dict[str, Any]) -> int:
    """Return the step in which a finding begins."""
    onset = finding.get("onset")
    return int(onset if onset is not None else min(finding["steps"]))
