"""The translation of spans into the records of Weave calls, on whole records and with no server."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.trace import SpanContext

from otel_rollout.messages import ids_as_text
from otel_rollout_weave.translate import as_inputs, as_output, call_of_span, exception_of_span
from otel_rollout_weave.usage import Below

PROJECT = "team/project"


def record_of(span: Any, **options: Any) -> dict[str, Any]:
    """Return the record of a span's call as the server reads it."""
    call = call_of_span(span, **{"project_id": PROJECT, "op_name": span.name, **options})
    return json.loads(orjson.dumps(call))


class TestCallOfSpan:
    """`call_of_span`."""

    def test_root(self, spans) -> None:
        """A trajectory's root is a whole record, field by field."""
        root = spans.root(reward=0.5, attributes={"rollout.turns": 3, "difficulty": "hard"})
        reference = f"weave:///{PROJECT}/op/agent_loop:abc"
        below = Below(success=4, error=1)
        trace_id, own_id = f"{root.context.trace_id:032x}", f"{root.context.span_id:016x}"
        assert record_of(root, op_name=reference, run_id=f"{PROJECT}/run7", below=below) == {
            "project_id": PROJECT,
            "id": own_id,
            "trace_id": trace_id,
            "parent_id": None,
            "op_name": reference,
            "display_name": "s7 · r0 · step 3 · agent_loop",
            "started_at": "2026-01-01T00:00:00.123456Z",
            "ended_at": "2026-01-01T00:00:00.123956Z",
            "attributes": {
                "step": 3,
                "sample_index": 7,
                "rollout_n": 0,
                "validate": False,
                "experiment_name": "exp-1",
                "status": "completed",
                "reward": 0.5,
                "turns": 3,
                "kind": "AGENT",
                "weave": {"kind": "agent"},
                "run_id": "run-1",
                "gen_ai": {"operation": {"name": "invoke_agent"}},
                "session": {"id": "exp-1/3/7"},
                "difficulty": "hard",
            },
            "inputs": {"prompt": "2+2"},
            "output": {"answer": "4", "reward": 0.5},
            "summary": {"status_counts": {"success": 5, "error": 1}},
            "exception": None,
            "thread_id": trace_id,
            "turn_id": own_id,
            "wb_run_id": f"{PROJECT}/run7",
            "wb_run_step": 3,
        }

    def test_op(self, spans) -> None:
        """An LLM op is a whole record, field by field."""
        tokens = {
            "gen_ai.request.model": "policy",
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 5,
            "gen_ai.response.finish_reasons": ("stop",),
        }
        root = spans.root()
        op = spans.op(root, "generate", kind="LLM", attributes=tokens)
        assert record_of(op) == {
            "project_id": PROJECT,
            "id": f"{op.context.span_id:016x}",
            "trace_id": f"{root.context.trace_id:032x}",
            "parent_id": f"{root.context.span_id:016x}",
            "op_name": "generate",
            "display_name": None,
            "started_at": "2026-01-01T00:00:00.124456Z",
            "ended_at": "2026-01-01T00:00:00.124956Z",
            "attributes": {
                "step": 3,
                "sample_index": 7,
                "rollout_n": 0,
                "validate": False,
                "experiment_name": "exp-1",
                "kind": "LLM",
                "weave": {"kind": "llm"},
                "run_id": "run-1",
                "gen_ai": {"request": {"model": "policy"}, "response": {"finish_reasons": ["stop"]}},
            },
            "inputs": {"x": 1},
            "output": {"y": 2},
            "summary": {
                "status_counts": {"success": 1, "error": 0},
                "usage": {"policy": {"requests": 1, "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}},
            },
            "exception": None,
            "thread_id": None,
            "turn_id": None,
            "wb_run_id": None,
            "wb_run_step": None,
        }

    def test_bare_span_of_another_instrumentation(self, spans) -> None:
        """A span with nothing in it still has every field that the API requires."""
        record = record_of(spans.span("GET", scope="opentelemetry.instrumentation.httpx"))
        assert (record["inputs"], record["output"], record["attributes"]) == ({}, None, {"run_id": "run-1"})

    def test_same_bytes_each_time(self, spans) -> None:
        """A span that is sent again has the same times and ids to the letter, or it would be a second call."""
        root = spans.root()
        first, second = (orjson.dumps(call_of_span(root, project_id=PROJECT, op_name="x")) for _ in range(2))
        assert first == second

    @pytest.mark.parametrize("step", [-1, 2**64, True, "3", 1.5])
    def test_step_that_no_run_has(self, spans, step) -> None:
        """A step that Weave's column can't hold is left out of the run association."""
        root = spans.root(step=step)
        assert record_of(root, run_id=f"{PROJECT}/r")["wb_run_step"] is None

    def test_attributes_that_json_has_no_word_for(self, spans) -> None:
        """Surrogates, NaN, bytes and huge numbers come out as texts, which every JSON reader takes."""
        attributes = {"a": "\ud800", "b": math.nan, "c": b"\xff", "d": 2**70, "e": ("x", 1), "f": {"g": None}}
        expected = {"a": "?", "b": "nan", "c": "\ufffd", "d": str(2**70), "e": ["x", 1], "f": {"g": None}}
        assert record_of(spans.span("x", attributes))["attributes"] == {**expected, "run_id": "run-1"}

    def test_keys_under_each_other(self, spans) -> None:
        """Attributes whose names clash, with a tag or as dotted prefixes of each other, all keep their values."""
        attributes = {"rollout.step": 1, "step": 9, "a": 1, "a.b": 2, "c.d": 3, "c": 4, "a.b.c": 5}
        assert record_of(spans.span("x", attributes))["attributes"] == {
            "step": 1,
            "run_id": "run-1",
            "a": 1,
            "c": {"d": 3},
            "other_attributes": {"step": 9, "a.b": 2, "c": 4, "a.b.c": 5},
        }

    def test_long_display_name(self, spans) -> None:
        """A display name over 1024 characters, which the server refuses, is cut."""
        assert len(record_of(spans.root(name="n" * 3000))["display_name"]) == 1024

    @pytest.mark.integration
    def test_records_are_what_weave_itself_sends(self, spans, reader) -> None:
        """Weave's own request type accepts the records of roots, ops, failures and foreign spans."""
        root = spans.root(reward=1.0)
        batch = [
            record_of(root, run_id=f"{PROJECT}/run"),
            record_of(spans.op(root, kind="LLM", attributes={"gen_ai.usage.input_tokens": 3})),
            record_of(spans.op(root, error="boom", input=None, output=None)),
            record_of(spans.span("x", {"input.value": "text", "a.b": [1]}, scope="other")),
        ]
        assert reader.ask("problems", batch) == ""

    @pytest.mark.integration
    def test_weave_types_do_refuse(self, spans, reader) -> None:
        """The check above can fail: a record without its id, or with a text for its inputs, is refused."""
        record = record_of(spans.root())
        without_id = {key: value for key, value in record.items() if key != "id"}
        assert "id" in reader.ask("problems", [without_id])
        assert "inputs" in reader.ask("problems", [{**record, "inputs": "text"}])


class TestPayload:
    """`as_inputs`, `as_output`: payload text spliced into the body."""

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (None, b"{}"),
            ('{"a":1}', b'{"a":1}'),
            ("[1]", b'{"input":[1]}'),
            ('"text"', b'{"input":"text"}'),
            ("null", b'{"input":null}'),
        ],
    )
    def test_inputs_are_an_object(self, text, expected) -> None:
        """Inputs of any form become an object, and an object is left as it is."""
        assert as_inputs(text, is_trusted=True) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            (None, {"reward": 1.5}),
            ('{"a":1}', {"a": 1, "reward": 1.5}),
            ("{}", {"reward": 1.5}),
            ("[1]", {"output": [1], "reward": 1.5}),
            ('{"reward":0}', {"reward": 1.5}),
        ],
    )
    def test_reward_joins_the_output(self, text, expected) -> None:
        """The reward becomes a key of the output, whatever form that has."""
        assert json.loads(as_output(text, is_trusted=True, reward=1.5)) == expected

    @pytest.mark.parametrize("text", ["not json", '{"a": NaN}', '"\\ud800"', '{"a":1', "12", ""])
    def test_untrusted_text_that_is_no_json(self, text) -> None:
        """A payload of another instrumentation that is no JSON is sent as a text, so that no batch is refused."""
        assert orjson.loads(as_output(text, is_trusted=False)) == text

    def test_trusted_payload_is_not_parsed(self) -> None:
        """A payload of our own goes into the body byte by byte, its spelling kept."""
        text = '{"a" :  1.00,"b":[]}'
        assert as_inputs(text, is_trusted=True) == text.encode()


