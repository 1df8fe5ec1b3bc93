"""verl's own worker, tool agent loop, client, balancer and reward worker in one process; engine and vocabulary fake."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from otel_rollout import semconv
from tests.integrations.verl.conftest import PROGRAMS, Run, RunProgram, traced

pytestmark = pytest.mark.integration

TOKEN2TEXT = "actor_rollout_ref.rollout.trace.token2text=True"
STEP = {"prompts": ["plan a", "broken b", "long c"], "n": 2, "step": 6}

TURN = ["LLMServerClient.generate", "HermesToolParser.extract_tool_calls"]
REWARD = ["RewardLoopWorker.compute_score", "judge"]


NOT_OURS = {"telemetry.sdk.language", "telemetry.sdk.name", "telemetry.sdk.version"}


def unlisted_keys(run: Run) -> set[str]:
    """Return the keys of spans, events and resources that the table of attributes does not list."""
    keys: set[str] = set()
    for span in run.spans:
        keys |= span["attributes"].keys() | span["resource"].keys()
        for event in span.get("events", ()):
            keys |= event.keys() - {"name", "timestamp", "time"}
    return keys - {row.key for row in semconv.ATTRIBUTES} - NOT_OURS


@pytest.fixture(scope="module")
def step(run_program: RunProgram) -> Run:
    """A step, which the same process has run untraced before."""
    return run_program("run_worker.py", batches=[STEP], overrides=traced(TOKEN2TEXT), untraced_first=True)


@pytest.fixture(scope="module")
def untraced(run_program: RunProgram) -> Run:
    """The same step in a process that never traces."""
    return run_program("run_worker.py", batches=[STEP])


@pytest.fixture(scope="module")
def own_loop(run_program: RunProgram) -> Run:
    """A traced step of an agent loop of the user's own, on top of verl's."""
    loop = [
        "actor_rollout_ref.rollout.agent.default_agent_loop=scored_agent",
        f"actor_rollout_ref.rollout.agent.agent_loop_config_path={PROGRAMS / 'scored_loop.yaml'}",
    ]
    return run_program("run_worker.py", batches=[{"prompts": ["plan a"], "n": 1, "step": 6}], overrides=traced(*loop))


class TestTree:
    """The spans of a trajectory."""

    def test_every_trajectory_is_one_whole_tree(self, step: Run) -> None:
        """Each of the 6 trajectories is one trace with one root, no orphan and nothing left over."""
        assert [trace[0]["name"] for trace in step.traces()] == ["agent_loop"] * 6
        for trace in step.traces():
            ids = {span["span_id"] for span in trace}
            assert all(span["parent_id"] in ids for span in trace[1:])

    def test_spans_of_a_trajectory(self, step: Run) -> None:
        """Turns, tools and reward stand where they ran, the reward function in its thread included."""
        trace = step.trace_of("plan a")
        names = [span["name"] for span in trace]
        assert names == ["agent_loop", "ToolAgentLoop.run", *TURN, "add", *TURN, "calculator", *TURN, *REWARD]
        by_id = {span["span_id"]: span["name"] for span in trace}
        parents = {span["name"]: by_id.get(span["parent_id"]) for span in trace}
        assert parents == {
            "agent_loop": None,
            "ToolAgentLoop.run": "agent_loop",
            "LLMServerClient.generate": "ToolAgentLoop.run",
            "HermesToolParser.extract_tool_calls": "ToolAgentLoop.run",
            "add": "ToolAgentLoop.run",
            "calculator": "ToolAgentLoop.run",
            "RewardLoopWorker.compute_score": "agent_loop",
            "judge": "RewardLoopWorker.compute_score",
        }

    def test_tags_are_on_every_span(self, step: Run) -> None:
        """Every span says which trajectory it belongs to, in native types."""
        for trace in step.traces():
            tags = {key: trace[0]["attributes"][key] for key in ("rollout.step", "rollout.sample_index")}
            assert tags["rollout.step"] == 6
            for span in trace:
                attributes = span["attributes"]
                assert tags.items() <= attributes.items()
                assert attributes["rollout.validate"] is False
                assert attributes["rollout.experiment_name"] == "exp-1"

    def test_every_key_is_in_the_table(self, step: Run) -> None:
        """Every attribute of every span, event and resource is one that the table of attributes lists."""
        assert unlisted_keys(step) == set()

    def test_the_project_is_the_trainers(self, step: Run) -> None:
        """trainer.project_name is the project of every span."""
        assert {span["resource"]["rollout.project_name"] for span in step.spans} == {"verl-project"}


class TestTrajectory:
    """Attributes of the root span."""

    def test_facts_on_the_root(self, step: Run) -> None:
        """The root says what came of the trajectory, as far as verl knows it."""
        attributes = step.trace_of("plan a")[0]["attributes"]
        expected = {
            "rollout.status": "completed",
            "rollout.uid": "uid-0",
            "rollout.dataset_index": 10,
            "rollout.data_source": "arithmetic",
            "rollout.num_turns": 6,
            "rollout.turns": 3,
            "rollout.tool_calls": 2,
            "rollout.tool_errors": 0,
            "rollout.tool_rewards": [0.0, 0.25],
            "rollout.finish_reason": "completed",
            "rollout.min_weights_version": 4,
            "rollout.max_weights_version": 4,
            "rollout.staleness": 1,
            "rollout.cached_tokens": 21,
            "rollout.preemptions": 0,
        }
        assert expected.items() <= attributes.items()
        assert json.loads(attributes["rollout.reward_parts"])["acc"] is True
        assert attributes["rollout.reward"] == json.loads(attributes["rollout.reward_parts"])["score"]
        assert attributes["rollout.model_tokens"] == attributes["rollout.output_tokens"]
        assert attributes["rollout.response_length"] > attributes["rollout.model_tokens"]
        assert attributes["rollout.prompt_length"] > 0
        for key in ("rollout.generate_seconds", "rollout.tool_seconds", "rollout.score_seconds"):
            assert attributes[key] > 0

    def test_input_is_the_prompt_and_output_the_final_text(self, step: Run) -> None:
        """The root goes from the raw prompt's text to the final text and the reward."""
        attributes = step.trace_of("plan a")[0]["attributes"]
        assert attributes["input.value"] == "plan a"
        assert attributes["output.value"]["response_text"].startswith("The answer to 'plan a' is ")
        assert attributes["output.value"]["reward"] == attributes["rollout.reward"]

    def test_the_conversation(self, step: Run) -> None:
        """The root has the raw prompt, then what each turn said and was given, in order; a turn what is new in it."""
        trace = step.trace_of("plan a")
        root = trace[0]["attributes"]
        turns = [span["attributes"] for span in trace if span["name"] == TURN[0]]
        assert root["gen_ai.input.messages"][0] == {"role": "user", "parts": [{"type": "text", "content": "plan a"}]}
        answers = [turn["gen_ai.output.messages"][0] for turn in turns]
        said = [message for message in root["gen_ai.input.messages"] if message["role"] == "assistant"]
        assert [message["parts"] for message in said] == [answer["parts"] for answer in answers[:-1]]
        assert root["gen_ai.output.messages"] == [answers[-1]]
        assert [turn["rollout.turn"] for turn in turns] == [1, 2, 3]
        assert all(len(turn["gen_ai.input.messages"]) < len(root["gen_ai.input.messages"]) for turn in turns)

    def test_a_full_response_is_truncated(self, step: Run) -> None:
        """A response that fills its limit is truncated, though the engine says it was completed."""
        trace = step.trace_of("long c")
        assert trace[0]["attributes"]["rollout.status"] == "truncated"
        assert trace[0]["attributes"]["rollout.finish_reason"] == "length"
        assert trace[0]["attributes"]["rollout.response_length"] == 1024
        assert trace[2]["attributes"]["gen_ai.response.finish_reasons"] == ["completed"]


