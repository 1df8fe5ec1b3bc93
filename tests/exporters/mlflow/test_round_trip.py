"""The exporter's traces, read back by mlflow's own client, from a server and from a SQLite file."""

from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode

from otel_rollout.export import send_batch
from otel_rollout.export.outcome import Verdict
from otel_rollout_mlflow import MlflowSpanExporter

pytestmark = pytest.mark.integration

INT64_MAX = 2**63 - 1


def deliver(exporter, spans) -> None:
    outcome = exporter.send(spans)
    assert outcome.verdict is Verdict.DELIVERED, outcome.reason
    assert exporter.force_flush(), exporter.follow_up_requests.last_error


class TestTrajectory:
    """One trajectory is one trace, and its ops are the trace's spans."""

    def test_trace_and_spans_arrive_whole(self, uri, project, trajectory, read_back) -> None:
        """Names, parents, types, inputs, outputs, status, exception, links and times come back as they were."""
        one = trajectory(project)
        deliver(MlflowSpanExporter(tracking_uri=uri), one.spans)

        trace = read_back(uri, project).trace(one.mlflow_id)

        assert (trace.info.state, trace.info.execution_duration) == ("OK", 10_000)
        spans = {span.name: span for span in trace.data.spans}
        assert {
            name: (span.span_type, span.inputs, span.outputs, str(span.status.status_code))
            for name, span in spans.items()
        } == {
            "trajectory": (
                "AGENT",
                {"messages": [{"role": "user", "content": "What is 2+2?"}]},
                {"rollout": 0, "output": "4"},
                "SpanStatusCode.UNSET",
            ),
            "generate": (
                "LLM",
                {"messages": [{"role": "user", "content": "What is 2+2?"}]},
                {"text": "4", "ids": [19, 20]},
                "SpanStatusCode.UNSET",
            ),
            "calculator": ("TOOL", {"expression": "1/0"}, None, "SpanStatusCode.ERROR"),
        }
        for source in one.spans:
            stored = spans[source.name]
            assert (stored.start_time_ns, stored.end_time_ns) == (source.start_time, source.end_time)
            assert stored.parent_id == (f"{source.parent.span_id:016x}" if source.parent else None)
            assert stored.attributes["rollout.step"] == 1
        tool = spans["calculator"]
        assert tool.status.description == "ZeroDivisionError: division by zero"
        assert [(event.name, event.timestamp, event.attributes) for event in tool.events] == [
            ("exception", one.tool.events[0].timestamp, dict(one.tool.events[0].attributes))
        ]
        assert [(link.trace_id, link.span_id, link.attributes) for link in tool.links] == [
            ("tr-" + f"{0xABC:032x}", f"{0xDEF:016x}", {"reason": "retry"})
        ]

    def test_five_tags_find_it(self, uri, project, trajectory, read_back) -> None:
        """Each of verl's five tags, and the status, finds the trajectory with `search_traces`."""
        one, other = trajectory(project), trajectory(project, step=2, sample_index=8, rollout_n=3)
        deliver(MlflowSpanExporter(tracking_uri=uri), [*one.spans, *other.spans])
        back = read_back(uri, project)

        for clause in ("tags.step = '1'", "tags.sample_index = '7'", "tags.rollout_n = '0'"):
            assert [trace.info.trace_id for trace in back.traces(clause)] == [one.mlflow_id], clause
        for clause in ("tags.validate = 'False'", "tags.experiment_name = 'exp-1'", "tags.status = 'completed'"):
            assert len(back.traces(clause)) == 2, clause

    def test_session_name_and_usage(self, uri, project, trajectory, read_back) -> None:
        """The trace has the group as its session, step, sample and rollout in its name, and its model calls' tokens."""
        one = trajectory(project)
        deliver(MlflowSpanExporter(tracking_uri=uri), one.spans)

        info = read_back(uri, project).trace(one.mlflow_id).info

        assert info.trace_metadata["mlflow.trace.session"] == "exp-1/1/7"
        assert info.tags["mlflow.traceName"] == "s7 · r0 · step 1 · trajectory"
        assert info.token_usage["total_tokens"] == 15

    def test_previews_show_the_messages(self, uri, project, trajectory, read_back) -> None:
        """A root whose input and output are chat messages is shown in the list by their text."""
        one = trajectory(
            project,
            root_attributes={
                "input.value": '[{"role":"system","content":"Be brief."},{"role":"user","content":"What is 2+2?"}]',
                "output.value": '[{"role":"assistant","content":"It is 4."}]',
            },
        )
        deliver(MlflowSpanExporter(tracking_uri=uri), one.spans)

        info = read_back(uri, project).trace(one.mlflow_id).info

        assert (info.request_preview, info.response_preview) == ("What is 2+2?", "It is 4.")

    def test_failed_trajectory_is_an_error(self, uri, project, trajectory, read_back) -> None:
        """A root with an error status makes the trace an error."""
        one = trajectory(project)
        one.root._status = Status(StatusCode.ERROR, "boom")
        deliver(MlflowSpanExporter(tracking_uri=uri), one.spans)

        assert read_back(uri, project).trace(one.mlflow_id).info.state == "ERROR"


