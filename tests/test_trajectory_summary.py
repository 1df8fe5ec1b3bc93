"""A trajectory's summary: its figures, merged parts, hostile spans, and nothing that is hidden."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_rollout.facts import (
    ToolCounts,
    shapes_of,
    summarise_trajectory,
)
from otel_rollout.text import INT64_MAX

TRACE = 2**100 + 7
RESOURCE = Resource({"service.name": "agent", "rollout.project_name": "project", "rollout.run_id": "run"})
START = 1_700_000_000_000_000_000


def span(
    number: int,
    kind: str | None = None,
    *,
    parent: int | None = 1,
    at: tuple[int, int] = (0, 1000),
    name: str = "op",
    error: bool = False,
    **attributes: Any,
) -> ReadableSpan:
    """Return a span; `at` is in microseconds, and double underscores in names stand for dots."""
    given = {key.replace("__", "."): value for key, value in attributes.items()}
    if kind is not None:
        given["openinference.span.kind"] = kind

    def context(span_id: int) -> SpanContext:
        return SpanContext(TRACE, span_id, False, TraceFlags(1))

    return ReadableSpan(
        name,
        context(number),
        None if parent is None else context(parent),
        RESOURCE,
        given,
        status=Status(StatusCode.ERROR) if error else Status(),
        start_time=START + at[0] * 1000,
        end_time=START + at[1] * 1000,
    )


def root(**attributes: Any) -> ReadableSpan:
    """Return a root of 100 ms."""
    return span(1, "AGENT", parent=None, at=(0, 100_000), name="rollout", **attributes)


def said(text: str, *, call_id: str | None = None, reason: str = "stop") -> str:
    """Return the messages of an answer, with a tool call if it has an id."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}]
    if call_id is not None:
        parts.append({"type": "tool_call", "id": call_id, "name": "search", "arguments": {"q": 1}})
    message = {"role": "assistant", "parts": parts, "finish_reason": reason}
    return json.dumps([message], separators=(",", ":"), ensure_ascii=False)


@st.composite
def trajectories(draw: st.DrawFn) -> list[ReadableSpan]:
    """A root and up to 20 spans below it at any depth, of any kind, at any time."""
    spans = [root(rollout__step=3, rollout__status="completed", input__value="What?", output__value="42")]
    if draw(st.booleans()):
        spans = []
    for number in range(2, 2 + draw(st.integers(1, 20))):
        begin, length = draw(st.integers(0, 90_000)), draw(st.integers(0, 30_000))
        kind = draw(st.sampled_from([None, "CHAIN", "LLM", "TOOL", "EVALUATOR"]))
        attributes: dict[str, Any] = {"rollout__step": 3}
        if kind == "LLM":
            attributes |= {"gen_ai__output__messages": said(draw(st.sampled_from(["a", "b", "c"])))}
            attributes |= {"gen_ai__usage__output_tokens": draw(st.integers(0, 9))} if draw(st.booleans()) else {}
        elif kind == "TOOL":
            attributes |= {"input__value": draw(st.sampled_from(["1", "2"])), "output__value": "x"}
        spans.append(
            span(
                number,
                kind,
                parent=draw(st.integers(1, number - 1)),
                at=(begin, begin + length),
                name=draw(st.sampled_from(["one", "two"])),
                error=draw(st.booleans()),
                **attributes,
            )
        )
    return spans