class TestTurn:
    """Attributes of a turn."""

    def test_attributes_of_a_turn(self, step: Run) -> None:
        """Each generate says who made it, from what, and with which weights."""
        turns = [span for span in step.trace_of("plan a") if span["name"] == TURN[0]]
        assert len({span["attributes"]["rollout.request_id"] for span in turns}) == 1
        assert {span["attributes"]["gen_ai.request.model"] for span in turns} == {"model"}
        assert len({span["attributes"]["rollout.server"] for span in turns}) == 1
        assert len({span["attributes"]["rollout.engine_request_id"] for span in turns}) == 3
        for span in turns:
            attributes = span["attributes"]
            assert attributes["openinference.span.kind"] == "LLM"
            assert attributes["rollout.max_weights_version"] == 4
            assert attributes["gen_ai.usage.cache_read.input_tokens"] == 7
            assert attributes["gen_ai.usage.output_tokens"] == len(attributes["output.value"]["token_ids"])
            assert attributes["gen_ai.usage.input_tokens"] > 0

    def test_text_beside_the_ids(self, step: Run) -> None:
        """token2text shows the text of the run and of each turn."""
        trace = step.trace_of("plan a")
        run = next(span for span in trace if span["name"] == "ToolAgentLoop.run")["attributes"]["output.value"]
        assert "plan a" in run["prompt_text"]
        assert "The answer" in run["response_text"]
        turns = [span["attributes"]["output.value"] for span in trace if span["name"] == TURN[0]]
        assert [turn["response_text"][:8] for turn in turns] == ["I call a", "I call c", "The answ"]

    def test_a_turn_shows_what_is_new(self, step: Run) -> None:
        """Later turns leave out the ids that earlier ones have shown; together they are the whole conversation."""
        trace = step.trace_of("plan a")
        run = next(span for span in trace if span["name"] == "ToolAgentLoop.run")["attributes"]["output.value"]
        ids: list[int] = []
        for span in trace:
            if span["name"] == TURN[0]:
                shown = span["attributes"]["input.value"]
                assert shown.get("prompt_ids_start", 0) == len(ids)
                ids += shown["prompt_ids"] + span["attributes"]["output.value"]["token_ids"]
        assert ids == run["prompt_ids"] + run["response_ids"]

    def test_nothing_is_a_repr(self, step: Run) -> None:
        """No payload shows an object by its address."""
        assert " object at 0x" not in json.dumps(step.spans)


