"""`subagent`, and what `annotate` records of conversations."""

from __future__ import annotations

import asyncio
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op, semconv, subagent
from otel_rollout.facts import Conversation, conversations_of, summarise_trajectory
from otel_rollout.hooks.carrier import extract, inject
from otel_rollout.messages import chat_messages
from otel_rollout.testing import InMemorySpanExporter, span_tree


@rollout_trace_op(kind="LLM", name="llm")
async def llm(messages: list[dict[str, Any]]) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"role": "assistant", "content": f"{len(messages)} of {messages[-1]['content']}"}


async def say(messages: list[dict[str, Any]], text: str) -> None:
    messages.append({"role": "user", "content": text})
    messages.append(await llm(messages))


def found_in(exporter: InMemorySpanExporter) -> tuple[Conversation, ...]:
    assert otel_rollout.flush(10.0)
    return conversations_of(exporter.spans).all


class TestSubagent:
    """A block whose generations are a sub-agent's."""

    def test_is_a_span_of_its_name(self, rollout_spans: InMemorySpanExporter) -> None:
        """Of kind AGENT, with GenAI's names; an exception that leaves it is its error, and goes on."""
        with pytest.raises(KeyError), rollout_trace_attr(1, 1, 0), subagent("reader"):
            raise KeyError("page")
        assert otel_rollout.flush(10.0)
        span = next(each for each in rollout_spans.as_dicts() if each["name"] == "reader")
        assert span["attributes"][semconv.SPAN_KIND] == "AGENT"
        assert span["attributes"][semconv.OPERATION_NAME] == "invoke_agent"
        assert span["attributes"][semconv.AGENT_NAME] == "reader"
        assert span["status"] == "ERROR"

    def test_is_around_what_runs_in_it(self, rollout_spans: InMemorySpanExporter) -> None:
        """Also in blocks that run at the same time, each with conversations of its own."""

        async def ask(name: str) -> None:
            async with subagent(name):
                messages: list[dict[str, Any]] = []
                await say(messages, "the same task")
                await say(messages, name)

        async def rollout() -> None:
            with rollout_trace_attr(1, 1, 0, name="root"):
                main: list[dict[str, Any]] = []
                await say(main, "question")
                await asyncio.gather(ask("one"), ask("two"))
                await say(main, "go on")

        asyncio.run(rollout())
        found = found_in(rollout_spans)
        assert [(each.kind, each.name, each.parent, each.parent_turn, each.joined_turn) for each in found] == [
            ("main", "", None, None, None),
            ("subagent", "one", 1, 1, 6),
            ("subagent", "two", 1, 1, 6),
        ]
        assert span_tree(rollout_spans.spans) == [
            ["root", ["llm"], ["one", ["llm"], ["llm"]], ["two", ["llm"], ["llm"]], ["llm"]]
        ]

    def test_serves_blocks_at_once(self, rollout_spans: InMemorySpanExporter) -> None:
        """In each other, in tasks that run at the same time, and in one that isn't traced."""
        reader = subagent("reader")

        async def rollout(number: int) -> None:
            with rollout_trace_attr(1, 1, number, name="root", trace=number != 1):
                async with reader:
                    await say([], "task")
                    await asyncio.sleep(0.001 * number)
                    with reader:
                        await say([], "another")
                    await say([], "a third")
                await say([], "the last")

        async def rollouts() -> None:
            await asyncio.gather(*map(rollout, range(5)))

        asyncio.run(rollouts())
        assert otel_rollout.flush(10.0)
        traces = {span.context.trace_id for span in rollout_spans.spans if span.context is not None}
        assert [
            span_tree([span for span in rollout_spans.spans if span.context and span.context.trace_id == each])
            for each in traces
        ] == [[["root", ["reader", ["llm"], ["reader", ["llm"]], ["llm"]], ["llm"]]]] * 4

    def test_keeps_what_it_is_told_where_the_root_is_elsewhere(self, rollout_spans: InMemorySpanExporter) -> None:
        """In a process that the trajectory goes on in, and after the trajectory's end."""

        async def rest(carrier: dict[str, str]) -> None:
            with extract(carrier), subagent("reader"):
                annotate(trained=False)
                await say([], "task")

        async def rollout() -> None:
            with rollout_trace_attr(1, 1, 0):
                await say([], "question")
                carrier = inject()
                await rest(carrier)
                late = asyncio.create_task(rest(carrier))
            await late

        asyncio.run(rollout())
        found = found_in(rollout_spans)
        assert [(each.kind, each.trained) for each in found] == [
            ("main", None),
            ("subagent", False),
            ("subagent", False),
        ]

    def test_that_has_ended_is_told_nothing(self, rollout_spans: InMemorySpanExporter) -> None:
        """A task that outlives the block speaks of nothing, which is counted."""

        async def rollout() -> None:
            async def outlive() -> None:
                await ended.wait()
                annotate(trained=False, compacted=True)

            ended = asyncio.Event()
            with rollout_trace_attr(1, 1, 0):
                with subagent("reader"):
                    task = asyncio.create_task(outlive())
                    await asyncio.sleep(0)
                ended.set()
                await task

        asyncio.run(rollout())
        assert otel_rollout.flush(10.0)
        assert otel_rollout.stats().lost_annotations == {"trained": 1, "compacted": 1}

    def test_without_tracing(self) -> None:
        """It does nothing."""
        with subagent("reader") as nothing:
            annotate(compacted=True, trained=False)
        assert nothing is None

    def test_in_silence(self, rollout_spans: InMemorySpanExporter) -> None:
        """Under `trace=False` it records nothing."""
        with rollout_trace_attr(1, 1, 0, trace=False), subagent("reader"):
            annotate(trained=True)
        assert otel_rollout.flush(10.0)
        assert rollout_spans.spans == []


