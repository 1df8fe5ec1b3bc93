"""The translation of a trajectory to a trackio trace."""

from __future__ import annotations

import hashlib

import pytest
from opentelemetry.sdk.trace import Event

from otel_rollout_trackio.translate import run_id_of, translate
from tests.exporters.trackio.spans import START, make_span, make_trajectory

CALL = {"name": "calculator", "arguments": '{"expression":"17 * 3"}'}
USER = {"role": "user", "content": "What is 17 * 3?"}
WANTED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": CALL}],
}
RESULT = {"role": "tool", "tool_call_id": "call_1", "content": "51"}
ANSWER = {"role": "assistant", "content": "It is 51."}


class TestTrajectory:
    """A whole trajectory."""

    def test_the_whole_record(self):
        """A trajectory is one trace: its conversation, its tags and rewards, and its spans as a tree."""
        record = translate(make_trajectory())

        assert record._asdict() == {
            "project": "math",
            "run": "exp-1",
            "run_id": hashlib.sha256(b"math/exp-1").hexdigest()[:32],
            "key": "agent_loop:0.5",
            "step": 7,
            "timestamp": "2025-10-09T08:53:20+00:00",
            "log_id": "s12-r1-trace-00000000000000000000000000000abc",
            "trace": {
                "_type": "trackio.trace",
                "messages": [USER, WANTED, RESULT, ANSWER],
                "metadata": {
                    "status": "success",
                    "reward": 0.5,
                    "reward.correct": True,
                    "reward.style": {"value": 0.25, "explanation": "terse"},
                    "step": 7,
                    "sample_index": 12,
                    "rollout_n": 1,
                    "validate": False,
                    "experiment_name": "exp-1",
                    "turns": 2,
                    "input_tokens": 10,
                    "output_tokens": 5,
                    "duration_ms": 3000.0,
                    "session_id": "s12 · step 7 · exp-1",
                    "trace_id": "00000000000000000000000000000abc",
                    "data_source": "gsm8k",
                },
                "spans": [
                    {
                        "id": "0000000000000001",
                        "name": "agent_loop",
                        "kind": "span",
                        "start_time": "2025-10-09T08:53:20+00:00",
                        "end_time": "2025-10-09T08:53:23+00:00",
                        "duration_ms": 3000.0,
                        "status": "success",
                        "input": "What is 17 * 3?",
                        "output": "It is 51.",
                    },
                    {
                        "id": "0000000000000002",
                        "name": "generate",
                        "kind": "generation",
                        "start_time": "2025-10-09T08:53:20+00:00",
                        "end_time": "2025-10-09T08:53:21+00:00",
                        "duration_ms": 1000.0,
                        "status": "success",
                        "input": {"messages": [USER], "temperature": 1.0},
                        "output": {"messages": [WANTED]},
                        "parent_id": "0000000000000001",
                        "model": "policy",
                        "usage": {"input_tokens": 10, "output_tokens": 5},
                    },
                    {
                        "id": "0000000000000003",
                        "name": "calculator",
                        "kind": "tool",
                        "start_time": "2025-10-09T08:53:21+00:00",
                        "end_time": "2025-10-09T08:53:21.500000+00:00",
                        "duration_ms": 500.0,
                        "status": "success",
                        "input": {"expression": "17 * 3"},
                        "output": "51",
                        "parent_id": "0000000000000001",
                        "metadata": {"gen_ai.tool.name": "calculator"},
                    },
                    {
                        "id": "0000000000000004",
                        "name": "generate",
                        "kind": "generation",
                        "start_time": "2025-10-09T08:53:21.500000+00:00",
                        "end_time": "2025-10-09T08:53:22.500000+00:00",
                        "duration_ms": 1000.0,
                        "status": "success",
                        "input": {"messages": [USER, WANTED, RESULT]},
                        "output": {"messages": [ANSWER]},
                        "parent_id": "0000000000000001",
                        "model": "policy",
                    },
                ],
            },
        }

    def test_of_a_failed_trajectory(self):
        """Status and exception stand on the trajectory and on the op; other events are kept."""
        op = make_span(
            "generate", 2, error=("ValueError", "no tokens"), events=[Event("retry", {"rollout.n": 1}, START)]
        )
        root = make_span(
            "agent_loop", 1, parent=None, error=("ValueError", "no tokens"), attributes={"rollout.status": "error"}
        )

        trace = translate([op, root]).trace

        assert (trace["metadata"]["status"], trace["metadata"]["error"]) == ("error", "ValueError: no tokens")
        assert [(span["status"], span["error"]) for span in trace["spans"]] == [("error", "ValueError: no tokens")] * 2
        event = {"name": "retry", "time": "2025-10-09T08:53:20+00:00", "n": 1}
        assert trace["spans"][1]["metadata"] == {"events": [event]}

    def test_a_status_of_ours_is_kept(self):
        """Only `completed` has another name in trackio."""
        root = make_span("agent_loop", 1, parent=None, attributes={"rollout.status": "truncated"})

        assert translate([root]).trace["metadata"]["status"] == "truncated"

    def test_the_place_of_spans_that_name_none(self):
        """Without a project, experiment or step there are defaults; the exporter's project wins."""
        root = make_span("op", 1, parent=None)
        root._attributes, root._resource = {}, root.resource.create({"service.name": "service"})

        record = translate([root])

        assert (record.project, record.run, record.step) == ("service", "default", 0)
        assert translate([root], project="mine").project == "mine"


