"""How the plugin gets into verl, tried on stand-in modules."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import pytest

from otel_rollout import flush, runtime
from otel_rollout.integrations.verl import plugin, tools
from otel_rollout.integrations.verl.config import RolloutTraceConfig
from otel_rollout.integrations.verl.import_hook import after_import
from otel_rollout.integrations.verl.ops import rollout_trace_op
from otel_rollout.integrations.verl.patching import replace
from otel_rollout.testing import InMemorySpanExporter


class TestImportHook:
    """Hooks on import."""

    def test_runs_when_the_module_has_been_imported(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The callback gets the module whole, before whoever imports it goes on; its source is found as before."""
        (tmp_path / "hooked_module.py").write_text("def function():\n    return 1\n")
        monkeypatch.syspath_prepend(tmp_path)
        seen = []
        after_import("hooked_module", lambda module: seen.append(module.function()))
        assert seen == []
        module = __import__("hooked_module")
        assert seen == [1]
        assert inspect.getsource(module.function).startswith("def function")
        after_import("hooked_module", lambda module: seen.append(2))
        assert seen == [1, 2]
        del sys.modules["hooked_module"]


class TestInstall:
    """Hooking a verl that may be another one."""

    def test_a_hook_that_does_not_fit(self, caplog: pytest.LogCaptureFixture) -> None:
        """A verl that is not as expected costs one warning that says what is not traced, and raises nothing."""
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            for _module, what, hook in plugin._HOOKS:
                plugin._guarded(what, hook)(SimpleNamespace())
        messages = [record.message for record in caplog.records]
        assert len(messages) == len(plugin._HOOKS)
        assert all(
            message.startswith(f"verl: {what}") for message, (_, what, _) in zip(messages, plugin._HOOKS, strict=True)
        )

    def test_replacement_looks_like_the_original(self) -> None:
        """A replaced method keeps name, module, signature and kind, by which verl, Ray and cloudpickle know it."""

        class Worker:
            async def run(self, value: int) -> int:
                return value

        original = Worker.run

        def make(function):
            async def wrapper(self, *args, **kwargs):
                return await function(self, *args, **kwargs) + 1

            return wrapper

        replace(Worker, "run", make)
        replace(Worker, "run", make)
        assert asyncio.run(Worker().run(1)) == 2
        assert inspect.iscoroutinefunction(Worker.run)
        assert (Worker.run.__qualname__, Worker.run.__module__) == (original.__qualname__, original.__module__)
        assert inspect.signature(Worker.run) == inspect.signature(original)

    def test_a_method_that_takes_something_else(self) -> None:
        """A method whose first parameters have other names than the hook needs is left as it is."""

        class Worker:
            async def score(self, output, prompts):
                return output, prompts

        original = Worker.score
        with pytest.raises(TypeError, match="score takes output, prompts"):
            replace(Worker, "score", lambda function: function, "outputs", "kwargs")
        assert Worker.score is original
        replace(Worker, "score", functools.partial, "output")
        assert Worker.score is not original


class TestConfig:
    """verl's `RolloutTraceConfig`."""

    def test_off_where_verl_names_no_backend(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without trace.backend nothing is traced, whatever the environment says; the names are kept for verl."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        RolloutTraceConfig.reset()
        RolloutTraceConfig.init("project", "experiment", None, True, 3)
        instance = RolloutTraceConfig.get_instance()
        assert RolloutTraceConfig.get_backend() is None
        assert (instance.project_name, instance.experiment_name) == ("project", "experiment")
        assert instance.max_samples_per_step_per_worker == 3
        assert RolloutTraceConfig.enable_token2text() is True
        RolloutTraceConfig.reset()

    def test_otel_takes_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """backend=otel takes the exporters from the environment; a second init in a process is ignored."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        RolloutTraceConfig.reset()
        RolloutTraceConfig.init("project", "experiment", "otel")
        RolloutTraceConfig.init("other", "other", "nowhere")
        assert RolloutTraceConfig.get_backend() == "console"
        assert RolloutTraceConfig.get_instance().project_name == "project"
        RolloutTraceConfig.reset()

    @pytest.mark.parametrize(("variable", "spans"), [("", 2048), ("100", 100)])
    def test_size_of_batches(self, monkeypatch: pytest.MonkeyPatch, variable: str, spans: int) -> None:
        """Batches are larger than elsewhere: hundreds of trajectories run at once; the variable has the last word."""
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", variable)
        RolloutTraceConfig.reset()
        RolloutTraceConfig.init("project", "experiment", "console")
        assert runtime.pipeline is not None
        assert runtime.pipeline.settings.max_batch_spans == spans
        RolloutTraceConfig.reset()

    def test_otel_is_otlp_by_default(self) -> None:
        """backend=otel is OTLP where the environment names nothing."""
        RolloutTraceConfig.reset()
        RolloutTraceConfig.init("project", "experiment", "otel")
        assert RolloutTraceConfig.get_backend() == "otlp"
        RolloutTraceConfig.reset()

    def test_a_backend_that_can_not_be(self, caplog: pytest.LogCaptureFixture) -> None:
        """An unknown backend is a warning, not an exception: training goes on."""
        RolloutTraceConfig.reset()
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            RolloutTraceConfig.init("project", "experiment", "nowhere")
        assert "nothing is traced: trace.backend=nowhere" in caplog.text
        assert RolloutTraceConfig.get_backend() is None
        RolloutTraceConfig.reset()


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

    def test_own_execute(self, rollout_spans: InMemorySpanExporter) -> None:
        """`execute` of a subclass is a TOOL op without a decorator, outside verl's own agent loop too."""

        class BaseTool:
            pass

        tools.trace_subclasses(BaseTool)

        class Search(BaseTool):
            async def execute(self, query: str) -> str:
                return query.upper()

        assert asyncio.run(Search().execute("a")) == "A"
        flush()
        [span] = rollout_spans.as_dicts()
        assert span["name"].endswith("Search.execute")
        assert span["attributes"]["openinference.span.kind"] == "TOOL"

    def test_call_tool_with_bad_arguments(self, rollout_spans: InMemorySpanExporter) -> None:
        """Arguments that are no JSON are an error on the tool's span, which shows them as they came."""

        class Loop:
            tools = {"add": object()}  # noqa: RUF012
            max_tool_response_length = 10

            async def _call_tool(self, tool_call, tools_kwargs, agent_data):
                return SimpleNamespace(text="Invalid JSON in arguments for 'add'"), 0.0, {}

        replace(Loop, "_call_tool", tools.trace_call_tool)
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
        """What fails before the tool runs, of which verl makes a text, is an error; a tool's own words are not."""

        class Loop:
            async def _call_tool(self, tool_call, tools_kwargs, agent_data):
                if raw is not None:
                    await Tool().call({})
                return SimpleNamespace(text="Error executing tool 'add': none left"), 0.0, {}

        class Tool:
            async def call(self, arguments):
                return raw

        replace(Loop, "_call_tool", tools.trace_call_tool)
        replace(Tool, "call", tools.trace_call)
        asyncio.run(Loop()._call_tool(SimpleNamespace(name="add", arguments="{}"), {}, None))
        flush()
        [span] = rollout_spans.as_dicts()
        assert span["status"] == status
