"""What a rollout looks like in Phoenix, sent over HTTP and gRPC, directly and through a collector."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from tests.servers.span_trees import Node, trees

pytestmark = pytest.mark.integration

ROUTES = [("phoenix", "http/protobuf"), ("phoenix", "grpc"), ("collector", "http/protobuf"), ("collector", "grpc")]

WHOLE = [
    (
        "Agent.run", "CHAIN", "UNSET",
        [
            ("generate", "LLM", "UNSET", []),
            ("calculator", "TOOL", "UNSET", []),
            ("lookup", "TOOL", "ERROR", []),
            ("generate", "LLM", "UNSET", []),
        ],
    )
]  # fmt: skip


@dataclass
class Group:
    """What Phoenix shows of one run of the group program."""

    project: str
    report: dict[str, Any]
    spans: list[dict[str, Any]]
    roots: dict[tuple[Any, int, bool], Node]

    def trajectory(self, sample_index: Any, rollout_n: int, *, validate: bool = False) -> Node:
        """Return the tree of one trajectory."""
        return self.roots[sample_index, rollout_n, validate]


@pytest.fixture(scope="module", params=ROUTES, ids=[f"{server}-{protocol[:4]}" for server, protocol in ROUTES])
def group(request, phoenix, programs, otlp):
    """The group program's traces in Phoenix, on each route."""
    server, protocol = request.param
    project = f"group-{server}-{protocol[:4]}"
    programs.run("group", project, **otlp(request.getfixturevalue(server), protocol))
    spans = phoenix.api.wait_for_spans(project, 7 * 6)
    roots = {}
    for root in trees(spans).values():
        tags = root.attributes
        roots[tags["rollout.sample_index"], tags["rollout.rollout_n"], tags["rollout.validate"]] = root
    return Group(project, programs.report(project), spans, roots)


class TestTrees:
    """One trajectory is one tree."""

    def test_each_trajectory_is_one_tree_of_its_ops(self, group):
        """Each of the seven trajectories has one root, and under it the ops nested as they were called."""
        assert sorted(group.roots, key=str) == sorted(
            [
                *((sample, n, False) for sample in (12, "uid-a") for n in range(3)),
                (12, 0, True),
            ],
            key=str,
        )
        failed = {(12, 2, False), ("uid-a", 2, False)}
        for key, root in group.roots.items():
            assert root.shape() == ("trajectory", "AGENT", "ERROR" if key in failed else "UNSET", WHOLE)

    def test_phoenix_has_each_span_once_and_stats_say_so(self, group):
        """What otel-rollout counted as delivered is what Phoenix has, and nothing was lost."""
        assert len(group.spans) == 42
        assert group.report["flushed"] is True
        (counts,) = group.report["stats"]["exporters"].values()
        assert (counts["recorded"], counts["delivered"], counts["queued"], counts["lost"]) == (42, 42, 0, {})
        assert group.report["stats"]["internal_errors"] == {}


