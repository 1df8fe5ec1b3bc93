"""The JSON of a run, its steps, groups, trajectories and spans."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import Event

from otel_rollout import semconv
from tests.trace_folder.recordings import START, json_line, make_span, make_trajectory, trace_id_of, write_folder
from tests.view.viewer import Viewer


def id_of(step: object, sample: object, rollout: object) -> str:
    return f"{trace_id_of(step, sample, rollout):032x}"


@pytest.fixture
def view(tmp_path: Path):
    """Start a viewer of trajectories."""
    started: list[Viewer] = []

    def start(*trajectories):
        write_folder(tmp_path / "traces", *trajectories)
        started.append(Viewer(tmp_path / "traces"))
        return started[-1].__enter__()

    yield start
    for viewer in started:
        viewer.__exit__()


class TestAnswers:
    """Values that JSON has no form for."""

    def test_an_integer_beyond_64_bits(self, tmp_path):
        """Another program may write it: it is shown as text, and nothing else is left out."""
        encoded = json_line(make_trajectory(1, 0, big=7)).replace(b'"intValue":"7"', b'"intValue":"%d"' % 10**30)
        place = tmp_path / "traces" / "other.jsonl"
        place.parent.mkdir()
        place.write_bytes(encoded + b"\n")
        with Viewer(place.parent) as viewer:
            spans = viewer.get(f"trajectory/{id_of(1, 0, 0)}")["spans"]
        assert [each["attributes"]["big"] for each in spans if "big" in each["attributes"]] == [str(10**30)]


class TestStep:
    """`api/step` and its timeline."""

    def test_a_step_has_groups_and_rollouts(self, viewer):
        """A step's answer has its groups, and a row for each trajectory in the order of prompts."""
        step = viewer.get("step/1")
        assert [group["rewards"] for group in step["groups"]] == [[0.0, 1.0], [0.0, 1.0]]
        rows = [dict(zip(step["columns"], row, strict=True)) for row in step["rows"]]
        assert [(row["sample_index"], row["rollout_n"], row["reward"], row["tool_calls"]) for row in rows] == [
            (0, 0, 0.0, 1),
            (0, 1, 1.0, 1),
            (1, 0, 0.0, 1),
            (1, 1, 1.0, 1),
        ]
        assert rows[0]["seconds"] == 1.0

    def test_the_newest_experiment_is_taken_if_none_is_asked_for(self, view):
        """A step that two experiments have is that of the later one; each has it by name."""
        later = [make_span("rollout", 1, 5, parent=None, seconds=(100, 101), attributes={
            semconv.SPAN_KIND: "AGENT", semconv.STEP: 1, semconv.SAMPLE_INDEX: 0, semconv.EXPERIMENT_NAME: "later",
        })]  # fmt: skip
        viewer = view(make_trajectory(1, 0, 0, experiment="earlier"), later)
        names = [
            viewer.get(path)["summary"]["experiment_name"]
            for path in ("step/1", "step/1?experiment=earlier", "step/1?experiment=later")
        ]
        assert names == ["later", "earlier", "later"]

    def test_validation_is_apart(self, view):
        """A step's validation is asked for by itself, and its training has none of it."""
        viewer = view(make_trajectory(1, 0, 0), make_trajectory(1, 0, 1, validate=True))
        found = [viewer.get(path)["rows"] for path in ("step/1", "step/1?validate=1")]
        assert [[row[2] for row in rows] for rows in found] == [[0], [1]]

    @pytest.mark.parametrize(
        ("path", "status"),
        [("step/7", 404), ("step/x", 400), ("step/1?experiment=other", 404), ("step/1?validate=1", 404),
         ("step/1/group?sample=9", 404), ("trajectory/ab", 404), ("nothing", 404), ("step/none", 404)],
    )  # fmt: skip
    def test_what_is_not_there_is_said_in_a_sentence(self, viewer, path, status):
        """Unknown steps, groups and trajectories are errors with a sentence."""
        answer = viewer.client.get(f"/api/{path}")
        assert answer.status_code == status
        assert len(answer.json()["error"].split()) > 3

    def test_the_timeline_has_a_lane_for_each_trajectory(self, viewer):
        """Lanes have what generated, ran or scored in microseconds from the step's start, and no span around others."""
        timeline = viewer.get("step/1/timeline")
        assert len(timeline["lanes"]) == 4
        lane = timeline["lanes"][0]
        assert (lane["start"], lane["end"]) == (0, 1_000_000)
        names = timeline["names"]
        generated, looked_up = names.index("generate"), names.index("look_up")
        assert lane["segments"] == [0, 0, 600_000, generated, 0, 1, 600_000, 300_000, looked_up, 0]
        assert int(timeline["end_time"]) - int(timeline["start_time"]) == 1_000_000_000


