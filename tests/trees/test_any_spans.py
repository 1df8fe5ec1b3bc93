"""Conversations of any spans: each turn is in one, and they are a tree, whatever was recorded."""

from __future__ import annotations

import json
import pkgutil
import tracemalloc
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts import SummaryBuilder, conversations_of, summarise_trajectory, utterances_of
from tests.trace_folder.recordings import make_span

MAX_CONVERSATIONS = 128
"""As docs/how-to/trace-your-loop.md has it."""
TEXTS = ("", "a", "b", "c", "a summary", "x" * 40, "x" * 40 + "y" * 40)
ROLES = ("system", "user", "assistant", "tool")


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}] if text else []}


def llm(number: int, prompt: Any, answers: Any, parent: int = 1, error: str | None = None, **more: Any) -> ReadableSpan:
    """Return a generation that starts at `number` seconds."""
    attributes = {
        semconv.SPAN_KIND: "LLM",
        semconv.INPUT_MESSAGES: json.dumps(prompt, separators=(",", ":")),
        semconv.OUTPUT_MESSAGES: json.dumps(answers),
        **more,
    }
    return make_span(
        "llm", number + 10, 1, parent=parent, attributes=attributes, seconds=(number, number + 0.5), error=error
    )


MESSAGES = st.lists(st.builds(message, st.sampled_from(ROLES), st.sampled_from(TEXTS)), max_size=5)


@st.composite
def trees(draw: Any) -> list[ReadableSpan]:
    """Return the spans of a trajectory, some of whose prompts repeat or extend earlier ones."""
    kinds = draw(st.lists(st.sampled_from(["AGENT", "TOOL", "EVALUATOR", "CHAIN"]), max_size=4))
    spans = [make_span("root", 1, 1, parent=None, attributes={semconv.SPAN_KIND: "AGENT"}, seconds=(0, 99))]
    for number, kind in enumerate(kinds, 2):
        parent = draw(st.integers(1, number - 1))
        spans.append(make_span(kind, number, 1, parent=parent, attributes={semconv.SPAN_KIND: kind}, seconds=(0.5, 90)))
    histories: list[list[Any]] = [[]]
    for number in range(draw(st.integers(0, 9))):
        known = draw(st.sampled_from(histories))
        prompt = known[: draw(st.integers(0, len(known)))] + draw(MESSAGES)
        answers = draw(st.lists(st.builds(message, st.just("assistant"), st.sampled_from(TEXTS)), max_size=2))
        histories.append(prompt + answers[:1])
        more: dict[str, Any] = {}
        if draw(st.integers(0, 5)) == 0:
            more[semconv.COMPACTED] = True
        if draw(st.integers(0, 5)) == 0:
            more[semconv.CONVERSATION_ID] = draw(st.sampled_from("pq"))
        if draw(st.integers(0, 5)) == 0:
            more = {semconv.INPUT_VALUE: '{"prompt_ids_start":3}', semconv.REQUEST_ID: draw(st.sampled_from("rs"))}
        error = draw(st.sampled_from([None, None, None, "failed"]))
        spans.append(llm(number, prompt, answers, draw(st.integers(1, len(kinds) + 1)), error, **more))
    return spans


class TestAnySpans:
    """Spans of any shape."""

    @settings(max_examples=100)
    @given(trees(), st.randoms())
    def test_they_are_a_tree(self, spans, random):
        """One is main, each other one has a parent that leads to it, and every turn is in exactly one."""
        found = conversations_of(spans)
        turns = [turn for each in found.all for turn in each.turns]
        assert sorted(turns) == list(range(1, len(found.turns) + 1))
        assert [each.id for each in found.all] == list(range(1, len(found.all) + 1))
        assert [each.turns[0] for each in found.all] == sorted(each.turns[0] for each in found.all)
        assert [each.kind for each in found.all].count("main") == bool(turns)
        for each in found.all:
            assert (each.parent is None) == (each.kind == "main")
            assert (each.replaced is None) == (each.kind != "compacted")
            at, passed = each, set()
            while at.parent is not None:
                assert at.id not in passed
                passed.add(at.id)
                at = found.all[at.parent - 1]
        told = utterances_of(spans, found)
        assert {each.conversation for each in told} <= {each.id for each in found.all} | {1}
        random.shuffle(spans)
        facts = summarise_trajectory(spans)
        assert facts.conversations == len(found.all)
        assert facts.conversations == bool(turns) + facts.subagents + facts.forks + facts.compactions

    def test_spans_in_a_circle(self):
        """Spans of other programs that are inside each other hold turns all the same."""
        around = [make_span("step", number, 1, parent=5 - number, attributes={}, seconds=(0, 9)) for number in (2, 3)]
        found = conversations_of([*around, llm(1, [message("user", "task")], [message("assistant", "done")], parent=2)])
        assert [each.turns for each in found.all] == [(1,)]

    def test_prompts_that_are_no_json(self):
        """Another program's prompts, one with a bracket less than the one before, are no error."""
        texts = "[1]]", "[1]", "[1],]"
        spans = [llm(at, [], [], **{semconv.INPUT_MESSAGES: text}) for at, text in enumerate(texts)]
        assert summarise_trajectory(spans).turns == 3


class TestBounds:
    """Trajectories of any size."""

    def test_answers_to_one_prompt(self):
        """Further ones than are told apart are forks in the facts, too."""
        prompt = [message("user", "task")]
        spans = [llm(number, prompt, [message("assistant", f"answer {number}")]) for number in range(200)]
        assert summarise_trajectory(spans).forks == 199

    def test_prompts_that_grow(self, monkeypatch):
        """Each is read whole once: two as long as each other in turn, and beside many that begin as they do."""
        whole = "otel_rollout.facts.histories.input_messages"
        read, reads = [], pkgutil.resolve_name(whole)
        monkeypatch.setattr(whole, lambda span: read.append(span) or reads(span))
        histories = [[message("user", name)] for name in "ab"]
        answer = message("assistant", "go on")
        spans = []
        for number in range(40):
            history = histories[number % 2]
            spans.append(llm(2 * number, history, [answer]))
            spans.append(llm(2 * number + 1, [*histories[0][:1], answer, message("user", f"other {number}")], [answer]))
            history += [answer, message("user", f"{number:02}")]
        summarise_trajectory(spans)
        assert len(read) <= 3

    def test_memory(self):
        """What a trajectory's histories take is known, also of prompts of one long message, and of tools' results."""
        known = SummaryBuilder(1)
        tracemalloc.start()
        try:
            for number in range(300):
                known.add([llm(2 * number, [message("user", f"{number} " + "x" * 2_000)], [])])
                known.add([llm(2 * number + 1, [message("tool", str(each)) for each in range(100)], [])])
            taken, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert taken / 2 < known.size < 2 * taken

    def test_conversations(self):
        """The last one that is told apart has the turns of all further ones; the facts count them all."""
        answers = [message("assistant", "done")]
        spans = [llm(number, [message("user", f"task {number}")], answers) for number in range(200)]
        found = conversations_of(spans).all
        assert len(found) == MAX_CONVERSATIONS
        assert (found[-1].name, len(found[-1].turns)) == ("…", 200 - MAX_CONVERSATIONS + 1)
        assert summarise_trajectory(spans).conversations == 200

    def test_messages(self):
        """Of a history of 20,000 messages the last ones are not looked at, and it stays one conversation."""
        history = [message("user", f"message {number}") for number in range(20_000)]
        spans = [llm(number, history[: 10_000 * number], [message("assistant", "done")]) for number in (1, 2)]
        assert summarise_trajectory(spans).conversations == 1
