"""From the decorators to the weave client, through `otel_rollout.init`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op

pytestmark = pytest.mark.integration

WORKER = Path(__file__).with_name("worker.py")


class Calculator:
    """A tool with an op that works and one that fails."""

    @rollout_trace_op(kind="TOOL")
    def execute(self, expression: str) -> float:
        """Work."""
        return float(len(expression))

    @rollout_trace_op(kind="TOOL")
    def divide(self, by: int) -> float:
        """Fail for 0."""
        return 1 / by


def rollout(*, reward: float | None = 1.0, step: int = 1, sample: int = 0) -> None:
    """Trace one trajectory with two ops, of which one fails."""
    with rollout_trace_attr(sample_index=sample, step=step, rollout_n=0, name="agent_loop"):
        Calculator().execute("2+2")
        with pytest.raises(ZeroDivisionError):
            Calculator().divide(0)
        otel_rollout.annotate(reward=reward, difficulty="hard")


def start_worker(project: str, count: int, size: int = 10) -> subprocess.Popen[str]:
    """Start a worker process that traces to Weave."""
    environment = {
        **os.environ,
        "OTEL_TRACES_EXPORTER": "weave",
        "OTEL_ROLLOUT_MAX_PAYLOAD_BYTES": "8000000",
    }
    command = [sys.executable, str(WORKER), project, str(count), str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


class TestInit:
    """`init(backend="weave")`."""

    def test_trajectory(self, server, reader, project) -> None:
        """A traced trajectory is a tree of calls with tags, payload, exception, reward and annotations."""
        otel_rollout.init(project, "exp-1", backend="weave")
        rollout(step=2, sample=5)
        assert otel_rollout.flush(60)
        calls = {call["func_name"]: call for call in reader.calls(project)}
        assert set(calls) == {"agent_loop", "Calculator.execute", "Calculator.divide"}
        root = calls["agent_loop"]
        assert root["attributes"]["difficulty"] == "hard"
        assert root["output"]["reward"] == 1.0
        assert root["summary"]["status_counts"] == {"success": 2, "error": 1}
        for name in ("Calculator.execute", "Calculator.divide"):
            assert calls[name]["parent_id"] == root["id"]
            tags = [calls[name]["attributes"][key] for key in ("step", "sample_index", "rollout_n", "validate")]
            assert tags == [2, 5, 0, False]
        assert calls["Calculator.execute"]["inputs"] == {"expression": "2+2"}
        assert calls["Calculator.execute"]["output"] == 3.0
        exception = json.loads(calls["Calculator.divide"]["exception"])
        assert exception["type"] == "ZeroDivisionError"
        assert exception["traceback"][-1]["function_name"] == "divide"

    def test_wrong_key_warns_once(self, server, project, monkeypatch, caplog) -> None:
        """A refused key is one warning that names the variable and one request a flush; spans are kept and counted."""
        monkeypatch.setenv("WANDB_API_KEY", "wrong")
        otel_rollout.init(project, "exp-1", backend="weave")
        for step in range(5):
            rollout(step=step)
            assert not otel_rollout.flush(0.2)
        assert len(server.take_requests()) <= 5
        assert caplog.text.count("WANDB_API_KEY") == 1
        assert not otel_rollout.shutdown(1)
        (counts,) = otel_rollout.stats().exporters.values()
        assert counts.delivered == 0
        assert sum(counts.lost.values()) == 15

    def test_outage_and_return(self, server, project, monkeypatch, line) -> None:
        """Trajectories of an outage arrive, each once, when the server is back."""
        monkeypatch.setenv("WANDB_BASE_URL", line.url)
        monkeypatch.setenv("WF_TRACE_SERVER_URL", line.url)
        otel_rollout.init(project, "exp-1", backend="weave")
        rollout(step=0)
        assert otel_rollout.flush(60)
        line.cut()
        for step in range(1, 30):
            rollout(step=step)
        assert not otel_rollout.flush(1)
        line.mend()
        assert otel_rollout.flush(60)
        calls = server.calls(project)
        assert len({call["id"] for call in calls}) == len(calls) == 90
        assert len(server.feedback(project)) == 30


class TestProcesses:
    """Worker processes, each with its own exporter, chosen by OTEL_TRACES_EXPORTER."""

    def test_worker_does_not_import_weave(self, server, project) -> None:
        """Tracing to Weave imports neither weave nor wandb into the worker."""
        output, _ = start_worker(project, 1).communicate(timeout=60)
        assert json.loads(output) == {"is_whole": True, "weave_modules": []}

    def test_program_that_knows_nothing_of_otel_rollout(self, server, reader, project, monkeypatch) -> None:
        """`opentelemetry-instrument` with OTEL_TRACES_EXPORTER=weave sends any program's spans to WANDB_PROJECT."""
        program = (
            "from opentelemetry import trace\n"
            "with trace.get_tracer('app').start_as_current_span('parent'):\n"
            "    with trace.get_tracer('app').start_as_current_span('child') as span:\n"
            "        span.set_attribute('input.value', 'hello')\n"
        )
        variables = {
            "OTEL_TRACES_EXPORTER": "weave",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "WANDB_PROJECT": project,
        }
        launcher = "opentelemetry.instrumentation.auto_instrumentation"
        # In a process of its own: imported here, it would make this process look instrumented.
        loaded = subprocess.run([sys.executable, "-c", f"import {launcher}"], capture_output=True, check=False)
        if loaded.returncode:
            pytest.skip("opentelemetry-distro is not installed, or not in a form that works")
        command = [sys.executable, "-c", f"from {launcher} import run; run()", sys.executable, "-c", program]
        subprocess.run(command, check=True, timeout=60, env={**os.environ, **variables})
        calls = {call["func_name"]: call for call in reader.calls(project)}
        assert calls["child"]["parent_id"] == calls["parent"]["id"]
        assert calls["child"]["inputs"] == {"input": "hello"}

    @pytest.mark.slow
    def test_four_processes(self, server, reader, project) -> None:
        """Four workers that start at once on a new project store all their trajectories, each call once."""
        workers = [start_worker(project, 50) for _ in range(4)]
        for worker in workers:
            output, _ = worker.communicate(timeout=120)
            assert json.loads(output)["is_whole"]
        calls = reader.calls(project)
        assert len(calls) == len({call["id"] for call in calls}) == 4 * 50 * 3
        roots = {call["id"]: call for call in calls if call["parent_id"] is None}
        assert len(roots) == 200
        runs = {call["id"]: call for call in calls if call["func_name"] == "AgentLoop.run"}
        assert all(call["parent_id"] in roots for call in runs.values())
        generated = [call for call in calls if call["func_name"] == "AgentLoop.generate"]
        assert all(call["parent_id"] in runs for call in generated)
        assert len(server.feedback(project)) == 200
        assert sorted(reader.ask("ops", project)) == ["AgentLoop.generate", "AgentLoop.run", "agent_loop"]

    @pytest.mark.slow
    def test_megabytes_through_delivery(self, server, project) -> None:
        """Outputs of megabytes pass through queue and batches whole."""
        worker = start_worker(project, 4, 3_000_000)
        output, _ = worker.communicate(timeout=120)
        assert json.loads(output)["is_whole"]
        outputs = [call["output"] for call in server.calls(project) if "generate" in call["op_name"]]
        answers = [output["choices"][0]["message"]["content"] for output in outputs]
        assert [len(answer) for answer in answers] == [3_000_000] * 4