def naive_seconds(spans: list[ReadableSpan], kinds: set[str], within: range | None = None) -> float:
    """Return the seconds in which a span of these kinds runs, microsecond by interval."""
    ends = sorted({(each.start_time or 0) // 1000 for each in spans} | {(each.end_time or 0) // 1000 for each in spans})
    total = 0
    for begin, end in pairwise(ends):
        runs = any(
            (each.attributes or {}).get("openinference.span.kind") in kinds
            and (each.start_time or 0) // 1000 <= begin
            and end <= (each.end_time or 0) // 1000
            for each in spans
        )
        if runs and (within is None or (begin >= within.start and end <= within.stop)):
            total += end - begin
    return total / 1e6


def naive_outermost(spans: list[ReadableSpan], kind: str) -> list[ReadableSpan]:
    """Return the spans of a kind without an ancestor of that kind."""
    known = {each.context.span_id: each for each in spans if each.context}

    def ancestors(each: ReadableSpan) -> list[ReadableSpan]:
        above = known.get(each.parent.span_id) if each.parent else None
        return [] if above is None else [above, *ancestors(above)]

    def is_kind(each: ReadableSpan) -> bool:
        return (each.attributes or {}).get("openinference.span.kind") == kind

    return [each for each in spans if is_kind(each) and not any(map(is_kind, ancestors(each)))]


def order_of(each: ReadableSpan) -> tuple[int, int, int]:
    """Return what spans are sorted by."""
    return (each.start_time or 0) // 1000, (each.end_time or 0) // 1000, each.context.span_id if each.context else 0


CHATML = "<|im_start|>system\nno<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"


class TestFigures:
    """Turns, tokens, seconds, tools."""

    @settings(max_examples=150)
    @given(trajectories())
    def test_they_are_those_of_a_naive_recomputation(self, spans):
        """Whatever the order, nesting and overlap of the spans; one that comes twice counts once."""
        summary = summarise_trajectory(spans)
        assert summarise_trajectory([*reversed(spans), spans[0]]) == summary
        generations, tools = naive_outermost(spans, "LLM"), naive_outermost(spans, "TOOL")
        tokens = [
            each.attributes["gen_ai.usage.output_tokens"]
            for each in generations
            if "gen_ai.usage.output_tokens" in each.attributes
        ]
        assert (summary.turns, summary.output_tokens) == (len(generations) or None, sum(tokens) if tokens else None)
        calls = Counter(each.name for each in tools)
        failed = Counter(each.name for each in tools if each.status.status_code is StatusCode.ERROR)
        assert summary.tools == {name: ToolCounts(calls[name], failed[name]) for name in calls}
        repeats = Counter((each.name, each.attributes["input.value"]) for each in tools)
        assert summary.repeated_calls == max(repeats.values(), default=0)
        for field, kind in (("llm_seconds", "LLM"), ("tool_seconds", "TOOL"), ("reward_seconds", "EVALUATOR")):
            assert getattr(summary, field) == pytest.approx(naive_seconds(spans, {kind}))
        begin = START // 1000
        busy = naive_seconds(spans, {"LLM", "TOOL", "EVALUATOR"}, range(begin, begin + 100_000))
        assert summary.waiting_seconds == pytest.approx(0.1 - busy if summary.has_root else 0.0)
        assert summary.start_time == min(each.start_time for each in spans)
        shapes = shapes_of(spans)
        assert len(shapes) == summary.spans == len(spans)
        starts = {each.context.span_id: each.start_time // 1000 for each in spans}
        for shape, each in zip(shapes, sorted(spans, key=order_of), strict=True):
            begin = min(starts.values()) + shape.offset
            assert (shape.name, begin) == (each.name, each.start_time // 1000)
            if shape.parent >= 0:
                assert min(starts.values()) + shapes[shape.parent].offset == starts[each.parent.span_id]
        count = sum(each.status.status_code is StatusCode.ERROR for each in spans)
        assert len(summary.errors) == min(8, count)
        for error in summary.errors:
            others = [each for each in spans if each.name == error.name and each.status.status_code is StatusCode.UNSET]
            # Without a sound call of the name, only one around it can have mended it.
            assert error.is_mended <= bool(others or any(each.parent and each.parent.span_id > 1 for each in spans))

    def test_tokens_beyond_64_bits(self):
        """Another program may write any count: their sum is one that an index has."""
        spans = [span(number, "LLM", gen_ai__usage__output_tokens=INT64_MAX) for number in range(2, 5)]
        assert summarise_trajectory(spans).output_tokens == INT64_MAX

    def test_totals_of_the_root_count(self):
        """A root of ours counted generations that were dropped later."""
        summary = summarise_trajectory([root(rollout__turns=9, rollout__output_tokens=70), span(2, "LLM")])
        assert (summary.turns, summary.input_tokens, summary.output_tokens) == (9, None, 70)

    def test_what_runs_after_the_root_is_no_waiting(self):
        """What comes after the root is not the trajectory's time: neither its own, nor that of its evaluators."""
        late = span(3, "EVALUATOR", at=(150_000, 250_000))
        summary = summarise_trajectory([root(), span(2, "LLM", at=(0, 60_000)), late])
        assert (summary.waiting_seconds, summary.reward_seconds) == (pytest.approx(0.04), 0)
        assert summary.end_time == root().end_time

    @pytest.mark.parametrize(
        ("other", "is_mended"),
        [
            (span(3, "TOOL", at=(20, 30), name="ask"), True),
            (span(3, "TOOL", at=(20, 30), name="ask", error=True), False),
            (span(3, "TOOL", at=(0, 5), name="ask"), False),
            (span(3, "LLM", at=(20, 30), name="ask"), False),
            (span(3, "TOOL", at=(20, 30), name="other"), False),
            (span(4, "TOOL", at=(0, 90), name="around"), True),
            (span(4, "CHAIN", at=(0, 90), name="around"), False),
        ],
    )
    def test_a_failure_is_mended(self, other, is_mended):
        """By a later call of the name that succeeded, or by a call of its kind around it that did."""
        failed = span(2, "TOOL", parent=4, at=(10, 12), name="ask", error=True)
        assert summarise_trajectory([root(), failed, other]).errors[0].is_mended is is_mended

    @pytest.mark.parametrize(("start", "is_first"), [(13, True), (11, False), (None, True)])
    def test_a_failure_before_the_first_generation(self, start, is_first):
        """It ended before that began, or there is none."""
        failed = span(2, "TOOL", at=(10, 12), name="start", error=True)
        turns = [] if start is None else [span(3, "LLM", at=(start, 20)), span(5, "LLM", at=(30, 40))]
        [error] = summarise_trajectory([root(), failed, *turns]).errors
        assert error.is_first is is_first


class TestWhatItSays:
    """Identity, reward, texts, errors, other programs."""

    def test_spans_of_another_program(self):
        """Kinds follow the GenAI conventions, the service is the resource's, a failed root has the status error."""
        generation = span(2, gen_ai__operation__name="chat", gen_ai__response__finish_reasons=("length",))
        tool = span(3, gen_ai__operation__name="execute_tool", gen_ai__tool__name="search", at=(5, 9), error=True)
        top = span(1, gen_ai__operation__name="invoke_agent", parent=None, error=True, error__type="ValueError")
        summary = summarise_trajectory([generation, tool, top])
        assert (summary.service_name, summary.status, summary.error_type) == ("agent", "error", "ValueError")
        assert (summary.turns, summary.finish_reason, summary.tools) == (1, "length", {"search": ToolCounts(1, 1)})

    def test_an_embedding_of_another_program(self):
        """It has its kind by its operation, as exporters say it, and is no turn."""
        call = span(2, gen_ai__operation__name="embeddings", error=True)
        summary = summarise_trajectory([call, span(1, parent=None)])
        assert ([one.kind for one in summary.errors], summary.turns) == (["EMBEDDING"], None)

    @pytest.mark.parametrize(
        ("attributes", "line"),
        [
            ({"input__value": "Why?\nBecause", "input__mime_type": "text/plain"}, "Why?"),
            ({"input__value": '"Why \\u00e9?\\nBecause"'}, "Why é?"),
            ({"input__value": '{"messages":[{"role":"system","content":"no"},{"role":"user","content":"W?"}]}'}, "W?"),
            ({"gen_ai__input__messages": said("Why?").replace("assistant", "user")}, "Why?"),
            ({"input__value": '{"n": 3, "question": "Why?"}'}, "Why?"),
            ({"input__value": "[1, 2]"}, "[1, 2]"),
            ({"input__value": "null"}, ""),
            ({"input__value": "x" * 500}, "x" * 199 + "…"),
            ({"input__value": '"' + "\\n\\n" + 'a \\\\\\"b\\""'}, 'a \\"b"'),
            ({"input__value": '"' + "\\ud83d\\ude00" * 300 + '"'}, "😀" * 199 + "…"),
            ({"input__value": 7}, ""),
            (
                {"gen_ai__input__messages": '[{"parts":[{"content":"Why?","type":"text"}],"role":"user"}]'},
                "Why?",
            ),
            (
                {"input__value": '{"messages": [{"content": [{"text": "Why?", "type": "text"}], "role": "human"}]}'},
                "Why?",
            ),
            ({"input__value": CHATML, "input__mime_type": "text/plain"}, "Why?"),
            ({"input__value": json.dumps({"prompt": CHATML})}, "Why?"),
            ({"input__value": "<s>[INST] Why? [/INST]", "input__mime_type": "text/plain"}, "Why?"),
            ({"input__value": "<|nothing|> Why?", "input__mime_type": "text/plain"}, "<|nothing|> Why?"),
        ],
    )
    def test_the_prompt_is_the_first_line_of_what_the_user_asked(self, attributes, line):
        """From a text, messages, or an argument with a prompt's name."""
        assert summarise_trajectory([root(**attributes)]).prompt == line

    @pytest.mark.parametrize(
        ("messages", "line"),
        [
            ('[{"role":"assistant","parts":[{"content":"So","type":"text"}],"finish_reason":"stop"}]', "So"),
            ('[{"role":"assistant","content":"So"}]', "So"),
            ('[{"role":"assistant","content":"<think>hm</think>\\n\\nSo"}]', "So"),
            ('[{"role":"assistant","content":"<think>hm"}]', "<think>hm"),
            (
                '[{"role":"assistant","content":"<|channel|>analysis<|message|>hm<|end|><|channel|>final<|message|>So"}]',
                "So",
            ),
            ('[{"role":"assistant","parts":[{"type":"tool_call","id":"c","name":"text","arguments":{}}]}]', ""),
        ],
    )
    def test_the_answer_is_found_whatever_the_order_of_its_fields(self, messages, line):
        """Other instrumentations write the content before the type; a thought and a call are no answer."""
        spans = [span(2, "LLM", gen_ai__output__messages=messages)]
        assert summarise_trajectory(spans).answer == line

    @pytest.mark.parametrize("text", ['[["a",', '{"a":', '["x",', '[{"content":"x"},', "[1,", '{"a":[['])
    def test_the_first_line_takes_bounded_time(self, text):
        """A payload of megabytes that says nothing is read to its end, which would take hours in square time."""
        payload = text * (4_000_000 // len(text))
        assert summarise_trajectory([span(2, "LLM", input__value=payload, gen_ai__output__messages=payload)]).turns == 1

    def test_without_a_root_prompt_and_answer_are_those_of_generations(self):
        """The first prompt, and the last answer that has words."""
        asked = said("Why?").replace("assistant", "user")
        spans = [
            span(2, "LLM", at=(0, 5), gen_ai__input__messages=asked, gen_ai__output__messages=said("Hm")),
            span(3, "LLM", at=(6, 9), gen_ai__output__messages=said("So", reason="length")),
            span(4, "LLM", at=(10, 12), gen_ai__output__messages='[{"role":"assistant","parts":[]}]'),
        ]
        summary = summarise_trajectory(spans)
        assert (summary.prompt, summary.answer, summary.has_root) == ("Why?", "So", False)

    def test_tool_calls_that_went_wrong(self):
        """Tools that there are not, and calls that are no JSON or have no end."""
        text = (
            'a <tool_call>{"name":"x","arguments":{}}</tool_call><tool_call>{"name":</tool_call><tool_call>{"name":"y"}'
        )
        spans = [
            root(),
            span(2, "LLM", gen_ai__output__messages=said(text)),
            span(3, "TOOL", rollout__requested_tool="serch"),
            span(5, "TOOL", error=True),
        ]
        summary = summarise_trajectory(spans)
        assert (summary.unparsed_tool_calls, summary.unknown_tool_calls) == (2, 1)

    @pytest.mark.parametrize(
        ("error_type", "message", "unknown"),
        [
            ("KeyError", "Unknown tool: serch", 1),
            ("ValueError", "no such function: serch", 1),
            ("sqlite3.OperationalError", "no such function: MEDIAN", 0),
            ("ValueError", "Invalid function arguments: query is missing", 0),
        ],
    )
    def test_calls_of_tools_that_there_are_not(self, error_type, message, unknown):
        """A query with a function that its database lacks, or a call with wrong arguments, is none."""
        context, parent = (SpanContext(TRACE, number, False, TraceFlags(1)) for number in (4, 1))
        failed = ReadableSpan(
            "t",
            context,
            parent,
            RESOURCE,
            {"openinference.span.kind": "TOOL", "error.type": error_type},
            status=Status(StatusCode.ERROR, message),
            start_time=START,
            end_time=START,
        )
        assert summarise_trajectory([root(), failed]).unknown_tool_calls == unknown

    @pytest.mark.parametrize(
        ("call", "unparsed"),
        [
            ("<function=search>\n<parameter=query>\nx\n</parameter>\n</function>\n", 0),
            ("search\n<arg_key>query</arg_key>\n<arg_value>x</arg_value>\n", 0),
            ("<function=>", 1),
            ("search", 1),
        ],
    )
    def test_tool_calls_in_tags(self, call, unparsed):
        """Those of Qwen3-Coder and of GLM are calls, too."""
        spans = [span(2, "LLM", output__value=f"a <tool_call>\n{call}</tool_call>")]
        assert summarise_trajectory(spans).unparsed_tool_calls == unparsed


class TestTurnHashes:
    """Equal for equal content."""

    def hashes(self, *spans: ReadableSpan) -> tuple[str, ...]:
        """Return the hashes of a trajectory with these spans."""
        return summarise_trajectory([root(), *spans]).turn_hashes

    def test_ids_times_and_reasons_are_no_content(self):
        """Ids of calls and requests, time stamps, span ids, and times of spans differ between rollouts."""
        one = self.hashes(
            span(2, "LLM", gen_ai__output__messages=said("a", call_id="call_1")),
            span(3, "TOOL", at=(5, 9), output__value='{"text":"x","request_id":"r-1","created":17,"took_ms":1}'),
        )
        other = self.hashes(
            span(7, "LLM", at=(3, 4), gen_ai__output__messages=said("a", call_id="call_2", reason="length")),
            span(8, "TOOL", at=(6, 9), output__value='{"text":"x","request_id":"r-2","created":18,"took_ms":1}'),
        )
        assert one == other
        assert len(one) == 1
        assert len(one[0]) == 8

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ({"gen_ai__output__messages": said("a")}, {"gen_ai__output__messages": said("b")}),
            ({"output__value": '{"response_text":"a","n":1}'}, {"output__value": '{"response_text":"b","n":1}'}),
            ({"output__value": '{"token_ids":[1,2]}'}, {"output__value": '{"token_ids":[1,3]}'}),
            ({"output__value": "a"}, {"output__value": "b"}),
        ],
    )
    def test_other_words_are_other_content(self, one, other):
        """In each form that a generation's output has."""
        assert self.hashes(span(2, "LLM", **one)) != self.hashes(span(2, "LLM", **other))

    def test_a_result_is_content_of_its_turn(self):
        """Another result is another turn, and an output that isn't recorded has no hash."""
        turn = span(2, "LLM", gen_ai__output__messages=said("a"))
        results = [self.hashes(turn, span(3, "TOOL", at=(5, 9), output__value=value)) for value in ("1", "2")]
        assert results[0] != results[1]
        assert self.hashes(span(2, "LLM")) == ("",)


class TestHostile:
    """Spans that nobody should write."""

    @pytest.mark.parametrize(
        "value",
        [
            None,
            True,
            -1,
            2**63,
            float("nan"),
            float("inf"),
            "",
            "\ud800",
            "{" * 100_000,
            '{"a":' * 50_000,
            "<tool_call>" * 20_000,
            '{"token_ids":[' * 20_000,
            '{"response_text":"' * 20_000,
            '{"created":"' * 20_000,
            "\\" * 100_000,
            '"' + "\\" * 100_001,
            "x" * 2_000_000,
            ("a", "b"),
            (1, 2),
            {"a": 1},
            b"bytes",
        ],
        ids=lambda value: repr(value)[:20],
    )
    @pytest.mark.parametrize("kind", ["LLM", "TOOL", "AGENT"])
    def test_any_value_in_any_attribute(self, kind, value):
        """It has a summary, small and with text that JSON can say."""
        keys = [
            *("input__value", "output__value", "gen_ai__input__messages", "gen_ai__output__messages", "rollout__step"),
            *("rollout__sample_index", "rollout__rollout_n", "rollout__status", "rollout__reward", "rollout__turns"),
            *("rollout__reward_parts", "rollout__advantage", "rollout__fate", "gen_ai__usage__input_tokens"),
            *("gen_ai__response__finish_reasons", "gen_ai__tool__name", "rollout__min_weights_version", "error__type"),
            *("rollout__staleness", "rollout__requested_tool", "gen_ai__operation__name", "rollout__finish_reason"),
        ]
        attributes = dict.fromkeys(keys, value)
        spans = [
            span(1, kind, parent=None, error=True, **attributes),
            span(2, kind, parent=1, error=True, **attributes),
            span(3, None, parent=3, **attributes),
        ]
        summary = summarise_trajectory(spans)
        assert summary.spans == 3
        assert len(repr(summary)) < 20_000
        repr(summary).encode()

    def test_bounds(self):
        """On shapes, errors, tools, hashes and names; counts go on."""
        spans = [
            span(number, "TOOL" if number % 2 else "LLM", at=(number, number + 1), name=f"{number}" * 99, error=True)
            for number in range(2, 2002)
        ]
        summary = summarise_trajectory(spans)
        assert (len(shapes_of(spans)), len(summary.errors), len(summary.tools)) == (512, 8, 64)
        assert (summary.spans, summary.turns, len(summary.turn_hashes)) == (2000, 1000, 256)
        assert sum(counts.calls for counts in summary.tools.values()) == 1000
        assert "…" in summary.tools
        assert max(len(shape.name) for shape in shapes_of(spans)) == 128
