"""Rollouts that are trees: conversations found in the calls of loops that exist, compared with the tree of each.

`cases.json`: `messages` are the distinct messages of a case, `calls` its generations in their order: the numbers of the
prompt's messages, the number of the answer, and the agents around it; `trees` are the trees that a reader may expect,
each a list of kind, parent and calls.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from otel_rollout import semconv
from otel_rollout.facts import (
    COLUMNS,
    INFERRED,
    Collected,
    SummaryBuilder,
    columns_of,
    conversations_of,
    summarise_trajectory,
    utterances_of,
)
from otel_rollout.messages import convert_messages, json_of
from tests.trace_folder.recordings import make_span

CASES = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))
RIGHT = 0.95
FIRST_CALL = 1000
"""The span id of the first call; the root's is 1, and agents follow it."""


def message_of(short: Any) -> dict[str, Any]:
    """Return a message as OpenAI's API has it: of a text with its role, or of a tool call."""
    if isinstance(short, dict):
        return short
    if isinstance(short, list):
        identity, name, arguments, *said = short
        call = {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}
        return {"role": "assistant", "content": said[0] if said else "", "tool_calls": [call]}
    head, _, text = short.partition(": ")
    role, _, call_id = head.partition(" ")
    return {"role": role, "content": text, **({"tool_call_id": call_id} if call_id else {})}


def numbers_of(ranges: str) -> list[int]:
    """Return the numbers of `0-2,5`."""
    ends = [each.split("-") for each in ranges.split(",")]
    return [number for each in ends for number in range(int(each[0]), int(each[-1]) + 1)]


def payloads_of(prompt: list[Any], answer: Any, form: str) -> dict[str, str]:
    """Return the attributes of a generation with these messages.

    Args:
        prompt: The messages that it was given.
        answer: Its answer.
        form: `genai`, as ops record messages, or `openai`, as a client's payload has them.
    """
    if form == "openai":
        return {
            semconv.INPUT_VALUE: json.dumps({"messages": prompt, "tools": [{"name": "search"}], "temperature": 1.0}),
            semconv.OUTPUT_VALUE: json.dumps({"choices": [{"message": answer}]}),
        }
    given, said = (json_of([each.as_json() for each in convert_messages(side)]) for side in (prompt, answer))
    return {semconv.INPUT_MESSAGES: given, semconv.OUTPUT_MESSAGES: said}


def spans_of(case: dict[str, Any], form: str = "genai") -> list[ReadableSpan]:
    """Return the spans of a case: a root, its agents, and a second for each call."""
    messages = [message_of(each) for each in case["messages"]]
    spans = [make_span("rollout", 1, 1, parent=None, attributes={semconv.SPAN_KIND: "AGENT"}, seconds=(0, 9999))]
    around: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
    for at, (ranges, answer, *agents) in enumerate(case["calls"]):
        scope = tuple(agents[0]) if agents else ()
        for depth, agent in enumerate(scope):
            around.setdefault(agent, []).append((at, scope[:depth]))
        payloads = payloads_of([messages[number] for number in numbers_of(ranges)], messages[answer], form)
        parent = scope[-1] + 2 if scope else 1
        attributes = {semconv.SPAN_KIND: "LLM", **payloads}
        seconds = (at + 1, at + 1.5)
        spans.append(make_span("llm", FIRST_CALL + at, 1, parent=parent, attributes=attributes, seconds=seconds))
    for agent, calls in around.items():
        outer = calls[0][1]
        seconds = (calls[0][0] + 0.9, calls[-1][0] + 1.6)
        parent = outer[-1] + 2 if outer else 1
        attributes = {semconv.SPAN_KIND: "AGENT"}
        name = case["agents"][agent]
        spans.append(make_span(name, agent + 2, 1, parent=parent, attributes=attributes, seconds=seconds))
    return spans


def tree_of(spans: list[ReadableSpan]) -> list[list[Any]]:
    """Return the tree that is found in spans."""
    found = conversations_of(spans).all
    return [[each.kind, each.parent and each.parent - 1, [turn - 1 for turn in each.turns]] for each in found]


def edges_of(tree: list[list[Any]]) -> set[tuple[Any, ...]]:
    """Return each conversation's calls with its kind and the calls of its parent."""
    return {(tuple(calls), kind, None if parent is None else tuple(tree[parent][2])) for kind, parent, calls in tree}


