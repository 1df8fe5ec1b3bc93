"""The plugin's hooks on stand-in modules."""

from __future__ import annotations

import asyncio
import pickle
from types import SimpleNamespace
from typing import Generic, TypeVar

import cloudpickle
import pytest

from otel_rollout import flush
from otel_rollout.hooks import install_hook
from otel_rollout.hooks.verl.plugin import HOOKS, SWITCH
from otel_rollout.hooks.verl.rollout_trace import rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter

T = TypeVar("T")


def hook(target: str, owner: type) -> None:
    """Put one hook of the plugin on a class of another name."""
    [found] = [each for each in HOOKS if each.target == target]
    install_hook(found, SimpleNamespace(**{target.partition(".")[0]: owner}))


@pytest.fixture
def base_tool() -> type:
    """verl's `BaseTool`, hooked."""

    class BaseTool:
        def __init__(self, config: dict[str, object], tool_schema: object) -> None:
            self.config = config

    hook("BaseTool.__init__", BaseTool)
    return BaseTool


class TestSwitch:
    """`OTEL_ROLLOUT_VERL`."""

    @pytest.mark.parametrize(("value", "is_on"), [("", True), ("on", True), ("OFF", False), ("0", False)])
    def test_a_flag(self, caplog: pytest.LogCaptureFixture, value: str, is_on: bool) -> None:
        """It is true or false, in any form of a flag."""
        assert SWITCH.value(environ={"OTEL_ROLLOUT_VERL": value}) is is_on
        assert caplog.messages == []

    def test_a_wrong_value(self, caplog: pytest.LogCaptureFixture) -> None:
        """What is neither is a warning, and hooks are installed: an import of verl never fails for it."""
        assert SWITCH.value(environ={"OTEL_ROLLOUT_VERL": "offf"}) is True
        assert caplog.messages == ["OTEL_ROLLOUT_VERL='offf' is ignored: this should be true or false"]


class TestOps:
    """verl's `rollout_trace_op`, and tools."""

    def test_by_value(self) -> None:
        """A class with decorated methods goes by value through cloudpickle, as one of `__main__` does under Ray."""

        class Tool:
            @rollout_trace_op
            async def execute(self, value: int) -> int:
                return value + 1

            @rollout_trace_op
            async def run(self, value: int) -> int:
                return value + 2

        copy = pickle.loads(cloudpickle.dumps(Tool))
        assert asyncio.run(copy().execute(1)) == 2
        assert asyncio.run(copy().run(1)) == 3

    def test_own_execute(self, rollout_spans: InMemorySpanExporter, base_tool: type) -> None:
        """`execute` of a subclass is a TOOL op without a decorator, outside verl's own agent loop too."""

        class Search(base_tool):
            async def execute(self, query: str) -> str:
                return query.upper()

        class Wider(Search):
            pass

        assert asyncio.run(Wider({}, None).execute("a")) == "A"
        assert asyncio.run(Search({}, None).execute("a")) == "A"
        flush()
        spans = rollout_spans.as_dicts()
        assert [span["name"].rpartition(".<locals>.")[2] for span in spans] == ["Search.execute"] * 2
        assert {span["attributes"]["openinference.span.kind"] for span in spans} == {"TOOL"}

    def test_classes_of_tools_are_made_as_ever(self, rollout_spans: InMemorySpanExporter, base_tool: type) -> None:
        """Mixins with a hook of their own, keywords of classes, type parameters and metaclasses work as without us."""
        seen = []

        class Registered:
            def __init_subclass__(cls, /, name: str | None = None, **kwargs: object) -> None:
                super().__init_subclass__(**kwargs)
                seen.append((cls.__name__, name))

        class Closed(type):
            def __setattr__(cls, name: str, value: object) -> None:
                raise AttributeError("closed")

        class First(base_tool, Registered):
            pass

        class Second(base_tool, Registered, name="b"):
            pass

        class Third(base_tool, Generic[T]):
            pass

        class Fourth(base_tool, metaclass=Closed):
            async def execute(self) -> int:
                return 4

        assert seen == [("First", None), ("Second", "b")]
        assert Third[int].__origin__ is Third
        with pytest.raises(TypeError, match="__init_subclass__"):
            type("Fifth", (base_tool,), {}, name="x")
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")
            assert asyncio.run(Fourth({}, None).execute()) == 4

    def test_call_tool_with_bad_arguments(self, rollout_spans: InMemorySpanExporter) -> None:
        """Arguments that are no JSON are an error on the tool's span, which shows them as they came."""

        class Loop:
            tools = {"add": object()}  # noqa: RUF012
            max_tool_response_length = 10

            async def _call_tool(self, tool_call, tools_kwargs, agent_data):
                return SimpleNamespace(text="Invalid JSON in arguments for 'add'"), 0.0, {}

        hook("ToolAgentLoop._call_tool", Loop)
        call = SimpleNamespace(name="add", arguments="{not json", tool_call_id="call-1")
        asyncio.run(Loop()._call_tool(call, {}, None))
        flush()
        [span] = rollout_spans.as_dicts()
        assert (span["name"], span["status"]) == ("add", "ERROR")
        assert span["description"].startswith("the arguments are no JSON")
        assert span["attributes"]["input.value"] == {"name": "add", "arguments": "{not json"}
        assert span["attributes"]["rollout.tool_response_truncated"] is True
        assert span["attributes"]["gen_ai.tool.call.id"] == "call-1"

    @pytest.mark.parametrize(("raw", "status"), [(None, "ERROR"), ("Error executing tool 'add': none left", "UNSET")])
    def test_failure_around_a_tool(self, rollout_spans: InMemorySpanExporter, raw: str | None, status: str) -> None:
        """A failure before the tool runs, which verl makes a text, is an error; a tool's own text is not."""

        class Loop:
            tools = {"add": object()}  # noqa: RUF012

            async def _call_tool(self, tool_call, tools_kwargs, agent_data):
                if raw is not None:
                    await Tool().call({})
                return SimpleNamespace(text="Error executing tool 'add': none left"), 0.0, {}

        class Tool:
            async def call(self, arguments):
                return raw

        hook("ToolAgentLoop._call_tool", Loop)
        hook("FunctionTool.call", Tool)
        asyncio.run(Loop()._call_tool(SimpleNamespace(name="add", arguments="{}"), {}, None))
        flush()
        [span] = rollout_spans.as_dicts()
        assert span["status"] == status
