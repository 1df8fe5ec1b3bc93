"""`python -m benchmarks.collector`: workers, agent and gateway of deploy/, and `otel-rollout receive` behind them.

For each size of payload: spans in a CPU second of each tier, and the peak of its memory. The collector's own memory is
apart from the pages of its queue's file, which are mapped: the kernel takes those back when a limit is reached.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from otel_rollout.catalog import Run
from scripts.otelcol import NotHereError, ensure
from tests.servers.otelcol_server import Otelcol
from tests.servers.process import ServerProcess, answers_http, free_port

LOAD: Final = Path(__file__).resolve().parents[1] / "tests" / "deploy" / "programs" / "load.py"
WORKERS: Final = 4
SPANS: Final = 20
TICKS: Final = os.sysconf("SC_CLK_TCK")
TRAJECTORIES: Final[Mapping[int, int]] = {2_000: 400, 20_000: 100, 2**20: 5}
"""Of each worker, by the bytes of a payload."""


class Usage:
    """The CPU time of a process, and the peak of its memory.

    Args:
        pid: The process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = self._seconds()
        self.own = self.mapped = 0

    @property
    def seconds(self) -> float:
        """The CPU seconds since this was made."""
        return self._seconds() - self._before

    def sample(self) -> None:
        """Take the memory that it has now into the peaks."""
        lines = Path(f"/proc/{self._pid}/status").read_text(encoding="ascii").splitlines()
        sizes = dict(line.split(":", 1) for line in lines if line.startswith("Rss"))
        self.own = max(self.own, int(sizes["RssAnon"].split()[0]) // 1024)
        self.mapped = max(self.mapped, int(sizes["RssFile"].split()[0]) // 1024)

    def _seconds(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


def measure(program: Path, folder: Path, payload: int, trajectories: int) -> str:
    """Return the lines of one payload size."""
    traces = folder / "traces"
    port = free_port()
    receive = [sys.executable, "-m", "otel_rollout.cli", "receive", "--port", str(port), str(traces)]
    (folder / "receiver").mkdir(parents=True)
    url = f"http://127.0.0.1:{port}"
    receiver = ServerProcess("receiver", receive, lambda: answers_http(f"{url}/health"), folder=folder / "receiver")
    gateway = Otelcol.gateway(program, {"folder": url}, folder / "gateway")
    agent = Otelcol.agent(program, gateway.grpc_address.removeprefix("http://"), folder / "agent")
    count = WORKERS * trajectories * SPANS
    with ExitStack() as stack:
        stack.enter_context(receiver)
        stack.enter_context(gateway)
        stack.enter_context(agent)
        tiers = {
            name: Usage(process.pid)
            for name, process in (("agent", agent.process), ("gateway", gateway.process), ("receiver", receiver))
        }
        began = time.monotonic()
        workers = [_start(agent.address, trajectories, payload) for _ in range(WORKERS)]
        while any(worker.poll() is None for worker in workers):
            _sample(tiers)
        stored = _stored(traces)
        while stored < count and time.monotonic() < began + 300:
            _sample(tiers)
            stored = _stored(traces)
        seconds = time.monotonic() - began
        lines = []
        for name, usage in tiers.items():
            rate = count / max(usage.seconds, 0.01)
            lines.append(f"  {name:<9} {rate:>8,.0f} spans/CPU s   {usage.own:>4} MB own   {usage.mapped:>4} MB mapped")
    # A span that is written while it is counted counts twice.
    lines.insert(0, f"{payload:,} bytes, {_stored(traces):,} of {count:,} spans in {seconds:.1f} s")
    return "\n".join(lines)


def _start(endpoint: str, trajectories: int, payload: int) -> subprocess.Popen[bytes]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    environment = {**inherited, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "LOAD_OPTIONS": json.dumps({})}
    command = [sys.executable, str(LOAD), str(trajectories), str(SPANS), str(payload)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def _sample(tiers: Mapping[str, Usage]) -> None:
    for usage in tiers.values():
        usage.sample()
    time.sleep(0.05)


def _stored(traces: Path) -> int:
    return sum(step.spans for step in Run([traces]).steps()) if traces.exists() and any(traces.iterdir()) else 0


def main() -> None:
    """Measure, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a few spans: does it run at all")
    is_smoke = parser.parse_args().smoke
    try:
        program = ensure()
    except NotHereError as error:
        sys.exit(str(error))
    with tempfile.TemporaryDirectory() as folder:
        for payload, trajectories in TRAJECTORIES.items():
            print(measure(program, Path(folder) / str(payload), payload, 1 if is_smoke else trajectories), flush=True)


if __name__ == "__main__":
    main()
