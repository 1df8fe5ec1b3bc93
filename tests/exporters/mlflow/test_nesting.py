"""`nested_mlflow_spans` in the traced program: whatever mlflow is there, the block runs, and its errors are its own."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from otel_rollout import rollout_trace_attr
from otel_rollout.guard import forget_warnings, internal_errors
from otel_rollout_mlflow import nested_mlflow_spans

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import mlflow
import mlflow.tracing.provider
import otel_rollout
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from otel_rollout_mlflow import nested_mlflow_spans, nesting

assert mlflow.__file__.startswith(sys.argv[1]), mlflow.__file__
nesting.SECONDS_UNTIL_SENT = 0.0
otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())
nested = []
for step in range(3):
    with otel_rollout.rollout_trace_attr(step=step, sample_index=0), nested_mlflow_spans():
        ours = trace.get_current_span().get_span_context().trace_id
        with mlflow.start_span("inside") as span:
            nested.append(span.trace_id == f"tr-{ours:032x}")
try:
    with otel_rollout.rollout_trace_attr(step=3, sample_index=0), nested_mlflow_spans():
        raise KeyError("mine")
except KeyError as error:
    assert error.args == ("mine",)
else:
    raise AssertionError("swallowed")
assert not otel_rollout.stats().internal_errors, otel_rollout.stats().internal_errors
print(nested)
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "nested"),
    [
        ("mlflow", True),
        pytest.param("mlflow_oldest", False, marks=pytest.mark.slow),
        pytest.param("mlflow_without_tags", True, marks=pytest.mark.slow),
        pytest.param("mlflow_first_tags", True, marks=pytest.mark.slow),
    ],
)
def test_any_mlflow_may_be_in_the_worker(environment, tmp_path, name, nested) -> None:
    """With a version that can be nested the spans are, also once traces are taken off its list; with others not."""
    [packages] = Path(environment(name)).glob("lib/python*/site-packages")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(packages)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        cwd=tmp_path,
        env={
            **os.environ,
            "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
            "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
            "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS": "1",
        },
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{[nested] * 3}\n"
    assert done.stderr.count("too old to nest") == (not nested)


class TestFaults:
    """An mlflow that is other than we know it."""

    @pytest.fixture
    def provider(self, monkeypatch, rollout_spans):
        """A module in the place of mlflow's, in a process that goes on after faults of ours."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
        module = types.ModuleType("mlflow.tracing.provider")
        module.mlflow_runtime_context = module
        module.get_context_api = lambda: module
        monkeypatch.setitem(sys.modules, "mlflow.tracing.provider", module)
        # Then nothing of mlflow can be imported.
        monkeypatch.setitem(sys.modules, "mlflow.entities", None)
        yield module
        forget_warnings()

    @pytest.mark.parametrize("error", [None, KeyError("mine"), KeyboardInterrupt()])
    def test_a_fault_of_ours_is_told_once(self, provider, caplog, error) -> None:
        """The block runs, the user's exception passes as it is, and the fault is logged once and counted."""
        entered = []

        def block():
            with rollout_trace_attr(step=1, sample_index=0), nested_mlflow_spans():
                entered.append(1)
                if error is not None:
                    raise error

        with caplog.at_level(logging.ERROR, "otel_rollout"):
            for _ in range(3):
                if error is None:
                    block()
                else:
                    with pytest.raises(type(error)) as raised:
                        block()
                    assert raised.value is error
        assert len(entered) == 3
        assert internal_errors["nesting mlflow's spans"] == 3
        assert len([record for record in caplog.records if "nesting mlflow's spans" in record.message]) == 1

    def test_a_fault_on_the_way_out(self, provider, monkeypatch) -> None:
        """Also what fails when the block is left doesn't reach the program."""

        def detach(token):
            raise ValueError("created in a different Context")

        provider.attach = lambda context: None
        provider.detach = detach
        monkeypatch.setattr("otel_rollout_mlflow.nesting._register", lambda trace_id: None)
        with rollout_trace_attr(step=1, sample_index=0), nested_mlflow_spans():
            pass
        assert dict(internal_errors) == {"leaving mlflow's context": 1}
