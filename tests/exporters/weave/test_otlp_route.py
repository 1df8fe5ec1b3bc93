"""Weave's own OTLP endpoint, with no exporter of ours but the one for OTLP."""

from __future__ import annotations

import json
from typing import Any

import pytest

import otel_rollout
from otel_rollout.export.outcome import DELIVERED, Verdict
from otel_rollout.export.profiles import PROFILES, ProfiledSpanExporter
from otel_rollout_otlp.http_exporter import OtlpHttpSpanExporter

pytestmark = pytest.mark.integration


@pytest.fixture
def otlp(server: Any, project: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The OTLP exporter, led to Weave by the standard variables, with the profile that Weave needs."""
    server.make_project(project)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{server.url}/otel/v1/traces")
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_HEADERS",
        f"wandb-api-key={server.variables['WANDB_API_KEY']},project_id={project}",
    )
    exporter = ProfiledSpanExporter(OtlpHttpSpanExporter(), PROFILES["weave"])
    yield exporter
    exporter.shutdown()


def by_name(calls: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the calls by their op names, which Weave's OTLP endpoint turns into lower case."""
    return {call["func_name"]: call for call in calls}


class TestOtlpRoute:
    """`OTEL_TRACES_EXPORTER=otlp` with `OTEL_ROLLOUT_OTLP_PROFILE=weave`."""

    def test_tree_with_payload(self, otlp, reader, spans, project) -> None:
        """The trajectory is a root call with its op below, with inputs, output and the root's name."""
        root = spans.root(input={"prompt": "2+2"}, output={"answer": "4"}, reward=1.0)
        op = spans.op(root, "tool.call", input={"x": [1, 2]}, output={"y": 2})
        assert otlp.send([op, root]) == DELIVERED
        calls = by_name(reader.calls(project))
        assert calls["agent_loop"]["parent_id"] is None
        assert calls["tool.call"]["parent_id"] == calls["agent_loop"]["id"]
        assert calls["agent_loop"]["inputs"] == {"prompt": "2+2"}
        assert calls["agent_loop"]["output"] == {"answer": "4"}
        assert calls["tool.call"]["inputs"] == {"x": [1, 2]}
        assert calls["agent_loop"]["display_name"] == "agent_loop · step 3 · sample 7 · rollout 0"

    def test_tags_can_be_filtered(self, otlp, reader, spans, project) -> None:
        """Every call has the tags with their types, also one without any payload, and the step filters."""
        root = spans.root(step=6, validate=True, reward=0.5)
        bare = spans.op(root, "bare", input=None, output=None)
        other = spans.root(step=7)
        assert otlp.send([bare, root, other]) == DELIVERED
        field = {"$convert": {"input": {"$getField": "attributes.step"}, "to": "int"}}
        calls = by_name(reader.calls(project, query={"$expr": {"$eq": [field, {"$literal": 6}]}}))
        assert set(calls) == {"bare", "agent_loop"}
        for call in calls.values():
            tags = [call["attributes"][key] for key in ("step", "sample_index", "rollout_n", "validate")]
            assert tags == [6, 7, 0, True]
            assert call["attributes"]["experiment_name"] == "exp-1"
            assert call["wb_run_step"] == 6
        assert calls["agent_loop"]["attributes"]["reward"] == 0.5

    def test_by_environment_alone(self, otlp, reader, project, monkeypatch) -> None:
        """Through `init`, the two variables are all that it takes."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
        monkeypatch.setenv("OTEL_ROLLOUT_OTLP_PROFILE", "weave")
        otel_rollout.init(project, "exp-1")
        with otel_rollout.rollout_trace_attr(sample_index=1, step=2, rollout_n=3, name="agent_loop"):
            otel_rollout.rollout_trace_op(name="tool")(lambda x: x + 1)(41)
        assert otel_rollout.flush(30)
        calls = by_name(reader.calls(project))
        assert calls["tool"]["inputs"] == {"x": 41}
        assert calls["tool"]["attributes"]["rollout_n"] == 3
        assert calls["agent_loop"]["display_name"] == "agent_loop · step 2 · sample 1 · rollout 3"

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

    def test_without_the_profile_tags_are_lost(self, otlp, reader, spans, project) -> None:
        """Without the profile, Weave keeps no tag where a filter finds it: this is why there is one."""
        plain = OtlpHttpSpanExporter()
        assert plain.send([spans.root()]) == DELIVERED
        plain.shutdown()
        assert "step" not in reader.calls(project)[0]["attributes"]

    def test_wrong_key(self, otlp, server, spans, monkeypatch) -> None:
        """A refused key is a lasting refusal, not a fault to repeat."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "wandb-api-key=wrong,project_id=team/p")
        plain = OtlpHttpSpanExporter()
        assert plain.send([spans.root()]).verdict is Verdict.DENIED
        plain.shutdown()


def test_profile_sends_the_payload_once(spans: Any) -> None:
    """The profile renames the payload instead of adding it a second time, and leaves the span otherwise alone."""
    root = spans.root(input={"prompt": "p"}, output={"answer": "a"})
    profiled = PROFILES["weave"](root)
    assert [value for value in profiled.attributes.values() if value == '{"prompt":"p"}'] == ['{"prompt":"p"}']
    assert json.loads(profiled.to_json())["context"] == json.loads(root.to_json())["context"]
    assert (profiled.start_time, profiled.end_time, profiled.parent) == (root.start_time, root.end_time, None)
