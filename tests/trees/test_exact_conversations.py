"""The conversations that scopes, marks and the texts of prompts tell apart; the writer of a folder compares no more."""

from __future__ import annotations

import json
import pkgutil
from typing import Any
from unittest import mock

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import read_trajectories, semconv
from otel_rollout.facts import Collected, SummaryBuilder, conversations_of, summarise_trajectory
from otel_rollout.folder import StoredFile
from tests.trace_folder.recordings import make_span, write_folder

Q, A, R = ({"role": role, "parts": [{"type": "text", "content": role}]} for role in ("user", "assistant", "tool"))
ID = {semconv.CONVERSATION_ID: "one"}
SYSTEM = {"gen_ai.system_instructions": '[{"type":"text","content":"You lead."}]'}
EXACTLY = "otel_rollout.facts.exact_conversations"
COMPACTION = {"role": "user", "parts": [{"type": "compaction", "content": 'f(x) { "y" }'}]}
SUMMARY = {"role": "user", "parts": [{"type": "text", "content": "so far"}]}


def user(words: int) -> dict[str, Any]:
    return {"role": "user", "parts": [{"type": "text", "content": "go " * words}]}


def client(prompt: list[Any]) -> str:
    """Return the arguments of a client's call."""
    messages = [{"role": each["role"], "content": each["role"]} for each in prompt]
    return json.dumps({"messages": messages, "tools": [{"name": "search"}, {"name": "read"}], "top_p": 1.0})


def agent(number: int, **more: Any) -> ReadableSpan:
    attributes = {semconv.SPAN_KIND: "AGENT", **more}
    return make_span("agent", number, 1, parent=1, attributes=attributes, seconds=(0.5, 90))


def llm(
    number: int, prompt: Any, parent: int = 1, error: str | None = None, takes: float = 0.5, **more: Any
) -> ReadableSpan:
    given = (
        {semconv.INPUT_VALUE: prompt}
        if isinstance(prompt, str)
        else {semconv.INPUT_MESSAGES: json.dumps(prompt, separators=(",", ":"))}
    )
    attributes = {semconv.SPAN_KIND: "LLM", **given, semconv.OUTPUT_MESSAGES: json.dumps([A]), **more}
    seconds = (number, number + takes)
    return make_span("llm", number, 1, parent=parent, attributes=attributes, seconds=seconds, error=error)


def call(number: int, prompt: Any, **more: Any) -> ReadableSpan:
    """Return a generation with a request of its own."""
    return llm(number, prompt, **{semconv.REQUEST_ID: f"{number}"}, **more)


def ended(*spans: ReadableSpan) -> list[ReadableSpan]:
    root = {semconv.SPAN_KIND: "AGENT", "rollout.step": 1}
    return [*spans, make_span("root", 1, 1, parent=None, attributes=root, seconds=(0, 99))]


def kinds(spans: list[ReadableSpan]) -> list[str]:
    return [f"{each.kind}{' inferred' if each.inferred else ''}" for each in conversations_of(spans).all]


