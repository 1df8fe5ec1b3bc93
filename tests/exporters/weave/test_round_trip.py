"""The exporter's calls on a real trace server, read back by the current weave client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import Event

from otel_rollout.export.outcome import Verdict

pytestmark = pytest.mark.integration


def step_is(step: int) -> dict[str, Any]:
    """Return the query for calls of a training step."""
    field = {"$convert": {"input": {"$getField": "attributes.step"}, "to": "int"}}
    return {"$expr": {"$eq": [field, {"$literal": step}]}}


def hex_id(span: Any) -> str:
    """Return the id of a span's call."""
    return f"{span.context.span_id:016x}"


class TestReadBack:
    """Filters and fields that a user of Weave works with."""

    def test_trajectory_is_a_root_call_with_its_ops_below(self, server, reader, exporter, spans, project) -> None:
        """A trajectory is one root call, and the client finds its ops as the root's children."""
        sent = spans.trajectory(ops=3)
        assert exporter.send(sent).verdict is Verdict.DELIVERED
        roots = reader.calls(project, filter={"trace_roots_only": True})
        assert [call["id"] for call in roots] == [hex_id(sent[-1])]
        assert sorted(reader.ask("children", project, roots[0]["id"])) == sorted(hex_id(span) for span in sent[:-1])
        assert roots[0]["trace_id"] == f"{sent[-1].context.trace_id:032x}"

    def test_every_call_has_typed_tags(self, server, reader, exporter, spans, project) -> None:
        """The five tags stand on the root and on each op, as numbers, booleans and text."""
        exporter.send(spans.trajectory(ops=1, step=5, sample=11, rollout=2, validate=True))
        for call in reader.calls(project):
            tags = {key: call["attributes"][key] for key in ("step", "sample_index", "rollout_n", "validate")}
            assert tags == {"step": 5, "sample_index": 11, "rollout_n": 2, "validate": True}
            assert call["attributes"]["experiment_name"] == "exp-1"

    def test_filter_by_step_finds_whole_trajectories(self, server, reader, exporter, spans, project) -> None:
        """A filter on attributes.step finds the root and the ops of that step, and nothing else."""
        wanted, other = spans.trajectory(step=3), spans.trajectory(step=4)
        exporter.send([*wanted, *other])
        assert {call["id"] for call in reader.calls(project, query=step_is(3))} == {hex_id(span) for span in wanted}

    def test_filter_by_op_finds_its_calls(self, server, reader, exporter, spans, project) -> None:
        """Ops are registered objects, so Weave's filter by op version finds their calls."""
        root = spans.root()
        calls = [spans.op(root, "Calculator.execute"), spans.op(root, "LLMServer.generate"), root]
        exporter.send(calls)
        name = f"weave:///{project}/op/Calculator.execute:*"
        found = reader.calls(project, filter={"op_names": [name]})
        assert [(call["id"], call["func_name"]) for call in found] == [(hex_id(calls[0]), "Calculator.execute")]
        assert set(reader.ask("ops", project)) == {"Calculator.execute", "LLMServer.generate", "agent_loop"}

    def test_op_is_registered_once(self, server, exporter, spans) -> None:
        """An op costs two requests at its first call and none later."""
        exporter.send(spans.trajectory())
        exporter.send(spans.trajectory())
        paths = [request["path"] for request in server.take_requests()]
        assert paths.count("/obj/create") == 2  # Tool.call and agent_loop
        assert sum(path.endswith("/calls/complete") for path in paths) == 2

    def test_payload_arrives_as_it_was(self, server, reader, exporter, spans, project) -> None:
        """Inputs and output read back are the values that the op had."""
        root = spans.root()
        given = {"messages": [{"role": "user", "content": "héé “x” \n"}], "ids": [1, 2, 3], "none": None}
        exporter.send([spans.op(root, input=given, output=[1.5, {"a": True}])])
        (call,) = reader.calls(project)
        assert call["inputs"] == given
        assert call["output"] == [1.5, {"a": True}]

    def test_failed_op_has_exception_and_traceback(self, server, reader, exporter, spans, project) -> None:
        """A failed op shows its exception with the traceback, and the root counts it below itself."""
        stacktrace = (
            'Traceback (most recent call last):\n  File "tool.py", line 7, in call\n    1 / 0\nValueError: no\n'
        )
        event = Event(
            "exception",
            {"exception.type": "ValueError", "exception.message": "no", "exception.stacktrace": stacktrace},
        )
        root = spans.root()
        failed, fine = spans.op(root, error="ValueError: no", events=[event]), spans.op(root)
        exporter.send([failed])
        exporter.send([fine, root])
        by_id = {call["id"]: call for call in reader.calls(project)}
        assert json.loads(by_id[hex_id(failed)]["exception"]) == {
            "type": "ValueError",
            "message": "no",
            "traceback": [{"filename": "tool.py", "line_number": 7, "function_name": "call", "text": "1 / 0"}],
        }
        assert by_id[hex_id(failed)]["summary"]["weave"]["status"] == "error"
        assert by_id[hex_id(root)]["exception"] is None
        assert by_id[hex_id(root)]["summary"]["status_counts"] == {"success": 2, "error": 1}
        assert by_id[hex_id(root)]["summary"]["weave"]["status"] == "descendant_error"

    def test_a_late_annotation_counts_as_no_call(self, server, reader, exporter, spans, project) -> None:
        """In one batch with its trajectory, as a replay has it, the root's counts are those of live training."""
        root = spans.root()
        late = spans.span("annotate", {"rollout.late": True, "rollout.reward": 1.0}, parent=root)
        assert exporter.send([spans.op(root), late, root]).verdict is Verdict.DELIVERED
        by_id = {call["id"]: call for call in reader.calls(project)}
        assert by_id[hex_id(root)]["summary"]["status_counts"] == {"success": 2, "error": 0}

    def test_token_usage_stands_in_the_summary(self, server, reader, exporter, spans, project) -> None:
        """An LLM op's tokens are the usage of its model."""
        root = spans.root()
        tokens = {
            "gen_ai.request.model": "policy-7b",
            "gen_ai.usage.input_tokens": 100,
            "gen_ai.usage.output_tokens": 20,
        }
        exporter.send([spans.op(root, "generate", kind="LLM", attributes=tokens)])
        (call,) = reader.calls(project)
        assert call["summary"]["usage"]["policy-7b"]["prompt_tokens"] == 100
        assert call["summary"]["usage"]["policy-7b"]["completion_tokens"] == 20
        assert call["summary"]["usage"]["policy-7b"]["requests"] == 1
        assert call["attributes"]["weave"]["kind"] == "llm"

    def test_root_is_named_for_its_place_in_training(self, server, reader, exporter, spans, project) -> None:
        """The display name of a root says step, sample and rollout."""
        exporter.send([spans.root(step=3, sample=7, rollout=1)])
        assert reader.calls(project)[0]["display_name"] == "s7 · r1 · step 3 · agent_loop"

    def test_root_is_a_turn_of_its_own_thread(self, server, reader, exporter, spans, project) -> None:
        """A trajectory is a Weave thread, its root the one turn in it."""
        sent = spans.trajectory()
        exporter.send(sent)
        by_id = {call["id"]: call for call in reader.calls(project)}
        root = by_id[hex_id(sent[-1])]
        assert (root["thread_id"], root["turn_id"]) == (f"{sent[-1].context.trace_id:032x}", root["id"])
        assert by_id[hex_id(sent[0])]["thread_id"] is None

    def test_times_are_kept_to_the_microsecond(self, server, reader, exporter, spans, project) -> None:
        """Start and end are the span's own, to the microsecond that Weave stores."""
        exporter.send([spans.root()])
        (call,) = reader.calls(project)
        assert call["started_at"] == "2026-01-01 00:00:00.123456+00:00"
        assert call["ended_at"] == "2026-01-01 00:00:00.123956+00:00"

    @pytest.mark.parametrize("megabytes", [1, pytest.param(20, marks=pytest.mark.slow)])
    def test_payload_of_megabytes(self, server, exporter, spans, project, megabytes) -> None:
        """A payload of megabytes arrives whole, however it is batched with others."""
        text = "word " * (megabytes * 200_000)
        root = spans.root(output={"text": text})
        assert exporter.send([spans.op(root), root]).verdict is Verdict.DELIVERED
        outputs = {call["id"]: call["output"] for call in server.calls(project)}
        assert outputs[hex_id(root)] == {"text": text}

    def test_client_reads_a_large_payload(self, server, reader, exporter, spans, project) -> None:
        """The weave client reads a payload of 300 KB back; at megabytes its own decoder takes minutes."""
        text = "word " * 60_000
        exporter.send([spans.root(output={"text": text})])
        assert reader.calls(project)[0]["output"] == {"text": text}

    def test_batches_in_any_order(self, server, reader, exporter, spans, project) -> None:
        """Ops sent after their root, or long before it, stand below it all the same."""
        early, late = spans.trajectory(), spans.trajectory()
        for batch in ([late[-1]], [early[0], late[1]], [late[0], early[1]], [early[-1]]):
            assert exporter.send(batch).verdict is Verdict.DELIVERED
        for sent in (early, late):
            found = reader.ask("children", project, hex_id(sent[-1]))
            assert sorted(found) == sorted(hex_id(span) for span in sent[:-1])

    def test_ids_as_text(self, server, reader, exporter, spans, project, monkeypatch) -> None:
        """With the option, a long list of token ids arrives as one text that holds the list."""
        monkeypatch.setenv("OTEL_ROLLOUT_WEAVE_IDS_AS_TEXT", "true")
        ids = list(range(6250))
        with_option = type(exporter)()
        with_option.send([spans.root(input={"prompt_ids": ids, "few": [1, 2]})])
        with_option.shutdown()
        (call,) = reader.calls(project)
        assert call["inputs"]["few"] == [1, 2]
        assert json.loads(call["inputs"]["prompt_ids"]) == ids

    def test_ids_stay_a_list_by_default(self, server, reader, exporter, spans, project) -> None:
        """Without the option, a list of token ids arrives as a list."""
        ids = list(range(6250))
        exporter.send([spans.root(input={"prompt_ids": ids})])
        assert reader.calls(project)[0]["inputs"] == {"prompt_ids": ids}

    def test_text_of_other_instrumentations(self, server, reader, exporter, spans, project) -> None:
        """A payload that is no JSON, of a span of another instrumentation, arrives as text."""
        plain = spans.span(
            "other", {"input.value": "not { json", "output.value": '{"a": NaN}'}, scope="openinference.x"
        )
        assert exporter.send([plain]).verdict is Verdict.DELIVERED
        (call,) = reader.calls(project)
        assert (call["inputs"], call["output"]) == ({"input": "not { json"}, '{"a": NaN}')

    def test_names_of_any_form(self, server, reader, exporter, spans, project) -> None:
        """A span name that Weave takes neither as object nor as op name is delivered under one that it takes."""
        names = ["GET /a/{b}?c=1", "x" * 300, "f.<locals>.g", "計算機.実行", "///"]
        sent = [spans.span(name) for name in names]
        assert exporter.send(sent).verdict is Verdict.DELIVERED
        shown = {call["id"]: call["display_name"] or call["func_name"] for call in reader.calls(project)}
        assert [shown[hex_id(span)] for span in sent] == names