class TestParts:
    """Spans whose root is missing, or is stored already."""

    def test_what_comes_after_the_root(self):
        """A row of its own has the facts, and isn't unfinished."""
        late = make_span(
            "annotate",
            9,
            is_parent_remote=True,
            attributes={"rollout.reward": 0.75, "rollout.reward_parts": '{"format":0.5}', "rollout.fate": "trained"},
        )
        record = translate([late])
        metadata = record.trace["metadata"]
        assert record.key == "annotate:0.75"
        assert (metadata["reward"], metadata["reward.format"], metadata["reward.fate"]) == (0.75, 0.5, "trained")

    def test_an_unfinished_trajectory(self):
        """Spans without a root have their tags, an id of their own and the status `unfinished`."""
        spans = make_trajectory()[:3]

        record = translate(spans)

        assert (record.key, record.step, record.run) == ("unfinished:", 7, "exp-1")
        assert record.log_id == "s12-r1-trace-00000000000000000000000000000abc-0000000000000002"
        metadata = record.trace["metadata"]
        assert (metadata["status"], metadata["sample_index"], metadata["rollout_n"]) == ("unfinished", 12, 1)
        assert record.trace["messages"] == [USER, WANTED, RESULT, ANSWER]
        assert [span["id"][-1] for span in record.trace["spans"]] == ["2", "3", "4"]

    def test_a_late_reward(self):
        """A span of another process is a trace beside the trajectory's, with its trace id and the reward."""
        late = make_span(
            "compute_score", 9, is_parent_remote=True, seconds=(9.0, 9.5), attributes={"rollout.reward": 1.0}
        )

        record = translate([late])

        assert (record.key, record.log_id) == (
            "compute_score:1",
            "s12-r1-trace-00000000000000000000000000000abc-0000000000000009",
        )
        assert record.trace["metadata"]["reward"] == 1.0
        assert record.trace["metadata"]["trace_id"] == "00000000000000000000000000000abc"


def turn(**attributes):
    return make_span("generate", 2, attributes={"openinference.span.kind": "LLM", **attributes})


def root(**attributes):
    return make_span("agent_loop", 1, parent=None, attributes={"rollout.status": "completed", **attributes})