EXACT = {
    "prompts that grow": ([llm(10, [Q]), llm(11, [Q, A, R]), llm(12, [Q, A, R, A, R])], ["main"]),
    "texts that grow": ([llm(10, "Once"), llm(11, "Once upon"), llm(12, "Once upon a time")], ["main"]),
    "a message that grows": ([llm(10, [user(40)]), llm(11, [user(50)]), llm(12, [user(60)])], ["main"]),
    "a client's arguments": (
        [llm(10, client([Q])), llm(11, client([Q, A, R])), llm(12, client([Q, A, R, A]))],
        ["main"],
    ),
    "a client's new messages": ([llm(10, client([Q])), llm(11, client([R])), llm(12, client([R]))], ["main"]),
    "ids of conversations": ([llm(10, [Q], **ID), llm(11, [Q, A, R], **ID), llm(12, [Q, A, R, A], **ID)], ["main"]),
    "a second try": ([llm(10, [Q], error="failed"), llm(11, [Q]), llm(12, [Q, A, R])], ["main"]),
    "token ids": ([llm(10, '{"prompt_ids":[1]}'), llm(11, '{"prompt_ids_start":1,"prompt_ids":[2]}')], ["main"]),
    "new messages alone": ([llm(10, [Q]), llm(11, [R]), llm(12, [R])], ["main"]),
    "agents": (
        [agent(2), agent(3), llm(10, [Q]), llm(11, [Q], 2), llm(12, [Q], 3), llm(13, [Q, A, R], 2), llm(14, [Q, A, R])],
        ["main", "subagent", "subagent"],
    ),
    "an agent that ends before a turn": (
        [agent(2), llm(11, [Q, A, R], 2), llm(12, [Q, A, R, A], 2), llm(10, [Q], takes=9)],
        ["main", "subagent"],
    ),
    "an agent that gets main's history": (
        [agent(2), llm(10, [Q]), llm(11, [Q, A, SUMMARY], 2), llm(12, [Q, A, SUMMARY, A], 2), llm(13, [Q, A, R])],
        ["main", "subagent"],
    ),
    "a mark": ([llm(10, [Q]), llm(11, [SUMMARY], **{semconv.COMPACTED: True})], ["main", "compacted"]),
    "a message's part": (
        [llm(10, [Q]), llm(11, [Q, A, R]), llm(12, [COMPACTION, Q]), llm(13, [COMPACTION, Q, A, R])],
        ["main", "compacted"],
    ),
    "a simulated user": (
        [llm(10, [SUMMARY], **{semconv.ROLE: "user"}), llm(11, [Q]), llm(12, [Q, A, Q])],
        ["user", "main"],
    ),
}
INFERRED = {
    "another answer": ([llm(10, [Q]), llm(11, [Q])], ["main", "fork inferred"]),
    "another turn": ([llm(10, [Q]), llm(11, [Q, A, R]), llm(12, [Q, A, Q])], ["main", "fork inferred"]),
    "another id": ([llm(10, [Q]), llm(11, [Q, A, R], **ID), llm(12, [Q, A, R, A])], ["main"]),
    "another system prompt": (
        [llm(10, [Q], **SYSTEM), llm(11, [Q, A, R]), llm(12, [Q, A, R, A], **SYSTEM)],
        ["main"],
    ),
    "another short task": ([llm(10, [user(2)]), llm(11, [user(4)])], ["main", "subagent inferred"]),
    "a client inside an op": (
        [agent(2), llm(10, [Q]), llm(11, [Q], 10), llm(12, [Q, A, R]), llm(13, [Q, A, R], 2)],
        ["main", "fork inferred"],
    ),
    "another task": ([llm(10, [Q]), llm(11, [SUMMARY]), llm(12, [Q, A, R])], ["main", "subagent inferred"]),
    "an id for each request": (
        [call(10, [Q]), call(11, "", **{semconv.OUTPUT_MESSAGES: ""}), call(12, [Q, A, R]), call(13, [Q])],
        ["main", "fork inferred"],
    ),
    "a mark on a request": (
        [call(10, [Q]), call(11, [Q]), call(12, [SUMMARY], **{semconv.COMPACTED: True})],
        ["main", "fork inferred", "compacted"],
    ),
    "agents alone": ([agent(2), agent(3), llm(10, [Q], 2), llm(11, [SUMMARY], 3)], ["main", "subagent inferred"]),
}


@pytest.mark.parametrize(("spans", "expected"), EXACT.values(), ids=EXACT)
def test_the_index_has_what_is_said(tmp_path, spans, expected):
    """Its facts are those that readers find in the spans, which need not be read."""
    write_folder(tmp_path, ended(*spans))
    [found] = read_trajectories(tmp_path)
    with mock.patch.object(StoredFile, "read_spans", side_effect=AssertionError):
        summary = found.summary
    whole = summarise_trajectory(ended(*spans))
    assert (summary.conversations, summary.subagents, summary.compactions, summary.user_turns) == (
        whole.conversations,
        whole.subagents,
        whole.compactions,
        whole.user_turns,
    )
    assert kinds(ended(*spans)) == expected


@pytest.mark.parametrize(("spans", "expected"), INFERRED.values(), ids=INFERRED)
def test_readers_infer_the_rest(tmp_path, spans, expected):
    """The index has no facts of such a trajectory, and readers have them all."""
    write_folder(tmp_path, ended(*spans))
    [found] = read_trajectories(tmp_path)
    with mock.patch.object(StoredFile, "read_spans", side_effect=AssertionError), pytest.raises(AssertionError):
        found.summary  # noqa: B018 - it is read
    assert kinds(ended(*spans)) == expected
    assert found.summary.conversations == len(expected)
    assert found.summary.forks == sum(kind.startswith("fork") for kind in expected)


def test_too_many_are_not_looked_at(monkeypatch):
    """The delivery thread would compare each of a thousand sub-agents with each of main's turns."""
    begun = mock.Mock(side_effect=pkgutil.resolve_name(f"{EXACTLY}._begun"))
    monkeypatch.setattr(f"{EXACTLY}._begun", begun)
    tools = [make_span("tool", 2 + at, 1, parent=1, attributes={semconv.SPAN_KIND: "TOOL"}) for at in range(300)]
    builder = SummaryBuilder(1)
    builder.add(ended(*tools, llm(399, [Q]), *(llm(400 + at, [Q], 2 + at) for at in range(300))))
    assert not Collected(builder).is_exact
    assert begun.call_count == 129
