"""From a decorated function to MLflow: `init` with this backend, and mlflow's own spans inside a trajectory."""

from __future__ import annotations

import subprocess
import sys

import pytest

import otel_rollout
from tests.fresh_interpreter import run_program

pytestmark = pytest.mark.integration


class TestInit:
    """`otel_rollout.init(backend="mlflow")`."""

    def test_trajectory_of_decorated_functions(self, uri, project, read_back, monkeypatch) -> None:
        """A trajectory with ops is one trace with its tags, session, reward, input and output."""
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        otel_rollout.init(project, "exp-1", backend="mlflow")

        @otel_rollout.rollout_trace_op(kind="TOOL")
        def add(left: int, right: int) -> int:
            return left + right

        with otel_rollout.rollout_trace_attr(sample_index=3, step=2, rollout_n=1, name="agent"):
            otel_rollout.annotate(input="2+2?", output=str(add(2, 2)), reward=1.0)
        assert otel_rollout.flush(timeout=60)

        (trace,) = read_back(uri, project).traces("tags.step = '2'")
        assert {
            span.name.rpartition(".")[2]: (span.span_type, span.inputs, span.outputs) for span in trace.data.spans
        } == {
            "agent": (
                "AGENT",
                {"messages": [{"role": "user", "content": "2+2?"}]},
                {"reward": 1.0, "rollout": 1, "output": "4"},
            ),
            "add": ("TOOL", {"left": 2, "right": 2}, 4),
        }
        assert trace.info.tags["experiment_name"] == "exp-1"
        assert trace.info.trace_metadata["mlflow.trace.session"] == f"s3 · step 2 · {project}/exp-1"
        assert [item.value for item in trace.info.assessments] == [1.0]

    def test_an_end_before_a_new_file_has_its_tables(self, tmp_path) -> None:
        """The log line says what the spans waited for; the file appears once it is whole, and no part of it before."""
        program = run_program(
            """
            import otel_rollout
            otel_rollout.init("project", "exp-1", backend="mlflow")
            with otel_rollout.rollout_trace_attr(step=1, sample_index=0):
                pass
            assert not otel_rollout.shutdown(0.2)
            """,
            MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/fresh.db",
        )
        assert program.returncode == 0, program.stderr
        assert program.stderr.splitlines() == [
            (
                "mlflow: 0 of 1 spans delivered, 1 unknown (a request without an answer), MLflow is still opening "
                f"sqlite:///{tmp_path}/fresh.db, and making its tables if it has none"
            )
        ]
        seen = {path.name for path in tmp_path.iterdir()}
        assert seen <= {"fresh.db.init.lock"}

    def test_folder_is_refused_at_once(self, monkeypatch) -> None:
        """`init` raises for a plain folder, with what to use instead."""
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "./mlruns")

        with pytest.raises(otel_rollout.ConfigurationError, match=r"to sqlite:///mlruns\.db"):
            otel_rollout.init("project", "exp-1", backend="mlflow")


NESTING = """
import sys, mlflow, otel_rollout
from otel_rollout_mlflow import nested_mlflow_spans

uri, project = sys.argv[1:]
mlflow.set_tracking_uri(uri)
mlflow.set_experiment(project)
otel_rollout.init(project, "exp-1", backend="mlflow")

@otel_rollout.rollout_trace_op
def op():
    with nested_mlflow_spans(), mlflow.start_span("inside the op"):
        pass

for number in range(3):
    with otel_rollout.rollout_trace_attr(step=number, name="trajectory"), nested_mlflow_spans():
        with mlflow.start_span("inside the trajectory") as span:
            span.set_inputs({"a": 1})
            with mlflow.start_span("deeper"):
                pass
        op()
mlflow.flush_trace_async_logging(terminate=True)
assert otel_rollout.shutdown(timeout=60)
"""


@pytest.mark.slow
class TestNestedMlflowSpans:
    """`mlflow.start_span` inside a trajectory."""

    def test_spans_of_mlflow_nest_under_ours(self, database, project, read_back) -> None:
        """Spans of mlflow stand under the trajectory's root, or under the op that they are opened in, none is lost."""
        uri = f"sqlite:///{database}"
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", NESTING, uri, project],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr

        traces = read_back(uri, project).traces()

        assert len(traces) == 3
        for trace in traces:
            names = {span.span_id: span.name for span in trace.data.spans}
            assert {span.name: names.get(span.parent_id) for span in trace.data.spans} == {
                "trajectory": None,
                "inside the trajectory": "trajectory",
                "deeper": "inside the trajectory",
                "op": "trajectory",
                "inside the op": "op",
            }
