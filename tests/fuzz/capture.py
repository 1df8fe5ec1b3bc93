"""Fuzz what captures values: `python -m tests.fuzz.capture --seconds 120 --seed 1`.

Starts one process after the other, each with a scenario and a seed of its own (see child.py), so that a crash is seen
as an exit by a signal. Exits with 1 if one crashed, hung or found something; says what, and how to repeat it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["Finding", "fuzz", "outcome"]

ROOT = Path(__file__).resolve().parent.parent.parent
SCENARIOS = ("values", "races", "signals", "abandoned")
LONGEST_CHILD, SHORTEST_CHILD = 15.0, 3.0
"""Seconds of one process: a new one starts with fresh caches, and after a crash."""
SECONDS_TO_END = 120.0
"""Beyond its time, for imports and delivery; then it counts as hanging."""
MAX_SHOWN = 500


@dataclasses.dataclass
class Finding:
    """Something that went wrong.

    Args:
        kind: What it was.
        count: How often.
        detail: The first example.
        command: What repeats it.
    """

    kind: str
    count: int
    detail: str
    command: str


def fuzz(seconds: float, seed: int, scenarios: Sequence[str] = SCENARIOS) -> tuple[list[Finding], int]:
    """Run the scenarios in turn until the time is up.

    Args:
        seconds: How long, about; each scenario runs at least once.
        seed: Of the first process of each scenario; the next has the next number.
        scenarios: Which ones.

    Returns:
        What was found, each kind once, and how many spans were looked at.
    """
    share = min(max(seconds / len(scenarios), SHORTEST_CHILD), LONGEST_CHILD)
    rounds = max(1, round(seconds / (share * len(scenarios))))
    found: dict[str, Finding] = {}
    spans = 0
    for number in range(seed, seed + rounds):
        for scenario in scenarios:
            findings, seen = run_child(scenario, share, number)
            spans += seen
            for finding in findings:
                known = found.setdefault(finding.kind, finding)
                known.count += finding.count if known is not finding else 0
    return list(found.values()), spans


def run_child(scenario: str, seconds: float, seed: int) -> tuple[list[Finding], int]:
    """Run one process, and return what it found and how many spans it looked at."""
    arguments = ["-m", "tests.fuzz.child", scenario, "--seconds", f"{seconds:g}", "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        note, errors = Path(folder) / "note", Path(folder) / "errors"
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, *arguments, "--note", str(note)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )
            try:
                output, _ = process.communicate(timeout=seconds + SECONDS_TO_END)
            except subprocess.TimeoutExpired:
                # faulthandler writes where every thread is.
                process.send_signal(signal.SIGABRT)
                output, _ = process.communicate(timeout=SECONDS_TO_END)
        last = note.read_text(errors="replace").strip() if note.exists() else ""
        said = errors.read_text(errors="replace")
    command = f"python {' '.join(arguments)}"
    return outcome(scenario, process.returncode, output, said, last, command)


def outcome(scenario: str, code: int, output: str, errors: str, last: str, command: str) -> tuple[list[Finding], int]:
    """Return what the end of a process means.

    Args:
        scenario: What it ran.
        code: Its exit code; below zero, the signal that ended it.
        output: One JSON object in a line.
        errors: What it wrote to stderr.
        last: What it did last.
        command: What repeats it.

    Returns:
        What was found, and how many spans it looked at.
    """
    records = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    spans = sum(record.get("spans", 0) for record in records)
    found = [
        Finding(f"{scenario}: {record['kind']}", record["count"], record["detail"], command)
        for record in records
        if "kind" in record
    ]
    if code < 0:
        name = signal.Signals(-code).name
        current = re.search(r"^Current thread .*\n  File \"(.*)\", line (\d+) in (\S+)", errors, re.MULTILINE)
        place = f" in {Path(current[1]).name}:{current[2]} {current[3]}" if current else ""
        found.append(Finding(f"{scenario}: exit by {name}{place}", 1, last or errors[-MAX_SHOWN:], command))
    elif code != (1 if found else 0) or (code == 0 and not spans):
        found.append(Finding(f"{scenario}: exit {code}, {spans} spans", 1, errors[-MAX_SHOWN:], command))
    return found, spans


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=None, help="default: the clock's")
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=SCENARIOS)
    chosen = parser.parse_args()
    seed = int(time.time()) if chosen.seed is None else chosen.seed
    print(f"fuzzing capture: Python {platform.python_version()}, {chosen.seconds:g} s, seed {seed}", flush=True)
    found, spans = fuzz(chosen.seconds, seed, chosen.scenario)
    for finding in sorted(found, key=lambda each: each.kind):
        print(f"{finding.count:6}  {finding.kind}\n        {finding.detail}\n        {finding.command}")
    print(f"{spans:,} spans, {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
