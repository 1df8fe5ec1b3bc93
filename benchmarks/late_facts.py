"""`python -m benchmarks.late_facts`: how long facts take that come late, and how much memory.

One process records trajectories, then says the reward of each after its end. With MLflow, the facts are assessments in
a SQLite file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BACKENDS = ("file", "mlflow")
SECONDS_TO_FLUSH = 3600.0


def measure(backend: str, facts: int, folder: Path) -> dict[str, float]:
    """Return the figures of one backend, measured in this process."""
    os.environ["OTEL_ROLLOUT_DIR"] = str(folder / "traces")
    os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{folder / 'mlflow.db'}"
    import otel_rollout

    otel_rollout.init("late-facts", "benchmark", backend=backend)
    trajectories = []
    for number in range(facts):
        with otel_rollout.rollout_trace_attr(sample_index=number, step=number // 8192, rollout_n=0) as trajectory:
            pass
        trajectories.append(trajectory.handle)
        while number % 1000 == 0 and next(iter(otel_rollout.stats().exporters.values())).queued > 10_000:
            time.sleep(0.01)
    assert otel_rollout.flush(SECONDS_TO_FLUSH)
    before, most = _memory(), 0
    started = time.perf_counter()
    calls = 0.0
    for number, handle in enumerate(trajectories):
        began = time.perf_counter()
        otel_rollout.annotate(trajectory=handle, reward=number % 2)
        calls += time.perf_counter() - began
        if number % 1000 == 0:
            most = max(most, _memory())
            while next(iter(otel_rollout.stats().exporters.values())).queued > 10_000:
                time.sleep(0.01)
    is_whole = otel_rollout.flush(SECONDS_TO_FLUSH)
    seconds = time.perf_counter() - started
    most = max(most, _memory())
    stats = otel_rollout.stats()
    if not is_whole or stats.lost:
        print(stats, file=sys.stderr)
    otel_rollout.shutdown()
    follow_ups = [kind for each in stats.exporters.values() for kind in each.follow_up_requests.values()]
    return {
        "facts": facts,
        "seconds": seconds,
        "caller_us": calls / facts * 1e6,
        "memory_mib": (most - before) / 2**20,
        "lost": stats.lost + sum(sum(kind.lost.values()) for kind in follow_ups),
    }


def _memory() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    """Measure each backend in a process of its own, and print a table; 1 where a fact was lost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.late_facts", description=__doc__)
    parser.add_argument("--facts", type=int, default=100_000, help="trajectories (default: %(default)s)")
    parser.add_argument("--backend", choices=BACKENDS, help="one backend, as JSON")
    chosen = parser.parse_args()
    if chosen.backend:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(chosen.backend, chosen.facts, Path(folder))))
        return 0
    lost = 0.0
    print(f"{'backend':8}{'facts':>10}{'seconds':>10}{'caller':>12}{'memory':>12}{'lost':>6}")
    for backend in BACKENDS:
        command = [sys.executable, "-m", "benchmarks.late_facts", "--backend", backend, "--facts", str(chosen.facts)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        lost += found["lost"]
        print(
            f"{backend:8}{found['facts']:>10,}{found['seconds']:>10.1f}{found['caller_us']:>9.1f} µs"
            f"{found['memory_mib']:>8.0f} MiB{found['lost']:>6}"
        )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
