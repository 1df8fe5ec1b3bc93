"""Kills the writer of a trace folder at moments by chance: `python -m tests.fuzz.kills --kills 200`.

After each kill every span that had been reported as written is read, through the indexes, from frames and journals;
nothing but a torn end is told. At last the indexes are removed, and the same is read from the frames alone. Exit
status 1 where that does not hold.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from otel_rollout import read_trajectories
from otel_rollout.folder import ReadProblem

PROGRAM = [sys.executable, "-m", "tests.trace_folder.programs.write_until_killed"]
TORN = {"torn frame"}


def kill_one(folder: Path, seconds: float) -> set[str]:
    """Have a process write, kill it so many seconds after its first report, and return the spans that it reported."""
    with subprocess.Popen([*PROGRAM, folder], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        reported = [process.stdout.readline()]
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        reported += process.stdout.read().splitlines(keepends=True)
    return {span.decode() for line in reported if line.endswith(b"\n") for span in line.split()}


def spans_in(folder: Path) -> tuple[set[str], int, Counter[str]]:
    """Return the spans that a folder holds, how many trajectories they are, and what could not be read."""
    problems: Counter[str] = Counter()

    def note(problem: ReadProblem) -> None:
        problems[problem.what] += 1

    trajectories = list(read_trajectories(folder, on_problem=note))
    spans = {f"{span.context.span_id:016x}" for each in trajectories for span in each.spans if span.context}
    return spans, len(trajectories), problems


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.kills", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, help="how many (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="decides when (default: 1)")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    reported: set[str] = set()
    trajectories, missing, torn = 0, 0, Counter[str]()
    with tempfile.TemporaryDirectory(prefix="otel-rollout-kills-") as own:
        for number in range(arguments.kills):
            folder = Path(own, str(number))
            written = kill_one(folder, rng.uniform(0.0, 0.3))
            found, count, problems = spans_in(folder)
            for index in folder.rglob("*.index.jsonl*"):
                index.unlink()
            found_without, _, _ = spans_in(folder)
            reported |= written
            trajectories += count
            missing += len(written - found) + len(written - found_without)
            torn += problems
    sys.stdout.write(
        f"{arguments.kills} kills: {len(reported):,} spans reported as written, {missing} missing; {trajectories:,} "
        f"trajectories read, {dict(torn) or 'nothing'} told\n"
    )
    return 1 if missing or torn.keys() - TORN or not reported else 0


if __name__ == "__main__":
    sys.exit(main())
