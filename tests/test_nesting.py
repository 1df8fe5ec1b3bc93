"""Who stands under whom: tasks, threads, and the spans of other instrumentations."""

from __future__ import annotations

import asyncio
import contextvars
import random
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import otel_rollout
from otel_rollout import annotate, rollout_trace_attr, rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter, span_tree


@rollout_trace_op(name="leaf")
async def leaf(owner: int) -> int:
    """Hand back whose it is."""
    await asyncio.sleep(0)
    return owner


@rollout_trace_op(name="plain")
def plain(owner: int) -> int:
    """Hand back whose it is."""
    return owner


def tree(exporter: InMemorySpanExporter) -> list[Any]:
    """Return the tree of all spans so far."""
    assert otel_rollout.flush(60)
    return span_tree(exporter.spans)


@pytest.fixture
def global_provider() -> None:
    """Let a test set the global provider; it begins with none."""
    trace._TRACER_PROVIDER, trace._TRACER_PROVIDER_SET_ONCE._done = None, False


class TestTasksAndThreads:
    """The trajectory goes where the context goes."""

    def test_gather(self, rollout_spans: InMemorySpanExporter) -> None:
        """Ops that `asyncio.gather` runs at once are siblings under the op that gathers."""

        @rollout_trace_op(name="turn")
        async def turn() -> list[int]:
            return await asyncio.gather(leaf(1), leaf(2), leaf(3))

        async def main() -> None:
            with rollout_trace_attr(1, name="root"):
                await turn()

        asyncio.run(main())
        assert tree(rollout_spans) == [["root", ["turn", ["leaf"], ["leaf"], ["leaf"]]]]

    def test_create_task(self, rollout_spans: InMemorySpanExporter) -> None:
        """A task belongs where it was created, also when it ends after its parent."""

        async def main() -> None:
            with rollout_trace_attr(1, name="root"):

                @rollout_trace_op(name="starter")
                async def start() -> asyncio.Task[int]:
                    return asyncio.create_task(leaf(1))

                task = await start()
                await leaf(2)
            await task

        asyncio.run(main())
        assert tree(rollout_spans) == [["root", ["starter", ["leaf"]], ["leaf"]]]

    @pytest.mark.skipif(sys.version_info < (3, 11), reason="TaskGroup came with Python 3.11")
    def test_task_group(self, rollout_spans: InMemorySpanExporter) -> None:
        """Tasks of a group stand under the op that opened it; when one fails, the others are cancelled."""

        @rollout_trace_op(name="failing")
        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError("one")

        @rollout_trace_op(name="waiting")
        async def wait() -> None:
            await asyncio.Event().wait()

        @rollout_trace_op(name="turn")
        async def turn() -> None:
            async with asyncio.TaskGroup() as group:
                group.create_task(wait())
                group.create_task(fail())

        async def main() -> None:
            with rollout_trace_attr(1, name="root"):
                await turn()

        with pytest.raises(ExceptionGroup):  # noqa: F821
            asyncio.run(main())
        assert tree(rollout_spans) == [["root", ["turn", ["waiting"], ["failing"]]]]
        by_name = {span["name"]: span for span in rollout_spans.as_dicts()}
        assert by_name["waiting"]["attributes"]["rollout.status"] == "cancelled"
        assert by_name["failing"]["description"] == "ValueError: one"
        assert by_name["root"]["attributes"]["rollout.status"] == "error"

    def test_threads(self, rollout_spans: InMemorySpanExporter) -> None:
        """A thread with a copied context belongs to the trajectory, one without does not."""

        async def main() -> None:
            with rollout_trace_attr(1, name="root"):
                await asyncio.to_thread(plain, 1)

        asyncio.run(main())
        with ThreadPoolExecutor(1) as pool, rollout_trace_attr(2, name="root"):
            pool.submit(contextvars.copy_context().run, plain, 2).result()
            pool.submit(plain, 3).result()
        assert tree(rollout_spans) == [["root", ["plain"]], ["root", ["plain"]], ["plain"]]

    def test_hundreds_of_trajectories(self) -> None:
        """300 concurrent trajectories of three ops each never mix, however their turns fall."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        order = random.Random(7)

        @rollout_trace_op(name="act")
        async def act(owner: int) -> int:
            for _ in range(order.randrange(4)):
                await asyncio.sleep(0)
            return await leaf(owner)

        async def rollout(owner: int) -> None:
            with rollout_trace_attr(owner // 4, step=1, rollout_n=owner % 4, name=f"root {owner}"):
                for _ in range(order.randrange(4)):
                    await asyncio.sleep(0)
                await asyncio.gather(act(owner), asyncio.to_thread(plain, owner))
                annotate(reward=owner, output=owner)

        async def main() -> None:
            await asyncio.gather(*(rollout(owner) for owner in range(300)))

        asyncio.run(main())
        assert otel_rollout.flush(60)
        spans = exporter.as_dicts()
        assert Counter(span["name"].split()[0] for span in spans) == {
            "root": 300,
            "act": 300,
            "leaf": 300,
            "plain": 300,
        }
        by_id = {span["span_id"]: span for span in spans}
        assert len(by_id) == 1200
        owners = {span["trace_id"]: int(span["name"].split()[1]) for span in spans if span["parent_id"] is None}
        assert len(owners) == 300
        for span in spans:
            owner = owners[span["trace_id"]]
            attributes = span["attributes"]
            assert (attributes["rollout.sample_index"], attributes["rollout.rollout_n"]) == (owner // 4, owner % 4)
            assert attributes["output.value"] == owner
            if span["parent_id"] is not None:
                parent = by_id[span["parent_id"]]
                assert parent["trace_id"] == span["trace_id"]
                assert parent["name"].split()[0] == {"leaf": "act"}.get(span["name"], "root")
                assert attributes["input.value"] == {"owner": owner}
            else:
                assert attributes["rollout.reward"] == owner


class TestProviders:
    """Our spans and those of other instrumentations."""

    def test_private_provider(self, global_provider: None) -> None:
        """With a private provider, spans of others nest under ours; ours never under theirs, which we don't have."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter)
        others = InMemorySpanExporter()
        theirs = TracerProvider()
        theirs.add_span_processor(SimpleSpanProcessor(others))
        tracer = theirs.get_tracer("openai")
        with rollout_trace_attr(1, name="root"), tracer.start_as_current_span("http"):
            plain(1)
        assert tree(exporter) == [["root", ["plain"]]]
        (http,) = others.spans
        root = exporter.spans[-1]
        assert http.context is not None
        assert http.parent is not None
        assert root.context is not None
        assert (http.context.trace_id, http.parent.span_id) == (root.context.trace_id, root.context.span_id)

    def test_private_provider_is_private(self, global_provider: None) -> None:
        """`init` alone does not set the global provider."""
        otel_rollout.init("project", "experiment", backend=InMemorySpanExporter())
        assert not isinstance(trace.get_tracer_provider(), TracerProvider)

    def test_set_global(self, global_provider: None) -> None:
        """With `set_global`, spans of any instrumentation are exported with ours, and nest with them both ways."""
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter, set_global=True)
        tracer = trace.get_tracer("openai")
        with rollout_trace_attr(1, name="root"):
            with tracer.start_as_current_span("http"):
                plain(1)
            plain(2)
        with tracer.start_as_current_span("server"):
            plain(3)
        assert tree(exporter) == [["root", ["http", ["plain"]], ["plain"]], ["server", ["plain"]]]
        assert len({span["trace_id"] for span in exporter.as_dicts()}) == 2

    @pytest.mark.parametrize("sampler", ["parentbased_always_on", "always_on", "traceidratio"])
    def test_set_global_and_silence(self, global_provider: None, monkeypatch: pytest.MonkeyPatch, sampler: str) -> None:
        """With `set_global`, `trace=False` silences the spans of any instrumentation, whichever the sampler."""
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
        exporter = InMemorySpanExporter()
        otel_rollout.init("project", "experiment", backend=exporter, set_global=True)
        with rollout_trace_attr(1, trace=False), trace.get_tracer("openai").start_as_current_span("http"):
            plain(1)
        assert tree(exporter) == []

    def test_global_provider_of_the_application(self, global_provider: None) -> None:
        """A global SDK provider is used: each span is once in its exporters and once in ours, under the same ids."""
        theirs, ours = InMemorySpanExporter(), InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(theirs))
        trace.set_tracer_provider(provider)
        otel_rollout.init("project", "experiment", backend=ours)
        with trace.get_tracer("trainer").start_as_current_span("step"), rollout_trace_attr(1, name="root"):
            with trace.get_tracer("openai").start_as_current_span("http"):
                plain(1)
            annotate(output="answer")
        assert tree(ours) == [["step"], ["root", ["http", ["plain"]]]]
        assert sorted(ours.as_dicts(), key=str) == sorted(theirs.as_dicts(), key=str)
        ids = {span["name"]: span["span_id"] for span in ours.as_dicts()}
        root = next(span for span in ours.as_dicts() if span["name"] == "root")
        assert root["links"] == [ids["step"]]
        assert root["attributes"] == {
            "openinference.span.kind": "AGENT",
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "root",
            "gen_ai.conversation.id": f"{root['trace_id']:032x}",
            "session.id": "s1 · project/experiment",
            "rollout.sample_index": 1,
            "rollout.validate": False,
            "rollout.experiment_name": "experiment",
            "rollout.status": "completed",
            "output.value": "answer",
            "output.mime_type": "text/plain",
            "metadata": {
                "sample_index": 1,
                "validate": False,
                "experiment_name": "experiment",
                "status": "completed",
            },
        }
        (op,) = (span for span in ours.as_dicts() if span["name"] == "plain")
        assert op["attributes"] == {
            "openinference.span.kind": "CHAIN",
            "input.value": {"owner": 1},
            "input.mime_type": "application/json",
            "output.value": 1,
            "output.mime_type": "application/json",
            "rollout.sample_index": 1,
            "rollout.validate": False,
            "rollout.experiment_name": "experiment",
        }

    def test_explicit_provider(self) -> None:
        """An explicit provider makes our spans; without a backend they go to its exporters alone, errors included."""
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        otel_rollout.init("project", "experiment", tracer_provider=provider)

        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no words")

        @rollout_trace_op(name="failing")
        def fail() -> None:
            raise Mute

        with rollout_trace_attr(1, name="root"):
            plain(1)
            with pytest.raises(Mute):
                fail()
        plain(2)
        assert tree(exporter) == [["root", ["plain"], ["failing"]], ["plain"]]
        inside, failing, root, outside = exporter.as_dicts()
        assert root["parent_id"] is None
        assert (failing["status"], failing["events"][0]["exception.type"]) == (
            "ERROR",
            f"{__name__}.{Mute.__qualname__}",
        )
        assert outside["attributes"]["rollout.outside_trajectory"] is True
        assert "rollout.outside_trajectory" not in inside["attributes"]

    def test_sampler_of_an_explicit_provider(self) -> None:
        """A trajectory that the provider's sampler leaves out is silent, its ops included."""
        from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

        exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ALWAYS_OFF)
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        otel_rollout.init("project", "experiment", tracer_provider=provider)
        with rollout_trace_attr(1):
            plain(1)
        plain(2)
        assert tree(exporter) == []