MESSAGES = '[{"role":"user","parts":[{"type":"text","content":"Hi"}]}]'
ANSWERS = '[{"role":"assistant","parts":[{"type":"text","content":"Hello"}]}]'
HI, HELLO = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}


class TestConversation:
    """The messages of a trajectory."""

    def test_the_roots_come_first(self):
        """The final conversation on the root wins over what the last turn was given."""
        final = root(**{"gen_ai.input.messages": MESSAGES, "gen_ai.output.messages": ANSWERS})
        last = turn(**{"gen_ai.output.messages": ANSWERS})

        assert translate([last, final]).trace["messages"] == [HI, HELLO]
        assert "messages" not in str(translate([last, final]).trace["spans"][0])

    @pytest.mark.parametrize(
        ("given", "result"),
        [
            ('{"messages":[{"role":"user","content":"Hi"}]}', '{"role":"assistant","content":"Hello"}'),
            (
                '{"messages":[{"role":"user","content":"Hi"}]}',
                '{"choices":[{"message":{"role":"assistant","content":"Hello"}}]}',
            ),
            ('{"prompt_ids":[1,2]}', '{"prompt_text":"Hi","response_text":"Hello","token_ids":[3]}'),
        ],
        ids=["a message", "choices", "token ids with their text"],
    )
    def test_of_payloads(self, given, result):
        """Without message attributes, an op's arguments and result are read."""
        spans = [turn(**{"input.value": given, "output.value": result}), root()]

        assert translate(spans).trace["messages"] == [HI, HELLO]

    def test_of_a_root_alone(self):
        """If no op has messages, the root's input and output are the conversation."""
        final = root(**{"input.value": "Hi", "output.value": '{"answer":4}'})

        assert translate([turn(), final]).trace["messages"] == [HI, {"role": "assistant", "content": '{"answer":4}'}]

    def test_of_an_op_with_token_ids_only(self):
        """Token ids are no message: the root's prompt stands in for them."""
        final = root(**{"input.value": "Hi"})
        last = turn(**{"input.value": '{"prompt_ids":[1,2]}', "output.value": '{"response_text":"Hello"}'})

        assert translate([last, final]).trace["messages"] == [HI, HELLO]

    def test_there_may_be_none(self):
        """A trajectory without any payload has no messages."""
        assert translate([turn(), root()]).trace["messages"] == []


class TestRunId:
    """The id of an experiment's run."""

    def test_is_one_per_project_and_experiment(self):
        """All processes have the same one; another project or experiment has another."""
        assert run_id_of("p", "e") == run_id_of("p", "e")
        assert len({run_id_of("p", "e"), run_id_of("q", "e"), run_id_of("p", "f")}) == 3


def test_times_beyond_the_calendar():
    """A span with a time that no date has is stored, with the last one that is."""
    found = translate([make_span("generate", 2, seconds=(0.0, 1e12))])
    assert found.trace["spans"][0]["end_time"].startswith("9999-12-31T23:59:59")


class TestKinds:
    """The kinds of spans."""

    @pytest.mark.parametrize(
        ("attributes", "kind"),
        [
            ({"openinference.span.kind": "LLM"}, "generation"),
            ({"gen_ai.operation.name": "chat"}, "generation"),
            ({"gen_ai.operation.name": "execute_tool"}, "tool"),
            ({"openinference.span.kind": ["LLM"]}, "span"),
            ({}, "span"),
        ],
    )
    def test_by_kind_or_operation(self, attributes, kind):
        """A span of OpenTelemetry's GenAI conventions has the kind of its operation."""
        root = make_span("root", 1, parent=None)
        child = make_span("child", 2, attributes=attributes)
        found: list[str] = []

        def walk(value):
            if isinstance(value, dict):
                found.extend([value["kind"]] if value.get("name") == "child" else [])
                value = list(value.values())
            if isinstance(value, list):
                for item in value:
                    walk(item)

        walk(translate([child, root]).trace)
        assert found == [kind]