@pytest.mark.parametrize("text", ['{"a": 1}', "[1, 2]", "12", "plain"])
def test_a_text_stays_a_text(spans, text) -> None:
    """A result that is a text, and looks like JSON, is no object."""
    span = spans.root(attributes={"output.value": text, "output.mime_type": "text/plain"})
    assert record_of(span)["output"] == text


class TestIdsAsText:
    """`ids_as_text`."""

    def test_long_lists_only(self) -> None:
        """Lists of 64 whole numbers and more become text, also deep inside; shorter and other lists stay."""
        ids = list(range(-10, 54))
        value = {"a": ids, "b": [{"c": ids}], "short": ids[1:], "floats": [0.5] * 80, "mixed": [*ids, "x"]}
        for separators in ((",", ":"), (", ", ": ")):
            payload = json.dumps(value, separators=separators).encode()
            found = json.loads(ids_as_text(payload))
            assert json.loads(found["a"]) == ids
            assert json.loads(found["b"][0]["c"]) == ids
            assert {key: found[key] for key in ("short", "floats", "mixed")} == {
                key: value[key] for key in ("short", "floats", "mixed")
            }

    def test_list_inside_a_text(self) -> None:
        """A list inside a text or a key stays as it is, with any quotes and backslashes before it."""
        inner = json.dumps(list(range(100)))
        value = {inner: f'a "quoted\\" {inner}', "b\\": inner, "c": "\\"}
        payload = json.dumps(value).encode()
        assert ids_as_text(payload) == payload

    # On a busy machine making a value takes longer than Hypothesis thinks it should.
    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.text(), inner, max_size=3)
                | st.lists(st.integers(), min_size=60, max_size=70)
                | st.lists(st.integers(), min_size=60, max_size=70).map(json.dumps)
            ),
            max_leaves=6,
        ),
        st.sampled_from([(",", ":"), (", ", ": ")]),
        st.booleans(),
    )
    def test_any_json(self, value, separators, is_ascii) -> None:
        """Whatever the payload, only its long lists of integers change, each into a text of the same list."""
        payload = json.dumps(value, separators=separators, ensure_ascii=is_ascii).encode()
        assert json.loads(ids_as_text(payload)) == with_texts(value)