class TestTools:
    """Attributes of a tool call."""

    def test_function_tool_and_overriding_tool(self, step: Run) -> None:
        """A function tool, and a tool that overrides execute without the decorator, are TOOL spans."""
        spans = {span["name"]: span["attributes"] for span in step.trace_of("plan a")}
        assert spans["add"]["openinference.span.kind"] == spans["calculator"]["openinference.span.kind"] == "TOOL"
        assert spans["add"]["input.value"] == {"name": "add", "arguments": {"a": 1, "b": 2}}
        assert spans["add"]["output.value"] == {"text": "3", "reward": 0.0}
        assert spans["calculator"]["gen_ai.tool.name"] == "calculator"
        assert spans["calculator"]["output.value"] == {"text": "6", "reward": 0.25, "metrics": {"calls": 1}}
        assert spans["calculator"]["rollout.tool_reward"] == 0.25

    def test_failures_that_verl_makes_text_of(self, step: Run) -> None:
        """An exception, an unknown tool and wrong arguments are errors on the tool's span, counted on the root."""
        trace = step.trace_of("broken b")
        tools = [span for span in trace if span["attributes"]["openinference.span.kind"] == "TOOL"]
        assert [span["name"] for span in tools] == ["fail", "unknown_tool", "add", "calculator"]
        assert tools[1]["attributes"]["rollout.requested_tool"] == "nothing"
        assert {span["status"] for span in tools} == {"ERROR"}
        assert tools[0]["attributes"]["error.type"] == "RuntimeError"
        assert tools[0]["events"][0]["exception.message"] == "no luck"
        assert "there is no tool of this name" in tools[1]["description"]
        assert tools[3]["attributes"]["error.type"] == "NameError"
        assert trace[0]["attributes"]["rollout.tool_errors"] == 4
        assert trace[0]["attributes"]["rollout.status"] == "completed"

    @pytest.mark.slow
    def test_call_that_the_parser_can_not_read(self, run_program: RunProgram) -> None:
        """A call that is no JSON, of which verl's parser only says a word in the log, is a failed tool call as well."""
        options = {"batches": [{"prompts": ["garbled d"], "n": 1, "step": 6}]}
        run = run_program("run_worker.py", overrides=traced(), **options)
        [trace] = run.traces()
        [call] = [span for span in trace if span["attributes"]["openinference.span.kind"] == "TOOL"]
        assert (call["name"], call["status"]) == ("unreadable_tool_call", "ERROR")
        assert call["description"].startswith("Failed to decode tool call: ")
        assert call["attributes"]["error.type"] == "JSONDecodeError"
        assert call["attributes"]["input.value"]["text"].strip().startswith('{"name": "add"')
        assert trace[0]["attributes"]["rollout.tool_calls"] == trace[0]["attributes"]["rollout.tool_errors"] == 1
        assert trace[0]["attributes"]["rollout.status"] == "completed"
        assert run.output.count("Failed to decode tool call: ") == 1
        assert run.digest == run_program("run_worker.py", **options).digest