class TestBatches:
    """Trajectories arrive in parts, again, and many at once."""

    def test_tags_before_the_root(self, uri, project, trajectory, read_back) -> None:
        """A trajectory whose root hasn't arrived is found by its tags, in progress; with the root it is done."""
        one = trajectory(project)
        exporter = MlflowSpanExporter(tracking_uri=uri)
        deliver(exporter, [one.model])
        back = read_back(uri, project)

        (early,) = back.traces("tags.step = '1'")
        assert (early.info.trace_id, early.info.state) == (one.mlflow_id, "IN_PROGRESS")

        deliver(exporter, [one.tool, one.root])
        (late,) = back.traces("tags.step = '1'")
        assert (late.info.state, len(late.data.spans)) == ("OK", 3)

    def test_sent_twice_is_stored_once(self, uri, project, trajectory, read_back) -> None:
        """Batches that are repeated, by the same process or another one, add neither spans nor rewards."""
        one = trajectory(project, reward=0.5)
        for _ in range(2):
            exporter = MlflowSpanExporter(tracking_uri=uri)
            deliver(exporter, [one.model, one.tool])
            deliver(exporter, [one.root])
            deliver(exporter, one.spans)

        (trace,) = read_back(uri, project).traces()

        assert len(trace.data.spans) == 3
        assert trace.info.token_usage["total_tokens"] == 15
        assert [(item.name, item.value, item.source.source_type) for item in trace.info.assessments] == [
            ("reward", 0.5, "CODE")
        ]

    def test_rewards_filter(self, uri, project, trajectory, read_back) -> None:
        """Trajectories are found by their reward."""
        good, bad = trajectory(project, reward=1.0), trajectory(project, reward=0.0)
        deliver(MlflowSpanExporter(tracking_uri=uri), [*good.spans, *bad.spans])

        (found,) = read_back(uri, project).traces("feedback.reward > 0.5")

        assert found.info.trace_id == good.mlflow_id

    def test_more_than_a_hundred_roots(self, uri, project, trajectory, read_back) -> None:
        """All trajectories of a batch of 130 are stored and associated with the run."""
        back = read_back(uri, project)
        run = back.client.create_run(back.client.create_experiment(project))
        many = [trajectory(project, rollout_n=number) for number in range(130)]
        deliver(MlflowSpanExporter(tracking_uri=uri, run_id=run.info.run_id), [one.root for one in many])

        found = {trace.info.trace_id for trace in back.traces(run_id=run.info.run_id, include_spans=False)}

        assert found == {one.mlflow_id for one in many}

    def test_one_bad_span_is_lost_alone(self, uri, project, trajectory, read_back) -> None:
        """Of a batch with a span whose clock no database can hold, every other span is stored."""
        many = [trajectory(project, rollout_n=number) for number in range(3)]
        bad = many[1].span("impossible", 0, 1, {})
        bad._start_time = bad._end_time = 2**64 - 1
        batch = [span for one in many for span in one.spans]
        batch.insert(4, bad)
        exporter = MlflowSpanExporter(tracking_uri=uri)

        report = send_batch(exporter.send, batch, wait=lambda seconds, outcome: True)

        assert (report.delivered, sum(report.lost.values())) == (9, 1)
        assert sorted(len(trace.data.spans) for trace in read_back(uri, project).traces()) == [3, 3, 3]