def score(case: dict[str, Any], found: list[list[Any]]) -> tuple[int, int]:
    """Return the number of edges that are right, and of all that are expected or found, for the best of the trees."""
    scores = []
    for tree in case["trees"]:
        expected, got = edges_of(tree), edges_of(found)
        calls = {edge[0] for edge in expected | got}
        scores.append((len(expected & got), len(calls)))
    return max(scores, key=lambda each: each[0] / each[1])


@pytest.mark.parametrize("form", ["genai", "openai"])
class TestTrees:
    """The conversations of all cases."""

    def test_edges(self, form):
        """Kind and parent are right for 95 of 100 conversations."""
        scores = {case["name"]: score(case, tree_of(spans_of(case, form))) for case in CASES}
        right, all_ = (sum(column) for column in zip(*scores.values(), strict=True))
        wrong = {name: each for name, each in scores.items() if each[0] < each[1]}
        assert right / all_ >= RIGHT, wrong

    def test_facts_are_those_of_the_conversations(self, form):
        """An index counts while the spans come, in any order, what readers find in all of them."""
        for case in CASES:
            spans = spans_of(case, form)
            kinds = [kind for kind, _, _ in tree_of(spans)]
            for given in (spans, spans[::-1]):
                facts = summarise_trajectory(given)
                counted = (facts.conversations, facts.subagents, facts.forks, facts.compactions)
                assert counted == (len(kinds), *map(kinds.count, ("subagent", "fork", "compacted"))), case["name"]

    def test_the_writer_counts_what_needs_no_messages(self, form):
        """Where scopes and the texts of prompts decide, it has all facts that readers find.

        Elsewhere it has those that no conversation is needed for, or none if a user may have to be guessed.
        """
        exact = guessed = 0
        for case in CASES:
            spans = spans_of(case, form)
            builder = SummaryBuilder(1)
            builder.add(sorted(spans, key=lambda span: span.end_time or 0))
            collected = Collected(builder)
            guessed += collected.lacks_users
            if collected.lacks_users:
                continue
            summary = summarise_trajectory(spans)
            lacking = () if collected.is_exact else INFERRED
            facts = {name: value for name, value in columns_of(collected).items() if name not in lacking}
            assert facts == {name: getattr(summary, name) for name in COLUMNS if name not in lacking}, case["name"]
            if collected.is_exact:
                exact += 1
                assert collected.conversations == Counter(kind for kind, _, _ in tree_of(spans))
        assert exact == {"genai": 31, "openai": 28}[form]
        assert guessed < len(CASES) / 10

    def test_each_answer_is_told_once(self, form):
        """In the conversation of its turn, whatever prompts repeat it."""
        for case in CASES:
            spans = spans_of(case, form)
            found = conversations_of(spans)
            told = [each for each in utterances_of(spans, found) if each.span is not None]
            answers = {each.span.context.span_id: each.conversation for each in told if each.message.role != "tool"}
            assert answers == {span_id: found.of_span[span_id] for span_id in answers}
            assert set(answers) == {span.context.span_id for span in found.turns}, case["name"]


@pytest.mark.parametrize(("prompt", "shared", "turn"), [("0", 1, None), ("0-2", 3, 1), ("0-4", 5, 2)])
def test_a_fork_comes_from_the_last_turn_that_it_shares(prompt: str, shared: int, turn: int | None) -> None:
    """Where its history parts from its parent's, however many turns the parent had until then."""
    messages = ["user: q", "assistant: one", "user: more", "assistant: two", "user: and", "assistant: three"]
    case = {
        "messages": [*messages, "assistant: other"],
        "calls": [["0", 1], ["0-2", 3], ["0-4", 5], [prompt, 6]],
    }
    fork = conversations_of(spans_of(case)).all[1]
    assert (fork.kind, fork.parent, fork.shared, fork.parent_turn) == ("fork", 1, shared, turn)


ASKED = ("How long is the first bridge?", "How long is the second bridge?", "How long is the third bridge, in metres?")