class TestTags:
    """The five tags stand on every span, with the type they were given in."""

    def test_every_span_has_the_five_tags_with_their_types(self, group):
        """Step and rollout_n are ints, sample_index is an int or a text, validate is a bool, experiment a text."""
        for (sample_index, rollout_n, validate), root in group.roots.items():
            for node in root.walk():
                tags = {key: value for key, value in node.attributes.items() if key.startswith("rollout.")}
                kept = {key: tags[key] for key in list(tags) if key in EXPECTED_TAGS}
                assert kept == {
                    "rollout.step": 7,
                    "rollout.sample_index": sample_index,
                    "rollout.rollout_n": rollout_n,
                    "rollout.validate": validate,
                    "rollout.experiment_name": f"{group.project}-experiment",
                }
                assert {key: type(value) for key, value in kept.items()} == {
                    **EXPECTED_TAGS,
                    "rollout.sample_index": type(sample_index),
                }

    def test_all_trajectories_of_a_step_are_found_by_its_number(self, group, phoenix):
        """Phoenix's attribute filter finds the spans of step 7, and none of step 8."""
        found = phoenix.api.spans(group.project, attribute="rollout.step:7", parent_id="null")
        assert {span["context"]["trace_id"] for span in found} == {
            root.span["context"]["trace_id"] for root in group.roots.values()
        }
        assert phoenix.api.spans(group.project, attribute="rollout.step:8") == []

    def test_validation_is_told_from_training_by_a_filter(self, group, phoenix):
        """Filtering by validate finds the one validation trajectory."""
        (found,) = phoenix.api.spans(group.project, attribute="rollout.validate:true", name="trajectory")
        assert found["context"] == group.trajectory(12, 0, validate=True).span["context"]

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ("metadata['step'] == 7", 7),
            ("metadata['step'] == 8", 0),
            ("metadata['sample_index'] == 12", 4),
            ("metadata['sample_index'] == 'uid-a'", 3),
            ("metadata['validate'] == True", 1),
            ("metadata['reward'] > 0.1", 2),
            ("metadata['status'] == 'truncated'", 1),
            ("metadata['sample_index'] == 12 and metadata['status'] == 'error'", 1),
        ],
    )
    def test_the_filter_bar_knows_tags_and_annotations(self, group, phoenix, condition, expected):
        """Conditions on the metadata, as users type them on Phoenix's page, find the roots that they describe."""
        roots = {root.span["context"]["span_id"] for root in group.roots.values()}
        found = phoenix.api.search(group.project, condition)
        assert len(found) == expected
        assert found <= roots

    def test_metadata_shows_tags_and_annotations_by_their_short_names(self, group):
        """Phoenix takes the root's metadata text apart, so that its filter bar knows each tag."""
        attributes = group.trajectory(12, 1).attributes
        metadata = {key.removeprefix("metadata."): attributes[key] for key in attributes if key.startswith("metadata.")}
        assert metadata == {
            "step": 7, "sample_index": 12, "rollout_n": 1, "validate": False,
            "experiment_name": f"{group.project}-experiment",
            "status": "completed", "reward": 0.25, "scorer": "exact", "turns": 2,
            "input_tokens": 6, "output_tokens": 6,
        }  # fmt: skip


EXPECTED_TAGS = {
    "rollout.step": int,
    "rollout.sample_index": object,
    "rollout.rollout_n": int,
    "rollout.validate": bool,
    "rollout.experiment_name": str,
}


class TestPayload:
    """Inputs and outputs are readable: a string as it is, anything else JSON."""

    def test_inputs_and_outputs_of_ops_are_their_arguments_and_results(self, group):
        """Each op shows its arguments by name, defaults included and self left out, and what it returned.

        The messages of an LLM op stand in an attribute of their own, with the last one's text in their place.
        """
        (agent,) = group.trajectory(12, 1).children
        first, calculator, lookup, second = agent.children
        question = "What is 8 → 9? [12/1]"
        shown = [(payload(node, "input"), payload(node, "output")) for node in (agent, first, calculator, second)]
        assert shown == [
            ({"question": question, "rollout_n": 1}, "turn 2: 8 → 9 = “72” (1)"),
            (
                {"prompt_text": question, "model": "toy-1", "temperature": 0.7},
                {"response_text": "turn 1: 8 → 9 = “72”", "prompt_ids": [1, 2, 1], "response_ids": [7, 2**31, 1]},
            ),
            ({"expression": "8*9"}, 72.0),
            (
                {"prompt_text": "…", "model": "toy-1", "temperature": 0.7},
                {"response_text": "turn 2: 8 → 9 = “72”", "prompt_ids": [1, 2, 2], "response_ids": [7, 2**31, 2]},
            ),
        ]
        given = [json.loads(node.attributes["gen_ai.input.messages"]) for node in (first, second)]
        assert [[message["role"] for message in messages] for messages in given] == [["user"], ["user", "assistant"]]
        assert payload(lookup, "input") == {"word": "gros"}
        assert "output.value" not in lookup.attributes

    def test_the_root_shows_the_prompt_and_the_answer(self, group):
        """What annotate was given as input and output is the root's, so that Phoenix's trace list shows it."""
        root = group.trajectory("uid-a", 1)
        assert payload(root, "input") == "What is 8 → 9? [uid-a/1]"
        assert payload(root, "output") == "turn 2: 8 → 9 = “72” (1)"

    def test_token_counts_are_summed_by_phoenix_from_the_llm_ops(self, group, phoenix):
        """Phoenix counts three prompt tokens and three generated ones for each of the two LLM ops."""
        counts = {
            trace["trace_id"]: (trace["token_count_prompt"], trace["token_count_completion"])
            for trace in phoenix.api.traces(group.project)
        }
        assert counts == {root.span["context"]["trace_id"]: (6, 6) for root in group.roots.values()}