ORDERS = {
    "before": ["sub-agent", "main", "main"],
    "between": ["main", "sub-agent", "main"],
    "after": ["main", "main", "sub-agent"],
    "two": ["sub-agent", "sub-agent", "main", "main"],
    "tool": ["tool", "main", "main", "tool"],
    "recorded": ["recorded", "main", "main", "recorded"],
}


async def use(who: str, main: list[dict[str, Any]], trajectory: Any) -> None:
    if who == "main":
        await say(main, f"{who} {len(main)}")
    elif who == "sub-agent":
        with subagent("reader"):
            await say([], "task")
    elif who == "tool":
        await rollout_trace_op(kind="TOOL", name="search")(say)([], "task")
    else:
        tool = trajectory.record("search", kind="TOOL")
        said = {"role": "assistant", "content": "found"}
        trajectory.record("llm", kind="LLM", parent=tool, input=[{"role": "user", "content": "task"}], output=said)


def run_main(exporter: InMemorySpanExporter, order: list[str], *, is_annotated: bool) -> list[ReadableSpan]:
    async def rollout() -> None:
        main: list[dict[str, Any]] = []
        with rollout_trace_attr(1, 1, 0) as trajectory:
            for who in order:
                await use(who, main, trajectory)
            if is_annotated:
                annotate(reward=1.0, input=main[:1], output=main[-1]["content"])

    asyncio.run(rollout())
    assert otel_rollout.flush(10.0)
    return exporter.spans


class TestRoot:
    """The root of a trajectory with sub-agents."""

    @pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
    @pytest.mark.parametrize("is_annotated", [False, True], ids=["alone", "annotated"])
    @pytest.mark.parametrize("is_theirs", [False, True], ids=["ours", "provider"])
    def test_has_the_main_conversation(self, order: list[str], is_annotated: bool, is_theirs: bool) -> None:
        """Its messages are those outside of sub-agents and tools, wherever these run; so are prompt and answer."""
        exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False) if is_theirs else None
        otel_rollout.init("p", "e", exporter, tracer_provider=provider)
        spans = run_main(exporter, order, is_annotated=is_annotated)
        root = next(span for span in spans if span.parent is None)
        found = chat_messages(root.attributes or {})
        assert found is not None
        assert [each.text for each in found.input] == ["main 0", "1 of main 0", "main 2"]
        assert [each.text for each in found.output] == ["3 of main 2"]
        summary = summarise_trajectory(spans)
        assert (summary.prompt, summary.answer) == ("main 0", "3 of main 2")

    @pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
    def test_if_it_is_missing_main_has_the_prompt(self, rollout_spans: InMemorySpanExporter, order: list[str]) -> None:
        """Of a run that crashed too, the prompt and the answer are main's, in whatever order its spans are read."""
        spans = [span for span in run_main(rollout_spans, order, is_annotated=False) if span.parent is not None]
        for some in permutations(spans[:5]):
            summary = summarise_trajectory([*some, *spans[5:]])
            assert (summary.prompt, summary.answer) == ("main 0", "3 of main 2")

    def test_has_the_sub_agents_conversation_if_there_is_no_other(self, rollout_spans: InMemorySpanExporter) -> None:
        """A trajectory whose turns are all inside an agent has these."""
        root = run_main(rollout_spans, ["sub-agent"], is_annotated=False)[-1]
        found = chat_messages(root.attributes or {})
        assert found is not None
        assert [each.text for each in (*found.input, *found.output)] == ["task", "1 of task"]

    def test_an_annotated_input_that_no_model_got_is_the_prompt(self, rollout_spans: InMemorySpanExporter) -> None:
        """The messages are the model's, the prompt and the answer what the program says."""
        with rollout_trace_attr(1, 1, 0):
            asyncio.run(say([], "Read: what is it?"))
            annotate(input=[{"role": "user", "content": "what is it?"}], output={"answer": "it"})
        assert otel_rollout.flush(10.0)
        summary = summarise_trajectory(rollout_spans.spans)
        assert (summary.prompt, summary.answer) == ("what is it?", "it")