@pytest.mark.parametrize("has_agents", [True, False])
@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_workers_of_one_system_prompt_are_apart(turns: int, is_parallel: bool, has_agents: bool) -> None:
    """Each has a conversation of its own, though their questions begin the same, with or without agents around them."""
    messages = ["system: You lead.", "user: Compare.", "assistant: I ask.", "user: They say a lot.", "assistant: So."]
    messages += ["system: You look things up.", *(f"user: {question}" for question in ASKED)]
    histories, expected = [["5", str(6 + worker)] for worker in range(3)], [[], [], []]
    calls: list[list[Any]] = [["0-1", 2]]
    steps = [(turn, worker) for turn in range(turns) for worker in range(3)]
    for turn, worker in steps if is_parallel else sorted(steps, key=lambda step: step[1]):
        expected[worker].append(len(calls))
        answer = len(messages)
        calls.append([",".join(histories[worker]), answer, *([[worker]] if has_agents else [])])
        messages += [f"assistant: Answer {turn} of {worker}.", "user: Go on."]
        histories[worker] += [str(answer), str(answer + 1)]
    calls.append(["0-3", 4])
    found = tree_of(spans_of({"messages": messages, "calls": calls, "agents": ["worker"] * 3}))
    assert found == [["main", None, [0, len(calls) - 1]], *(["subagent", 0, each] for each in expected)]


def test_a_repeated_action_goes_on_after_an_edited_message() -> None:
    """A reminder that isn't kept parts the histories at the last message, and no answer is there only once."""
    messages, kept, calls = ["system: Act.", "user: Go to the door.", "assistant: wait"], "0-1", []
    for turn in range(6):
        messages += [f"user: Nothing moves.\n{9 - turn} steps left.", "user: Nothing moves."]
        calls.append([f"{kept},{len(messages) - 2}", 2])
        kept += f",{len(messages) - 1},2"
    assert tree_of(spans_of({"messages": messages, "calls": calls})) == [["main", None, list(range(6))]]


@pytest.mark.parametrize(
    "system",
    ["It is {}. You are a guide.", "You are a guide.\nIt is {}.", "You are (it is {}) a guide to the museums of Linz."],
)
def test_a_date_in_the_system_prompt_is_no_other_agent(system: str) -> None:
    """Wherever it stands in it, the turns go on with one conversation."""
    messages = ["user: q", "assistant: one", "user: more", "assistant: two", "user: and", "assistant: three"]
    systems = [f"system: {system.format(f'2026-11-25 {hour:02}:00')}" for hour in range(3)]
    case = {"messages": [*messages, *systems], "calls": [["6,0", 1], ["7,0-2", 3], ["8,0-4", 5]]}
    assert tree_of(spans_of(case)) == [["main", None, [0, 1, 2]]]


def test_a_compaction_follows_a_sub_agent_whose_answer_was_never_given() -> None:
    """The main conversation is replaced, though it says the same words again later to call another sub-agent."""
    delegate, search = ["c", "delegate", "{}", "Read this page."], ["c", "search", "{}", "I search."]
    messages = ["system: You lead.", "user: Compare.", search, "tool c: pages", delegate, "user: Until now: pages."]
    messages += [
        "system: You read.",
        "user: Page 1.",
        "user: Page 2.",
        "assistant: One.",
        "assistant: Two.",
        "tool c: Two.",
    ]
    calls = [["0-1", 2], ["0-3", 4], ["6,7", 9], ["0,1,5", 2], ["0,1,5,2,3", 4], ["6,8", 10], ["0,1,5,2,3,4,11", 9]]
    assert tree_of(spans_of({"messages": messages, "calls": calls})) == [
        ["main", None, [0, 1]],
        ["subagent", 0, [2]],
        ["compacted", 0, [3, 4, 6]],
        ["subagent", 2, [5]],
    ]


@pytest.mark.parametrize("readings", [1, 2, 3])
def test_sub_agents_that_nothing_marks(readings: int) -> None:
    """Each that works between two turns of main is one, whatever words their answers have in common."""
    messages, main, calls = ["system: You lead.", "user: Compare.", "system: You read."], "0-1", []
    expected: list[list[Any]] = [["main", None, []]]
    for page in range(4):
        messages += [[f"c{page}", "delegate", "{}", "Read this page."], f"user: Page {page}."]
        expected[0][2].append(len(calls))
        calls.append([main, len(messages) - 2])
        main += f",{len(messages) - 2}"
        own = f"2,{len(messages) - 1}"
        expected.append(["subagent", 0, []])
        for reading in range(readings):
            messages += [["r", "open", "{}", "Let me see."], f"tool r: line {reading} of {page}"]
            expected[-1][2].append(len(calls))
            calls.append([own, len(messages) - 2])
            own += f",{len(messages) - 2},{len(messages) - 1}"
        messages.append(f"tool c{page}: It says {page}.")
        main += f",{len(messages) - 1}"
    expected[0][2].append(len(calls))
    calls.append([main, 3])
    assert tree_of(spans_of({"messages": messages, "calls": calls})) == expected