class TestRewards:
    """A reward annotated inside the trajectory."""

    def test_reward_is_in_the_output_and_the_attributes(self, server, reader, exporter, spans, project) -> None:
        """The reward is a key of the root's output and of its attributes."""
        exporter.send([spans.root(reward=0.75, output={"answer": "4"})])
        (call,) = reader.calls(project)
        assert call["output"] == {"answer": "4", "reward": 0.75}
        assert call["attributes"]["reward"] == 0.75

    def test_reward_filters_and_sorts(self, server, reader, exporter, spans, project) -> None:
        """Calls can be filtered and sorted by the reward as feedback."""
        sent = {reward: spans.root(reward=reward) for reward in (0.25, 1.0, 0.5)}
        assert exporter.send([*sent.values(), spans.root()]).verdict is Verdict.DELIVERED
        assert exporter.force_flush()
        field = "feedback.[wandb.runnable.reward].payload.output"
        value = {"$convert": {"input": {"$getField": field}, "to": "double"}}
        found = reader.calls(
            project,
            query={"$expr": {"$gt": [value, {"$literal": 0.4}]}},
            sort_by=[{"field": field, "direction": "desc"}],
        )
        assert [call["id"] for call in found] == [hex_id(sent[1.0]), hex_id(sent[0.5])]


class TestWandbRun:
    """The association with a W&B run."""

    def test_run_of_the_environment(self, server, reader, exporter, spans, project, monkeypatch) -> None:
        """With WANDB_RUN_ID, calls belong to that run, at the step of their trajectory."""
        monkeypatch.setenv("WANDB_RUN_ID", "abc123")
        exporter.send(spans.trajectory(ops=1, step=9))
        found = reader.calls(project, filter={"wb_run_ids": [f"{project}/abc123"]})
        assert [(call["wb_run_id"], call["wb_run_step"]) for call in found] == [(f"{project}/abc123", 9)] * 2

    def test_step_before_training(self, server, reader, exporter, spans, project, monkeypatch) -> None:
        """A step of -1, which trainers use for "none", is no step of the run, and the batch is taken."""
        monkeypatch.setenv("WANDB_RUN_ID", "abc123")
        assert exporter.send([spans.root(step=-1)]).verdict is Verdict.DELIVERED
        assert reader.calls(project)[0]["attributes"]["step"] == -1
