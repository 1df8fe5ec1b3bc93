"""`python -m benchmarks.top`: the time of `otel-rollout top`, beside that of `otel-rollout --version`.

The folder tells of 64 workers with 64 running trajectories each, in a step of which 8,192 have ended.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from otel_rollout.folder import OpDurations, RunningFile, seal_of
from otel_rollout.folder.layout import INDEX, bundle_folder
from otel_rollout.record import OpenTrajectory
from otel_rollout.record.open_trajectories import OpenOp

WORKERS, TRAJECTORIES, ENDED, STEP = 64, 64, 8192, 7
_LINE = b'{"trace_id":"%032x","step":%d,"experiment_name":"exp","facts":{"prompt":"%b"}' % (1, STEP, b"x" * 700)
INDEX_LINE = _LINE + seal_of(_LINE)
ROUNDS = 11


def fill(folder: Path) -> None:
    """Write what the workers would have written."""
    now = time.time_ns()
    for worker in range(WORKERS):
        open_ones = [
            OpenTrajectory(
                f"{worker * TRAJECTORIES + number:032x}",
                "agent_loop",
                {"rollout.step": STEP, "rollout.sample_index": worker, "rollout.rollout_n": number},
                now - (10 + number) * 10**9,
                OpenOp("sandbox.run", "TOOL", now - 9 * 10**9),
                1,
            )
            for number in range(TRAJECTORIES)
        ]
        RunningFile(folder, f"node-{worker + 1}-{worker:04x}").write(open_ones, OpDurations())
        index = folder / bundle_folder(STEP, validate=False) / f"node-{worker + 1}-{worker:04x}{INDEX}"
        index.parent.mkdir(exist_ok=True)
        index.write_bytes(INDEX_LINE * (ENDED // WORKERS))


def seconds(*arguments: str) -> float:
    """Return how long the command takes, in the median."""
    command = [str(Path(sys.executable).with_name("otel-rollout")), *arguments]
    taken = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    """Measure, and print a line."""
    with tempfile.TemporaryDirectory() as name:
        fill(Path(name))
        version, top = seconds("--version"), seconds("top", name)
    print(
        f"otel-rollout --version {version:.3f} s; otel-rollout top {top:.3f} s, {top - version:.3f} s more "
        f"({WORKERS * TRAJECTORIES:,} running trajectories of {WORKERS} workers; medians of {ROUNDS})"
    )


if __name__ == "__main__":
    main()
