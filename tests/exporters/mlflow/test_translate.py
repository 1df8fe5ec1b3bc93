"""The translation from a span to the span that MLflow stores, on whole records."""

from __future__ import annotations

import gc
import json

import pytest
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind, StatusCode

from otel_rollout.export import plain_value
from otel_rollout.finish import copy_span
from otel_rollout_mlflow.json_text import sanitize_json
from otel_rollout_mlflow.translate import otlp_spans, session_of, stored_spans, trace_infos, with_stored

TAGS = {
    "rollout.step": 1,
    "rollout.sample_index": 7,
    "rollout.rollout_n": 0,
    "rollout.validate": False,
    "rollout.experiment_name": "exp-1",
}
NAME = "s7 · r0 · step 1 · trajectory"
TRACE_TAGS = {"step": "1", "sample_index": "7", "rollout_n": "0", "validate": "False", "experiment_name": "exp-1"}


class TestListsOfKinds:
    """Attributes that MLflow looks types up by."""

    def test_a_list_is_a_text(self, trajectory) -> None:
        """A list under one of them, which MLflow fails on, is its JSON text, for a server and for the store."""
        one = trajectory(reward=0.5)
        [span, *_] = one.spans
        given = {**(span.attributes or {}), "openinference.span.kind": ["a", "b"], "gen_ai.operation.name": ["c"]}
        odd = copy_span(span, given)
        for translated in (otlp_spans([odd])[0], stored_spans([odd], unwraps_texts=True)[0]):
            kinds = [translated.attributes[key] for key in ("openinference.span.kind", "gen_ai.operation.name")]
            assert all(isinstance(kind, str) for kind in kinds)


class TestOtlpSpans:
    """Spans for a server."""

    def test_whole_trajectory(self, trajectory) -> None:
        """Each span has MLflow's names for input, output and type; the resource is the trace's tags alone."""
        one = trajectory(reward=0.5)

        model, tool, root = otlp_spans(one.spans)

        assert dict(model.attributes) == {
            **TAGS,
            "openinference.span.kind": "LLM",
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": 12,
            "gen_ai.usage.output_tokens": 3,
            "mlflow.spanType": "LLM",
            "mlflow.spanInputs": '{"messages":[{"role":"user","content":"What is 2+2?"}]}',
            "mlflow.spanOutputs": '{"text":"4","ids":[19,20]}',
            "mlflow.chat.tokenUsage": '{"input_tokens":12,"output_tokens":3,"total_tokens":15}',
        }
        assert dict(tool.attributes) == {
            **TAGS,
            "openinference.span.kind": "TOOL",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "calculator",
            "error.type": "ZeroDivisionError",
            "mlflow.spanType": "TOOL",
            "mlflow.spanInputs": '{"expression":"1/0"}',
        }
        assert dict(root.attributes) == {
            **TAGS,
            "openinference.span.kind": "AGENT",
            "gen_ai.operation.name": "invoke_agent",
            "metadata": '{"step":1}',
            "rollout.status": "completed",
            "rollout.reward": 0.5,
            "session.id": "exp-1/1/7",
            "mlflow.spanType": "AGENT",
            "mlflow.spanInputs": '{"messages":[{"role":"user","content":"What is 2+2?"}]}',
            "mlflow.spanOutputs": '{"reward": 0.5, "rollout": 0, "output": "4"}',
            "mlflow.traceTag.mlflow.traceName": NAME,
        }
        assert dict(root.resource.attributes) == {**TRACE_TAGS, "status": "completed"}
        assert model.resource is root.resource
        for given, translated in zip(one.spans, (model, tool, root), strict=True):
            assert translated.name == given.name
            assert translated.context == given.context
            assert translated.parent == given.parent
            assert (translated.start_time, translated.end_time) == (given.start_time, given.end_time)
            assert translated.kind is SpanKind.INTERNAL
            assert translated.status.status_code is given.status.status_code
            assert translated.status.description == given.status.description
            assert [(event.name, event.timestamp, dict(event.attributes)) for event in translated.events] == [
                (event.name, event.timestamp, dict(event.attributes)) for event in given.events
            ]
            assert [(link.context, dict(link.attributes)) for link in translated.links] == [
                (link.context, dict(link.attributes)) for link in given.links
            ]
        assert tool.status.status_code is StatusCode.ERROR

    def test_children_alone_carry_the_tags(self, trajectory) -> None:
        """A batch without the root has the five tags and no status."""
        (model,) = otlp_spans([trajectory().model])

        assert dict(model.resource.attributes) == TRACE_TAGS

    def test_span_of_another_library(self, trajectory) -> None:
        """A span without our attributes gets its trace's tags, a type by its operation, and plain text as text."""
        one = trajectory()
        foreign = one.span("chat gpt", 1, 2, {})
        foreign._attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": "theirs",
            "input.value": '{"looks":"like JSON"}',
            "input.mime_type": "text/plain",
            "output.value": 3,
        }
        foreign._instrumentation_scope = InstrumentationScope("theirs")

        translated = otlp_spans([foreign, one.model])[0]

        assert dict(translated.attributes) == {
            "gen_ai.operation.name": "chat",
            "span.gen_ai.conversation.id": "theirs",
            "mlflow.spanType": "CHAT_MODEL",
            "mlflow.spanInputs": '"{\\"looks\\":\\"like JSON\\"}"',
            "mlflow.spanOutputs": 3,
        }
        assert dict(translated.resource.attributes) == TRACE_TAGS

    def test_unknown_type(self, trajectory) -> None:
        """A span of which nothing is known is of the type UNKNOWN: a root with none shows as None."""
        span = trajectory().root
        span._attributes = {}

        assert dict(otlp_spans([span])[0].attributes) == {
            "mlflow.spanType": "UNKNOWN",
            "mlflow.traceTag.mlflow.traceName": "trajectory",
        }

    def test_for_servers_that_do_not_unwrap(self, trajectory) -> None:
        """For the oldest servers a payload is sent as the values that it holds."""
        model = otlp_spans([trajectory().model], unwraps_texts=False)[0]

        assert model.attributes["mlflow.spanOutputs"] == {"text": "4", "ids": [19, 20]}

    def test_event_attributes_are_scalars(self, trajectory) -> None:
        """Lists on events become JSON text, because MLflow keeps only scalars there."""
        one = trajectory()
        one.tool._events[0]._attributes = {"list": (1, 2), "text": "half \ud800", "none": None}

        (event,) = otlp_spans([one.tool])[0].events

        assert dict(event.attributes) == {"list": "[1,2]", "text": "half ?"}


