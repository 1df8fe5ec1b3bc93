"""Agent, gateways and `otel-rollout receive` behind them, each on a machine of its own: spans end in a trace folder."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from otel_rollout import read_trajectories
from otel_rollout.errors import NoTracesError
from otel_rollout.folder import find_trace_files
from tests.deploy import network
from tests.installed import import_path
from tests.run.asked import count_folder
from tests.servers.process import ServerProcess

pytestmark = [pytest.mark.integration, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
COLLECTOR = ROOT / "deploy" / "collector"
LOAD = ROOT / "tests" / "deploy" / "programs" / "load.py"
GATEWAYS = ("gateway1", "gateway2")
TRAJECTORIES, SPANS = 80, 8
DEADLINE = 60.0
RECEIVE = ["receive", "--port", "4319"]
ONLY_FOLDER = "yaml:service::pipelines::traces::exporters: [otlp_http/folder]"


@pytest.fixture
def machines(collector_program, tmp_path):
    """The machines `trainer`, with an agent that shares out by trace, and two gateways with a receiver each."""
    reason = network.why_not()
    if reason:
        pytest.skip(reason)
    (tmp_path / "traces").mkdir()
    with ExitStack() as stack:
        names = {**{name: ["gateway"] for name in GATEWAYS}, "trainer": []}
        net = stack.enter_context(network.Network(names, {"/mnt/traces": tmp_path / "traces"}))

        def start(machine, name, command, port, path="/", **variables):
            folder = tmp_path / f"{machine}-{name}"
            folder.mkdir()
            asks = [sys.executable, "-c", f"import urllib.request as r; r.urlopen('http://127.0.0.1:{port}{path}')"]
            queue = {"QUEUE_FOLDER": str(folder / "queue")}
            server = ServerProcess(
                folder.name,
                net.command(machine, command),
                lambda: net.run(machine, asks).returncode == 0,
                environment={**queue, **variables},
                folder=folder,
            )
            stack.enter_context(server)

        for machine in GATEWAYS:
            receive = [sys.executable, "-m", "otel_rollout.cli", *RECEIVE, "/mnt/traces"]
            start(machine, "receiver", receive, 4319, "/health", PYTHONPATH=str(import_path()))
            gateway = [str(collector_program), f"--config={COLLECTOR / 'gateway.yaml'}", f"--config={ONLY_FOLDER}"]
            start(machine, "collector", gateway, 13133, RECEIVER="http://127.0.0.1:4319")
        configs = [f"--config={COLLECTOR / name}.yaml" for name in ("agent", "by-trace")]
        agent = [str(collector_program), *configs]
        start("trainer", "agent", agent, 13133, GATEWAY="gateway", GATEWAY_INSECURE="true")
        yield net


class TestTwoReceivers:
    """Two receivers on one shared folder."""

    def test_each_trajectory_is_in_the_files_of_one(self, machines, tmp_path):
        """All spans are in the folder once; each receiver has files of its own, with about half of the trajectories."""
        command = [sys.executable, str(LOAD), str(TRAJECTORIES), str(SPANS), "2000", "0.02"]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
        # Spans of a trajectory come in several requests.
        environment = {**inherited, "OTEL_BSP_SCHEDULE_DELAY": "50"}

        finished = machines.run("trainer", command, env=environment)
        assert finished.returncode == 0, finished.stderr
        assert json.loads(finished.stdout)["delivered"] == TRAJECTORIES * SPANS
        deadline = time.monotonic() + DEADLINE
        folder = tmp_path / "traces"
        while time.monotonic() < deadline:
            # The first file is there before its first frame.
            with contextlib.suppress(NoTracesError):
                if count_folder(folder).spans >= TRAJECTORIES * SPANS:
                    break
            time.sleep(0.2)

        stats = count_folder(folder)
        assert (stats.trajectories, stats.spans, stats.rootless) == (TRAJECTORIES, TRAJECTORIES * SPANS, 0)
        assert [len(each.spans) for each in read_trajectories(folder)] == [SPANS] * TRAJECTORIES
        of_each = [{file.worker for file, _ in each.parts} for each in read_trajectories(folder)]
        assert all(len(workers) == 1 for workers in of_each)
        shares = Counter(next(iter(workers)) for workers in of_each)
        assert set(shares) == {file.worker for file in find_trace_files(folder)}
        assert len(shares) == 2
        assert min(shares.values()) > TRAJECTORIES // 5