class TestTraining:
    """Training is the same with tracing."""

    def test_tokens_are_the_same(self, step: Run) -> None:
        """Training gets the same batch with tracing on and off."""
        assert step.digest == (step.folder / "untraced").read_text()

    @pytest.mark.slow
    def test_tokens_are_those_of_a_process_that_never_traces(self, step: Run, untraced: Run) -> None:
        """Training gets the same batch where tracing was never on."""
        assert step.digest == untraced.digest
        assert untraced.spans == []

    @pytest.mark.slow
    def test_tokenizers_are_not_shared_between_threads(self, run_program: RunProgram, untraced: Run) -> None:
        """Two exporters' threads decode with a copy, which no thread of verl uses, and theirs by none of ours."""
        run = run_program(
            "run_worker.py",
            batches=[STEP],
            watch_tokenizers=True,
            overrides=traced(TOKEN2TEXT, backend="[json,console]"),
            variables={"OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS": ""},
        )
        used = list(json.loads((run.folder / "threads").read_text()).values())
        ours = [[name.startswith("otel-rollout") for name in names] for names in used]
        assert [True in each for each in ours].count(True) == 1
        assert all(all(each) or not any(each) for each in ours)
        assert run.digest == untraced.digest

    @pytest.mark.slow
    def test_faults_change_nothing(self, run_program: RunProgram, untraced: Run) -> None:
        """Exporters that raise and hang, and a tokenizer that raises in delivery, change nothing in training."""
        run = run_program(
            "run_worker.py",
            batches=[STEP],
            overrides=traced(TOKEN2TEXT, backend="'json,broken,hanging'"),
            bad_tokenizer=True,
            variables={"OTEL_ROLLOUT_SHUTDOWN_TIMEOUT_MS": "3000", "OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS": ""},
        )
        assert run.digest == untraced.digest
        assert len(run.roots()) == 6

    @pytest.mark.slow
    def test_a_backend_that_is_not_there(self, run_program: RunProgram, untraced: Run) -> None:
        """An unknown backend is one warning that says that nothing is traced."""
        run = run_program("run_worker.py", batches=[STEP], overrides=traced(backend="nowhere"))
        assert run.output.count("verl: nothing is traced: no exporter is called 'nowhere'") == 1
        assert run.digest == untraced.digest

    @pytest.mark.slow
    def test_off(self, run_program: RunProgram, untraced: Run) -> None:
        """OTEL_ROLLOUT_VERL=off leaves verl as it is."""
        run = run_program("run_worker.py", batches=[STEP], overrides=traced(), variables={"OTEL_ROLLOUT_VERL": "off"})
        assert run.digest == untraced.digest
        assert run.spans == []