class TestGenAi:
    """Attributes of the GenAI conventions that MLflow has fields of its own for."""

    def test_cached_tokens(self, trajectory) -> None:
        """Tokens that were read from a cache and written to one are in the token usage."""
        one = trajectory()
        cached = {f"gen_ai.usage.cache_{way}.input_tokens": count for way, count in (("read", 4), ("write", 2))}

        (model,) = otlp_spans([copy_span(one.model, {**(one.model.attributes or {}), **cached})])

        usage = json.loads(model.attributes["mlflow.chat.tokenUsage"])
        assert (usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (4, 2)

    def test_arguments_of_a_tool(self, trajectory) -> None:
        """They are the inputs already, if the span has both; alone, MLflow reads them itself."""
        one = trajectory()
        given = {**(one.tool.attributes or {}), "gen_ai.tool.call.arguments": '{"expression":"1/0"}'}
        alone = {key: value for key, value in given.items() if key != "input.value"}

        both, foreign = otlp_spans([copy_span(one.tool, given), copy_span(one.tool, alone)])

        assert "gen_ai.tool.call.arguments" not in both.attributes
        assert foreign.attributes["gen_ai.tool.call.arguments"] == '{"expression":"1/0"}'


@pytest.mark.parametrize("text", ['{"b": 2}', "[1, 2]", '"quoted"', "plain"])
def test_a_text_of_a_program_stays_a_text(trajectory, text) -> None:
    """An annotation that looks like JSON is read back as it was given, from a server and from a database."""
    one = trajectory()
    root = one.spans[-1]
    root = copy_span(root, {**(root.attributes or {}), "note": text})

    (sent,), (stored,) = otlp_spans([root]), stored_spans([root], unwraps_texts=True)

    # MLflow parses a text that is a JSON string, an object or a list, once.
    value = sent.attributes["note"]
    assert (json.loads(value) if value[:1] in '{["' else value) == text
    read = json.loads(stored.attributes["note"])
    assert (json.loads(read) if read != text else read) == text


class TestStoredSpans:
    """Spans for a database."""

    def test_every_value_is_json(self, trajectory) -> None:
        """Each attribute is a JSON text, payloads as they are, and the trace's id is among them."""
        one = trajectory(reward=0.5)

        root = stored_spans(one.spans, unwraps_texts=True)[2]

        assert dict(root.attributes) == {
            "rollout.step": "1",
            "rollout.sample_index": "7",
            "rollout.rollout_n": "0",
            "rollout.validate": "false",
            "rollout.experiment_name": '"exp-1"',
            "openinference.span.kind": '"AGENT"',
            "gen_ai.operation.name": '"invoke_agent"',
            "metadata": '"{\\"step\\":1}"',
            "rollout.status": '"completed"',
            "rollout.reward": "0.5",
            "session.id": '"exp-1/1/7"',
            "mlflow.spanType": '"AGENT"',
            "mlflow.spanInputs": '{"messages":[{"role":"user","content":"What is 2+2?"}]}',
            "mlflow.spanOutputs": '{"reward": 0.5, "rollout": 0, "output": "4"}',
            "mlflow.traceTag.mlflow.traceName": f'"{NAME}"',
            "mlflow.traceRequestId": f'"{one.mlflow_id}"',
        }

    def test_texts_that_look_like_json(self, trajectory) -> None:
        """A text that looks like JSON is wrapped once more for the versions that unwrap it."""
        one = trajectory()
        one.tool._attributes = {"output.value": '"{}"'}

        before, after = (stored_spans([one.tool], unwraps_texts=unwraps)[0] for unwraps in (True, False))

        assert before.attributes["mlflow.spanOutputs"] == '"\\"{}\\""'
        assert after.attributes["mlflow.spanOutputs"] == '"{}"'


class TestRootFacts:
    """Attributes of roots alone."""

    def test_session(self, trajectory) -> None:
        """A root's session is its group; a child has none, and a root without a group has none of our making."""
        one = trajectory()
        without = trajectory()
        without.root._attributes = {"gen_ai.conversation.id": "of the trajectory"}

        assert [session_of(span) for span in (one.root, one.model, without.root)] == ["exp-1/1/7", None, None]


class TestTraceInfo:
    """The trace infos for servers before 3.14."""

    def test_whole_trace(self, trajectory) -> None:
        """With the root, the request says everything."""
        one = trajectory()

        assert trace_infos("3", one.spans) == [
            (
                {
                    "trace_id": one.mlflow_id,
                    "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "3"}},
                    "request_time": "2025-10-09T08:53:20.123Z",
                    "state": "OK",
                    "execution_duration": "10.000s",
                    "tags": {**TRACE_TAGS, "status": "completed", "mlflow.traceName": NAME},
                    "trace_metadata": {"mlflow.trace.session": "exp-1/1/7"},
                },
                True,
            )
        ]

    def test_before_the_root(self, trajectory) -> None:
        """Without the root, the trace is in progress since its first span, and has its tags."""
        one = trajectory()

        assert trace_infos("3", [one.tool, one.model]) == [
            (
                {
                    "trace_id": one.mlflow_id,
                    "trace_location": {"type": "MLFLOW_EXPERIMENT", "mlflow_experiment": {"experiment_id": "3"}},
                    "request_time": "2025-10-09T08:53:21.123Z",
                    "state": "IN_PROGRESS",
                    "tags": TRACE_TAGS,
                    "trace_metadata": {},
                },
                False,
            )
        ]

    def test_what_is_stored_is_kept(self) -> None:
        """Tags, metadata, previews and assessments that the server has are said again."""
        stored = {
            "state": "OK",
            "tags": {"step": "0", "mine": "x"},
            "trace_metadata": {"usage": "1"},
            "assessments": [{}],
        }

        merged = with_stored({"state": "ERROR", "tags": {"step": "1"}, "trace_metadata": {"session": "s"}}, stored)

        assert merged == {
            "state": "ERROR",
            "tags": {"step": "1", "mine": "x"},
            "trace_metadata": {"usage": "1", "session": "s"},
            "assessments": [{}],
        }


class TestSoundJsonText:
    """JSON texts that MLflow doesn't take, and those that it does."""

    def test_our_own_is_left_alone(self) -> None:
        """A text that otel-rollout wrote is not parsed."""
        assert sanitize_json('{"a":[1,"é"]}', is_trusted=True) == '{"a":[1,"é"]}'

    def test_what_is_no_json_is_a_text(self) -> None:
        """A text that is cut or plain becomes a JSON string."""
        assert [sanitize_json(text, is_trusted=False) for text in ("", "{", "hi")] == ['""', '"{"', '"hi"']

    def test_what_mlflow_does_not_take(self) -> None:
        """Wide integers become texts, NaN becomes null, and half characters are replaced, trusted or not."""
        text = '{"i":[9223372036854775807,9223372036854775808],"n":NaN,"s":"\\ud800","t":"\ud800"}'

        assert (
            sanitize_json(text, is_trusted=True)
            == '{"i":[9223372036854775807,"9223372036854775808"],"n":null,"s":"?","t":"?"}'
        )

    def test_too_deep(self) -> None:
        """A text that nests deeper than Python parses is stored as the text that it is."""
        text = "[" * 100_000 + "9" * 20 + "]" * 100_000
        # What the collector frees at that depth would have no room for its own end.
        gc.collect()
        gc.disable()
        try:
            sanitized = sanitize_json(text, is_trusted=False)
        finally:
            gc.enable()

        assert sanitized == f'"{text}"'

    def test_values_of_attributes(self) -> None:
        """Values that JSON has not become texts."""
        given = {"big": 2**64, "nan": float("nan"), "raw": b"\xff", "list": (1, float("inf")), "other": object}

        assert plain_value(given) == {
            "big": "18446744073709551616",
            "nan": "nan",
            "raw": "\ufffd",
            "list": [1, "inf"],
            "other": "<class 'object'>",
        }