class TestAnnotations:
    """`annotate(compacted=…)` and `annotate(trained=…)`."""

    def test_compacted_marks_the_next_generation(self, rollout_spans: InMemorySpanExporter) -> None:
        """Inside a sub-agent its own, elsewhere the trajectory's; it begins a conversation that replaces another."""

        async def rollout() -> None:
            with rollout_trace_attr(1, 1, 0):
                await say([], "question")
                annotate(compacted=True)
                async with subagent("reader"):
                    await say([], "task")
                    annotate(compacted=True)
                    await say([], "shorter task")
                await say([], "shorter question")

        asyncio.run(rollout())
        found = found_in(rollout_spans)
        assert [(each.kind, each.parent, each.turns, each.replaced) for each in found] == [
            ("main", None, (1,), None),
            ("subagent", 1, (2,), None),
            ("compacted", 2, (3,), 2),
            ("compacted", 1, (4,), 2),
        ]
        marked = [each for each in rollout_spans.as_dicts() if semconv.COMPACTED in each["attributes"]]
        assert [each["attributes"][semconv.TURN] for each in marked] == [3, 4]

    @pytest.mark.parametrize(
        ("fate", "of_main", "expected"),
        [
            (None, True, [True, False, None]),
            (None, None, [None, False, None]),
            ("trained", None, [None, False, None]),
            ("filtered", True, [False, False, False]),
        ],
    )
    def test_training_data(self, rollout_spans: InMemorySpanExporter, fate, of_main, expected) -> None:
        """A sub-agent's mark is its own, the trajectory's the main one's; one that was filtered has none."""

        async def rollout() -> None:
            with rollout_trace_attr(1, 1, 0) as trajectory:
                main: list[dict[str, Any]] = []
                await say(main, "question")
                async with subagent("reader"):
                    annotate(trained=False)
                    await say([], "task")
                await say([{"role": "system", "content": "judge"}], "how good is it?")
                await say(main, "go on")
                annotate(trained=of_main)
            trajectory.annotate(fate=fate)

        asyncio.run(rollout())
        assert [each.trained for each in found_in(rollout_spans)] == expected

    def test_a_training_row_for_each(self, rollout_spans: InMemorySpanExporter) -> None:
        """If as many rows were trained as there are conversations, each is training data."""

        async def rollout() -> None:
            with rollout_trace_attr(1, 1, 0):
                await say([], "question")
                annotate(compacted=True)
                await say([], "shorter question")
                annotate(fate="trained", **{semconv.NUM_OUTPUTS: 2})

        asyncio.run(rollout())
        assert [each.trained for each in found_in(rollout_spans)] == [True, True]

    def test_after_the_end(self, rollout_spans: InMemorySpanExporter) -> None:
        """The use in training may come late; no later generation can be compacted, which is counted."""

        async def rollout() -> None:
            with rollout_trace_attr(1, 1, 0) as trajectory:
                await say([], "question")
            trajectory.annotate(trained=True, compacted=True)

        asyncio.run(rollout())
        assert [each.trained for each in found_in(rollout_spans)] == [True]
        assert otel_rollout.stats().lost_annotations == {"compacted": 1}

    @pytest.mark.parametrize("flag", ["yes", 1, [True], np.array([True, False])], ids=["text", "1", "list", "array"])
    def test_what_is_no_boolean(self, rollout_spans: InMemorySpanExporter, flag: Any) -> None:
        """It is left out and counted, in a trajectory, in a sub-agent and after the end; numpy's booleans are some."""
        with rollout_trace_attr(1, 1, 0) as trajectory:
            annotate(trained=flag, compacted=flag)
            with subagent("reader"):
                annotate(trained=flag, compacted=flag)
            annotate(trained=np.True_, compacted=np.False_)  # type: ignore[arg-type]
        trajectory.annotate(trained=flag, compacted=flag)
        assert otel_rollout.flush(10.0)
        assert otel_rollout.stats().lost_annotations == {"trained": 3, "compacted": 3}