@pytest.mark.slow
class TestFullyAsync:
    """Turns that are aborted and resumed."""

    def test_one_span_per_turn(self, run_program: RunProgram) -> None:
        """An aborted and resumed turn is one span with the abort and the resumption as events; steps are unknown."""
        run = run_program(
            "run_worker.py",
            fully_async=True,
            engine={"aborts": 1},
            batches=[{"prompts": ["plan a"], "n": 2, "step": None}],
            overrides=traced(),
        )
        turns = [span for span in run.spans if span["name"].endswith("generate")]
        assert Counter(span["name"] for span in turns) == {"FullyAsyncLLMServerClient.generate": 6}
        aborted = [span for span in turns if span.get("events")]
        assert aborted
        for span in aborted:
            assert [event["name"] for event in span["events"]] == ["generation.aborted", "generation.resumed"]
            assert [event["rollout.weights_version"] for event in span["events"]] == [4, 5]
            assert span["attributes"]["rollout.max_weights_version"] == 5
        assert unlisted_keys(run) == set()
        roots = [root["attributes"] for root in run.roots()]
        assert {(root["rollout.sample_index"], root["rollout.rollout_n"]) for root in roots} == {
            ("uid-0", 0),
            ("uid-0", 1),
        }
        assert {root["rollout.sample_index_from"] for root in roots} == {"uid"}

    def test_the_whole_rollouter(self, run_program: RunProgram) -> None:
        """verl's own FullyAsyncRollouter, two epochs of a dataset without an index: every trajectory is its own."""
        options = {"prompts": ["plan a", "plan b"], "epochs": 2, "engine": {"aborts": 1}}
        run = run_program("run_fully_async.py", overrides=traced(), **options)
        samples = json.loads((run.folder / "samples").read_text())
        assert samples == ["sample_0_1", "sample_0_2", "sample_1_3", "sample_1_4"]
        roots = [root["attributes"] for root in run.roots()]
        assert {(root["rollout.sample_index"], root["rollout.rollout_n"]) for root in roots} == {
            (f"uid_{sample}", number) for sample in samples for number in range(2)
        }
        assert {root["rollout.step"] for root in roots} == {-1}
        assert len({root["session.id"] for root in roots}) == 4
        assert all({"rollout.reward", "rollout.max_weights_version"} <= root.keys() for root in roots)
        for trace in run.traces():
            ids = {span["span_id"] for span in trace}
            assert all(span["parent_id"] in ids for span in trace[1:])
            assert len([span for span in trace if span["name"] == "FullyAsyncLLMServerClient.generate"]) == 3
        assert run.digest == run_program("run_fully_async.py", **options).digest


@pytest.mark.slow
class TestOwnAgentLoop:
    """An agent loop of the user's own, on top of verl's."""

    def test_turn_scores_and_tool_rewards(self, own_loop: Run) -> None:
        """The root says what the loop scored each turn with, and what its tools rewarded."""
        [root] = own_loop.roots()
        assert root["attributes"]["rollout.turn_scores"] == [0.5, 1.0, 1.5]
        assert root["attributes"]["rollout.tool_rewards"] == [0.0, 0.25]

    def test_state_of_the_loop_is_readable(self, own_loop: Run) -> None:
        """verl's AgentData is shown as JSON, as an argument and as a result: what a turn adds, and no object's repr."""
        scores = [span["attributes"] for span in own_loop.spans if span["name"] == "ScoredAgentLoop.score"]
        assert len(scores) == 3
        given, returned = scores[1]["input.value"]["agent_data"], scores[1]["output.value"]
        for shown in (given, returned):
            assert shown["messages"] == 4
            assert shown["last_message"]["role"] == "assistant"
            assert shown["tool_rewards"] == [0.0]
            assert shown["assistant_turns"] == 2
            assert shown["tool_calls"][0]["name"] == "calculator"
        assert "prompt_ids" not in given
        assert scores[1]["input.value"]["sampling_params"]["temperature"] == 1.0
        assert " object at 0x" not in json.dumps(own_loop.spans)