class TestFates:
    """What training made of trajectories."""

    def test_rows_and_groups_have_advantage_fate_and_reason(self, view):
        """A step's rows and a group's rollouts say what came of each, as its root does."""
        told = {semconv.ADVANTAGE: -0.707, semconv.FATE: "filtered", semconv.FATE_REASON: "reward is 0"}
        viewer = view(make_trajectory(1, 0, 0), make_trajectory(1, 0, 1, status="cancelled", **told))
        step = viewer.get("step/1")
        rows = [dict(zip(step["columns"], row, strict=True)) for row in step["rows"]]
        assert [(row["status"], row["advantage"], row["fate"]) for row in rows] == [
            ("completed", None, None),
            ("cancelled", -0.707, "filtered"),
        ]
        summary = viewer.get("step/1/group?sample=0")["rollouts"][1]["summary"]
        assert (summary["advantage"], summary["fate"], summary["fate_reason"]) == (-0.707, "filtered", "reward is 0")


class TestGroup:
    """`api/step/…/group`."""

    def test_a_group_has_the_conversations_of_its_rollouts(self, viewer):
        """A group's answer has each rollout's summary and conversation, and its neighbours."""
        group = viewer.get("step/1/group?sample=0")
        assert [each["summary"]["rollout_n"] for each in group["rollouts"]] == [0, 1]
        told = group["rollouts"][0]["conversation"]
        assert [(each["role"], each["text"], each["turn"]) for each in told] == [
            ("user", "hello", None),
            ("assistant", "hello", 1),
            ("tool", "hello", None),
        ]
        assert (group["previous"], group["next"]) == (None, 1)
        assert [other["step"] for other in group["other_steps"]] == [2]

    @pytest.mark.parametrize("sample", ["a/b", "ä ?&#%", "../x", "1e5", ".", "..", "two\nlines", "a\0b"])
    def test_a_prompt_may_have_any_name(self, view, sample):
        """Prompts are found by whatever text names them in the dataset."""
        from urllib.parse import quote

        viewer = view(make_trajectory(1, sample, 0))
        assert viewer.get(f"step/1/group?sample={quote(sample, safe='')}")["summary"]["sample_index"] == sample


class TestTrajectory:
    """`api/trajectory` and its spans."""

    def test_a_trajectory_has_conversation_and_spans(self, viewer):
        """A trajectory's answer has its messages with their spans, its spans by start, and its neighbours."""
        answer = viewer.get(f"trajectory/{id_of(1, 0, 0)}")
        assert [each["span_id"] for each in answer["conversation"]] == [None, f"{2:016x}", f"{3:016x}"]
        spans = [(each["name"], each["kind"], each["parent_id"], each["turn"]) for each in answer["spans"]]
        assert spans == [
            ("rollout", "AGENT", None, None),
            ("generate", "LLM", f"{1:016x}", 1),
            ("look_up", "TOOL", f"{1:016x}", None),
        ]
        assert [each["conversation"] for each in answer["conversation"]] == [1, 1, 1]
        assert [each["conversation"] for each in answer["spans"]] == [None, 1, 1]
        (main,) = answer["conversations"]
        assert (main["id"], main["kind"], main["turns"], main["start_time"]) == (1, "main", [1], START)
        assert answer["spans"][0]["start_time"] == str(START)
        assert answer["group"] == {"step": 1, "validate": False, "experiment": "exp", "run": None, "sample_index": 0}
        assert (answer["previous"], answer["next"]) == (None, id_of(1, 0, 1))

    def test_a_long_payload_is_cut_and_whole_in_its_span(self, view):
        """A long text is cut in lists, which say by how much; the answer of its span has it whole."""
        text = "long " * 100_000
        viewer = view(make_trajectory(payload=json.dumps(text)))
        trace_id = id_of(1, 0, 0)
        answer = viewer.get(f"trajectory/{trace_id}")
        span = answer["spans"][1]
        shown = span["attributes"][semconv.INPUT_VALUE]
        assert len(shown) + span["cut"][semconv.INPUT_VALUE] == len(json.dumps(text))
        told = answer["conversation"][0]
        assert len(told["text"]) + told["cut"] == len(text)
        whole = viewer.get(f"trajectory/{trace_id}/span/{span['span_id']}")
        assert json.loads(whole["attributes"][semconv.INPUT_VALUE]) == text
        assert whole["cut"] == {}

    def test_an_exception_has_its_traceback(self, view):
        """A failed span has its error, and the exception's event with the traceback."""
        facts = {"exception.type": "a.B", "exception.message": "no", "exception.stacktrace": "T"}
        event = Event("exception", facts, START)
        spans = make_trajectory(status="error")
        spans[1] = make_span(
            "look_up", 3, trace_id_of(1, 0, 0), error="no", events=(event,), attributes={semconv.SPAN_KIND: "TOOL"}
        )
        answer = view(spans).get(f"trajectory/{id_of(1, 0, 0)}")
        failed = next(span for span in answer["spans"] if span["name"] == "look_up")
        assert (failed["status"], failed["error"]) == ("error", "B: no")
        assert failed["events"][0]["attributes"]["exception.stacktrace"] == "T"
        assert [each["is_error"] for each in answer["conversation"]] == [False, False, True]

    def test_reasoning_is_apart_from_the_answer(self, view):
        """What a model thinks before its answer is the message's reasoning, closed or not."""
        for payload, expected in [
            ("<think>\nhm\n</think>\n\nyes", ("hm", "yes")),
            ("<think>\nstill", ("still", "")),
            ("yes <think>", (None, "yes <think>")),
        ]:
            spans = make_trajectory(1, payload, 0)
            attributes = {**spans[0].attributes, semconv.OUTPUT_VALUE: json.dumps({"response_text": payload})}
            spans[0] = make_span("generate", 2, trace_id_of(1, payload, 0), attributes=attributes)
            told = view(spans).get(f"trajectory/{id_of(1, payload, 0)}")["conversation"][1]
            assert (told["reasoning"], told["text"]) == expected

    def test_a_span_that_is_not_there_is_said(self, viewer):
        """An unknown span of a known trajectory is not found."""
        assert viewer.client.get(f"/api/trajectory/{id_of(1, 0, 0)}/span/ff").status_code == 404