class TestHardValues:
    """Values that MLflow would refuse, or store and never give back."""

    def test_long_session_ids(self, uri, project, trajectory, read_back) -> None:
        """Sessions over 250 characters are cut, and two that differ at the end stay two."""
        long = "s" * 300
        one = trajectory(project, root_attributes={"session.id": f"{long}a"})
        other = trajectory(project, root_attributes={"session.id": f"{long}b"})
        deliver(MlflowSpanExporter(tracking_uri=uri), [*one.spans, *other.spans])
        back = read_back(uri, project)

        sessions = {back.trace(item.mlflow_id).info.trace_metadata["mlflow.trace.session"] for item in (one, other)}

        assert len(sessions) == 2
        assert {len(session) for session in sessions} == {250}

    def test_values_beyond_int64(self, uri, project, trajectory, read_back) -> None:
        """Integers over 63 bits, in attributes and inside payloads, come back as text."""
        one = trajectory(
            project,
            root_attributes={
                "input.value": f'{{"seed":{2**63},"list":[{-(2**70)}],"fits":{INT64_MAX}}}',
                "output.value": str(2**65),
                "big": 2**64,
            },
        )
        deliver(MlflowSpanExporter(tracking_uri=uri), one.spans)

        root = next(span for span in read_back(uri, project).trace(one.mlflow_id).data.spans if not span.parent_id)

        assert root.inputs == {"seed": str(2**63), "list": [str(-(2**70))], "fits": INT64_MAX}
        assert root.outputs == {"rollout": 0, "output": str(2**65)}
        assert root.attributes["big"] == str(2**64)

    def test_lone_surrogates(self, uri, project, trajectory, read_back) -> None:
        """Half characters, plain or escaped, in names, tags, payloads and attributes are replaced."""
        one = trajectory(
            project,
            sample_index="caf\ud800",
            root_attributes={
                "input.value": '{"messages":[{"role":"user","content":"half \\ud83d"}]}',
                "output.value": '"half \udc00"',
                "note": "half \udc00",
            },
        )
        one.root._name = "root \ud800"
        deliver(MlflowSpanExporter(tracking_uri=uri), one.spans)

        trace = read_back(uri, project).trace(one.mlflow_id)
        root = next(span for span in trace.data.spans if not span.parent_id)

        assert trace.info.tags["sample_index"] == "caf?"
        answer = {"rollout": 0, "output": "half ?"}
        assert (trace.info.request_preview, trace.info.response_preview) == ("half ?", json.dumps(answer))
        assert (root.name, root.outputs, root.attributes["note"]) == ("root ?", answer, "half ?")

    def test_payloads_keep_their_type(self, uri, project, trajectory, read_back) -> None:
        """Numbers, booleans, texts that look like JSON, and texts that aren't JSON come back as what they were."""
        values = {
            "3": 3,
            "0.5": 0.5,
            "true": True,
            "null": None,
            '"3"': "3",
            '"{}"': "{}",
            '""': "",
            "[]": [],
            '{"a":NaN}': {"a": None},
            "cut {": "cut {",
            '"日本 🎉 \\u0000"': "日本 🎉 \x00",
        }
        sent = {text: trajectory(project, root_attributes={"output.value": text}) for text in values}
        for one in sent.values():
            one.root._instrumentation_scope = InstrumentationScope("another library")
        deliver(MlflowSpanExporter(tracking_uri=uri), [span for one in sent.values() for span in one.spans])

        back = read_back(uri, project)
        for text, one in sent.items():
            root = next(span for span in back.trace(one.mlflow_id).data.spans if not span.parent_id)
            assert (text, root.outputs, type(root.outputs)) == (text, values[text], type(values[text]))

    def test_reward_parts(self, uri, project, trajectory, read_back) -> None:
        """Each part of a reward is an assessment with its explanation, and a later value replaces the first."""
        parts = {"format": 1, "style": {"value": "terse", "explanation": "short"}}
        one = trajectory(project, reward=0.5, root_attributes={"rollout.reward_parts": json.dumps(parts)})
        exporter = MlflowSpanExporter(tracking_uri=uri)
        deliver(exporter, one.spans)
        late = one.span("compute_score", 11, 12, {"rollout.reward_parts": '{"format":0}'})
        deliver(exporter, [late])
        assert exporter.force_flush(), exporter.follow_up_requests.last_error

        found = read_back(uri, project).trace(one.mlflow_id).info.assessments

        assert sorted((item.name, item.value, item.rationale) for item in found) == [
            ("format", 0.0, None),
            ("reward", 0.5, None),
            ("style", "terse", "short"),
        ]

    def test_session_that_looks_like_json(self, uri, project, trajectory, read_back) -> None:
        """A session id and a tag that look like JSON stay the texts that they are."""
        one = trajectory(project, sample_index='{"uid":1}', root_attributes={"session.id": '["a"]', "user.id": '"me"'})
        deliver(MlflowSpanExporter(tracking_uri=uri), one.spans)

        info = read_back(uri, project).trace(one.mlflow_id).info

        assert info.tags["sample_index"] == '{"uid":1}'
        assert info.trace_metadata["mlflow.trace.session"] == '["a"]'
        assert info.trace_metadata["mlflow.trace.user"] == '"me"'

    def test_conversations_of_children_make_no_session(self, uri, project, trajectory, read_back) -> None:
        """A library's own conversation id on an inner span doesn't replace the group as the session."""
        one = trajectory(project)
        child = one.span("chat", 1, 2, {"gen_ai.conversation.id": "theirs", "session.id": "x" * 300})
        exporter = MlflowSpanExporter(tracking_uri=uri)
        deliver(exporter, [child])
        deliver(exporter, one.spans)

        info = read_back(uri, project).trace(one.mlflow_id).info

        assert info.trace_metadata["mlflow.trace.session"] == "exp-1/1/7"