@pytest.mark.slow
class TestIdentity:
    """Identity of trajectories."""

    def test_padding_of_a_validation_batch(self, run_program: RunProgram) -> None:
        """Rows that verl's own padding repeats are rollouts with numbers of their own, beyond those of the prompt."""
        run = run_program(
            "run_worker.py",
            workers=4,
            overrides=traced(),
            batches=[
                {"prompts": ["a", "b", "c"], "n": 1, "step": 2, "validate": True, "padded": True},
                {"prompts": ["a"], "n": 2, "step": 4, "validate": True, "padded": True},
                {"prompts": ["a", "b", "c"], "n": 1, "step": 6, "validate": True, "padded": True, "indices": [0, 0, 0]},
            ],
        )
        roots = [root["attributes"] for root in run.roots()]
        found = Counter(
            (root["rollout.step"], root["rollout.sample_index"], root["rollout.rollout_n"]) for root in roots
        )
        expected = [(2, 10, 0), (2, 10, 1), (2, 11, 0), (2, 12, 0), *((4, 10, number) for number in range(4))]
        expected += [(6, "uid-0", 0), (6, "uid-0", 1), (6, "uid-1", 0), (6, "uid-2", 0)]
        assert found == Counter(expected)
        assert {root["rollout.validate"] for root in roots} == {True}
        assert len({span["trace_id"] for span in run.roots()}) == len(expected)
        assert len({root["session.id"] for root in roots}) == 3 + 1 + 3

    def test_no_two_trajectories_are_the_same(self, run_program: RunProgram) -> None:
        """Groups split over workers, and indices that are all zero or shared: every trajectory has its own."""
        run = run_program(
            "run_worker.py",
            workers=2,
            overrides=traced(),
            batches=[
                {"prompts": ["a", "b", "c", "d"], "n": 3, "step": 1},
                {"prompts": ["a", "b", "c"], "n": 2, "step": 2, "indices": [0, 0, 0]},
                {"prompts": ["a", "b"], "n": 2, "step": 2, "validate": True, "indices": [5, 6]},
            ],
        )
        roots = [root["attributes"] for root in run.roots()]
        keys = ("rollout.step", "rollout.sample_index", "rollout.rollout_n", "rollout.validate")
        assert len({tuple(root[key] for key in keys) for root in roots}) == len(roots) == 12 + 6 + 4
        assert {root["rollout.rollout_n_from"] for root in roots} == {"batch"}
        first = [root for root in roots if root["rollout.step"] == 1]
        assert {root["session.id"].rpartition(" · ")[0] for root in first} == {
            f"s{index} · step 1" for index in range(10, 14)
        }
        zero = [root for root in roots if root["rollout.step"] == 2 and not root["rollout.validate"]]
        assert {root["rollout.sample_index_from"] for root in zero} == {"uid"}
        groups = Counter((root["session.id"], root["rollout.uid"]) for root in zero)
        assert list(groups.values()) == [2, 2, 2]

    def test_a_share_of_the_samples(self, run_program: RunProgram) -> None:
        """max_samples_per_step_per_worker traces that many samples with all their rollouts."""
        setting = "actor_rollout_ref.rollout.trace.max_samples_per_step_per_worker=1"
        run = run_program(
            "run_worker.py", overrides=traced(setting), batches=[{"prompts": ["a", "b", "c"], "n": 2, "step": 1}]
        )
        assert len(run.roots()) == 2
        assert len({root["attributes"]["rollout.uid"] for root in run.roots()}) == 1