class TestTokens:
    """Token ids and prefix breaks."""

    def turns(self, *turns):
        """A trajectory with these turns: prompt ids, their start, response ids, and whether the prefix is broken."""
        trace_id = trace_id_of(1, 0, 0)
        spans = []
        for number, (prompt, start, response, is_broken) in enumerate(turns):
            asked = {"prompt_text": "p", "prompt_ids": prompt, **({"prompt_ids_start": start} if start else {})}
            attributes = {
                semconv.SPAN_KIND: "LLM",
                semconv.USAGE_INPUT_TOKENS: len(prompt),
                semconv.INPUT_VALUE: json.dumps(asked),
                semconv.OUTPUT_VALUE: json.dumps({"response_text": "r", "token_ids": response}),
                **({semconv.PREFIX_BROKEN: True} if is_broken else {}),
            }
            seconds = (number, number + 1)
            spans.append(make_span("generate", number + 2, trace_id, seconds=seconds, attributes=attributes))
        return [*spans, make_trajectory()[-1]]

    def test_a_generation_has_its_tokens(self, view):
        """A generated message has the ids and the number of its tokens."""
        told = view(self.turns(([1, 2], 0, [3], False))).get(f"trajectory/{id_of(1, 0, 0)}")["conversation"]
        assert [(each["token_ids"], each["tokens"]) for each in told if each["role"] == "assistant"] == [
            ([3], {"input": 2, "output": None})
        ]

    @pytest.mark.parametrize(
        ("turns", "expected"),
        [
            ([([1, 2], 0, [3], False), ([1, 9, 3, 4], 0, [5], True)], {"at": 1, "expected": 2, "got": 9}),
            ([([1], 0, [2], 0), ([3], 2, [4], 0), ([1, 2, 3, 5], 0, [], 1)], {"at": 3, "expected": 4, "got": 5}),
            ([([1], 0, [2, 3], False), ([1, 2], 0, [4], True)], {"at": 2, "expected": 3, "got": None}),
            ([([1], 7, [2], False), ([1, 5], 0, [4], True)], {"at": None, "expected": None, "got": None}),
        ],
    )  # fmt: skip
    def test_a_prefix_break_has_its_first_token(self, view, turns, expected):
        """The prompt of a broken turn is compared with the turns before it, whose prompts are recorded in parts."""
        spans = view(self.turns(*turns)).get(f"trajectory/{id_of(1, 0, 0)}")["spans"]
        assert [span["prefix_break"] for span in spans if span["prefix_break"]] == [expected]


class TestFindings:
    """`api/findings`."""

    def test_are_those_of_diagnose(self, view):
        """A run's and a step's findings have their evidence; a step without any has none."""
        viewer = view(
            *(
                make_trajectory(step, sample, rollout, status="truncated" if step == 2 else "completed", reward=rollout)
                for step in (1, 2)
                for sample in range(8)
                for rollout in range(2)
            )
        )
        (finding,) = (each for each in viewer.get("findings")["findings"] if each["check"] == "truncated")
        assert (finding["steps"], finding["number"], finding["severity"]) == ([2], 16, "warning")
        assert finding["evidence"][0]["address"] == "#/step/2/sample/0/rollout/0?experiment=exp"
        assert [each["check"] for each in viewer.get("findings?step=2")["findings"] if each["check"] == "truncated"]
        assert not [each for each in viewer.get("findings?step=1")["findings"] if each["check"] == "truncated"]