class TestSessions:
    """The rollouts of one prompt are one session."""

    def test_a_session_holds_all_rollouts_of_one_prompt(self, group, phoenix):
        """Phoenix shows three sessions: two training prompts with three rollouts each, validation apart."""
        sessions = [
            {trace["trace_id"] for trace in session["traces"]} for session in phoenix.api.sessions(group.project)
        ]
        expected = [
            {group.trajectory(12, n).span["context"]["trace_id"] for n in range(3)},
            {group.trajectory("uid-a", n).span["context"]["trace_id"] for n in range(3)},
            {group.trajectory(12, 0, validate=True).span["context"]["trace_id"]},
        ]
        assert sorted(sessions, key=sorted) == sorted(expected, key=sorted)

    def test_two_runs_of_one_experiment_have_sessions_of_their_own(self, phoenix, programs, otlp):
        """A second run with the same names has groups of its own where OTEL_ROLLOUT_RUN_ID tells the runs apart."""
        for run in ("first", "second"):
            programs.run("group", "runs", OTEL_ROLLOUT_RUN_ID=run, **otlp(phoenix, "http/protobuf"))
        phoenix.api.wait_for_spans("runs", 84)
        assert sorted(len(session["traces"]) for session in phoenix.api.sessions("runs")) == [1, 1, 3, 3, 3, 3]


class TestOutcome:
    """How a trajectory ended can be seen and filtered."""

    def test_an_exception_stands_on_the_root_with_its_stack_trace(self, group):
        """The failed trajectory has the error's type and message as its status, and an exception event."""
        root = group.trajectory(12, 2)
        assert root.attributes["rollout.status"] == "error"
        assert root.attributes["error.type"] == "__main__.PolicyError"
        assert root.span["status_message"] == "__main__.PolicyError: the policy gave up"
        (event,) = root.span["events"]
        assert event["name"] == "exception"
        assert event["attributes"]["exception.type"] == "__main__.PolicyError"
        assert event["attributes"]["exception.message"] == "the policy gave up"
        assert 'raise PolicyError("the policy gave up")' in event["attributes"]["exception.stacktrace"]

    def test_an_error_that_the_agent_handles_stays_on_its_op(self, group):
        """A tool's KeyError marks the tool as failed, not the ops around it, nor the trajectory."""
        root = group.trajectory(12, 0)
        failed = [node for node in root.walk() if node.span["status_code"] == "ERROR"]
        assert [(node.name, node.attributes["error.type"], len(node.span["events"])) for node in failed] == [
            ("lookup", "KeyError", 1)
        ]

    def test_status_and_reward_of_each_trajectory(self, group):
        """Completed, failed, truncated and cancelled rollouts are told apart, each with the reward it was given."""
        shown = {
            key: (root.attributes["rollout.status"], root.attributes.get("rollout.reward"))
            for key, root in group.roots.items()
        }
        assert shown == {
            (12, 0, False): ("completed", 0.0),
            (12, 1, False): ("completed", 0.25),
            (12, 2, False): ("error", None),
            ("uid-a", 0, False): ("truncated", 0.0),
            ("uid-a", 1, False): ("completed", 0.25),
            ("uid-a", 2, False): ("cancelled", None),
            (12, 0, True): ("completed", 0.0),
        }


def payload(node: Node, side: str) -> Any:
    """Return one side of a span's payload: a string as it is, anything else parsed."""
    value, mime_type = node.attributes[f"{side}.value"], node.attributes[f"{side}.mime_type"]
    if mime_type == "text/plain":
        return value
    assert mime_type == "application/json"
    return json.loads(value)