def with_texts(value: Any) -> Any:
    """Return a value with its long lists of whole numbers as texts."""
    if isinstance(value, dict):
        return {key: with_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        if len(value) >= 64 and all(type(item) is int for item in value):
            return json.dumps(value, separators=(",", ":"))
        return [with_texts(item) for item in value]
    return value


class TestException:
    """`exception_of_span`."""

    def test_no_failure(self, spans) -> None:
        """A span that did not fail has no exception, even where it recorded one that it survived."""
        event = Event("exception", {"exception.type": "E", "exception.message": "m"})
        assert exception_of_span(spans.span("x", events=[event])) is None

    def test_traceback_frames(self, spans) -> None:
        """A traceback of Python becomes frames with file, line, function and text, as the client writes them."""
        try:
            json.loads("{")
        except ValueError as error:
            import traceback

            text = "".join(traceback.format_exception(error))
        event = Event(
            "exception",
            {"exception.type": "JSONDecodeError", "exception.message": "m", "exception.stacktrace": text},
        )
        found = json.loads(exception_of_span(spans.span("x", events=[event], error="m")) or "")
        assert (found["type"], found["message"]) == ("JSONDecodeError", "m")
        assert found["traceback"][0]["filename"] == __file__
        assert found["traceback"][0]["text"] == 'json.loads("{")'
        assert [frame["function_name"] for frame in found["traceback"]][1:] == ["loads", "decode", "raw_decode"]

    def test_failure_without_an_event(self, spans) -> None:
        """A failed span that recorded no exception shows its status and the type that it was failed with."""
        span = spans.span("x", {"error.type": "TimeoutError"}, error="late \ud800")
        assert json.loads(exception_of_span(span) or "") == {"type": "TimeoutError", "message": "late ?"}


@pytest.mark.parametrize(
    "key",
    [
        "gen_ai.response.model",
        "gen_ai.request.model",
        "llm.model_name",
        "embedding.model_name",
        "reranker.model_name",
    ],
)
def test_model_of_any_kind_of_call(spans, key) -> None:
    """Tokens are counted under the model of the call: a chat, an embedding, a turn of verl; on the root too."""
    root = spans.root()
    call = spans.op(root, kind="EMBEDDING", attributes={key: "Qwen/Qwen3", "gen_ai.usage.input_tokens": 3})
    below = Below()
    below.add(call)
    expected = {"Qwen/Qwen3": {"requests": 1, "prompt_tokens": 3, "total_tokens": 3}}
    assert record_of(call)["summary"]["usage"] == expected
    assert record_of(root, below=below)["summary"]["usage"] == expected


def test_token_counts_beyond_json():
    """An absurd number of tokens on a model's call costs neither the call nor the root that sums it."""
    below = Below()
    for span_id, count in ((1, 2**70), (2, 7)):
        context = SpanContext(1, span_id, is_remote=False)
        below.add(ReadableSpan("turn", context, attributes={"gen_ai.usage.output_tokens": count}))
    assert orjson.loads(orjson.dumps(below.usage()))["usage"]["total_tokens"] == 7


@pytest.mark.parametrize(
    "key", ["gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "embedding.model_name"]
)
def test_the_model_of_tokens(key):
    """Tokens stand under the model's name, whoever named it, for chats and for embeddings."""
    context = SpanContext(1, 2, is_remote=False)
    below = Below()
    below.add(ReadableSpan("call", context, attributes={"gen_ai.usage.input_tokens": 7, key: "policy"}))
    assert below.usage() == {"policy": {"requests": 1, "prompt_tokens": 7, "total_tokens": 7}}
