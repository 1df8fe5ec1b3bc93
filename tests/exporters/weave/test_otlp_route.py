"""Weave's own OTLP endpoint, with no exporter of ours but the one for OTLP."""

from __future__ import annotations

from typing import Any

import pytest

import otel_rollout
from otel_rollout.export.outcome import DELIVERED, Verdict
from otel_rollout_otlp import OtlpHttpSpanExporter

pytestmark = pytest.mark.integration


@pytest.fixture
def otlp(server: Any, project: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The OTLP exporter, led to Weave by the standard variables."""
    server.make_project(project)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{server.url}/otel/v1/traces")
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_HEADERS",
        f"wandb-api-key={server.variables['WANDB_API_KEY']},project_id={project}",
    )
    exporter = OtlpHttpSpanExporter()
    yield exporter
    exporter.shutdown()


def by_name(calls: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the calls by their op names, which Weave's OTLP endpoint turns into lower case."""
    return {call["func_name"]: call for call in calls}


class TestOtlpRoute:
    """`OTEL_TRACES_EXPORTER=otlp` with the standard attributes."""

    def test_tree_with_payload(self, otlp, reader, spans, project) -> None:
        """The trajectory is a root call with its op below, with inputs and output under the attributes' names."""
        root = spans.root(input={"prompt": "2+2"}, output={"answer": "4"}, reward=1.0)
        op = spans.op(root, "tool.call", input={"x": [1, 2]}, output={"y": 2})
        assert otlp.send([op, root]) == DELIVERED
        calls = by_name(reader.calls(project))
        assert calls["agent_loop"]["parent_id"] is None
        assert calls["tool.call"]["parent_id"] == calls["agent_loop"]["id"]
        assert calls["agent_loop"]["inputs"] == {"input.value": {"prompt": "2+2"}}
        assert calls["agent_loop"]["output"] == {"output.value": {"answer": "4"}}
        assert calls["tool.call"]["inputs"] == {"input.value": {"x": [1, 2]}}

    def test_by_environment_alone(self, otlp, reader, project, monkeypatch) -> None:
        """Through `init`, the standard variables are all that it takes."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
        otel_rollout.init(project, "exp-1")
        with otel_rollout.rollout_trace_attr(sample_index=1, step=2, rollout_n=3, name="agent_loop"):
            otel_rollout.rollout_trace_op(name="tool")(lambda x: x + 1)(41)
        assert otel_rollout.flush(60)
        calls = by_name(reader.calls(project))
        assert calls["tool"]["inputs"] == {"input.value": {"x": 41}}
        assert calls["tool"]["parent_id"] == calls["agent_loop"]["id"]

    def test_failure_and_usage(self, otlp, reader, spans, project) -> None:
        """A failed op shows its message, an LLM op its tokens."""
        root = spans.root()
        tokens = {"gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 4}
        failed = spans.op(root, "failed", error="ValueError: no")
        llm = spans.op(root, "llm", kind="LLM", attributes=tokens)
        assert otlp.send([failed, llm]) == DELIVERED
        calls = by_name(reader.calls(project))
        assert calls["failed"]["exception"] == "ValueError: no"
        assert calls["failed"]["summary"]["weave"]["status"] == "error"
        assert calls["llm"]["summary"]["usage"]["m"]["input_tokens"] == 9

    def test_tags_are_not_where_filters_find_them(self, otlp, reader, spans, project) -> None:
        """Weave nests the standard attributes under names of its own: its filters find the `weave` exporter's tags."""
        assert otlp.send([spans.root(step=6)]) == DELIVERED
        found = reader.calls(project)[0]["attributes"]
        assert "step" not in found

    def test_wrong_key(self, otlp, server, spans, monkeypatch) -> None:
        """A refused key is a lasting refusal, not a fault to repeat."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "wandb-api-key=wrong,project_id=team/p")
        plain = OtlpHttpSpanExporter()
        assert plain.send([spans.root()]).verdict is Verdict.CONFIGURATION_ERROR
        plain.shutdown()
