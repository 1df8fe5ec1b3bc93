"""How the plugin gets into verl, tried on stand-in modules."""

from __future__ import annotations

import asyncio
import importlib.machinery
import inspect
import logging
import pickle
import sys
import threading
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Generic, TypeVar

import cloudpickle
import pytest

import otel_rollout
from otel_rollout import RolloutTraceConfig, flush, log_once, runtime
from otel_rollout.integrations.verl import patching, plugin
from otel_rollout.integrations.verl.config import max_samples, start
from otel_rollout.integrations.verl.executor import keep_context
from otel_rollout.integrations.verl.hook import Hook, Observer
from otel_rollout.integrations.verl.import_hook import after_import
from otel_rollout.integrations.verl.ops import rollout_trace_op
from otel_rollout.testing import InMemorySpanExporter

T = TypeVar("T")


def hook(target: str, owner: type) -> None:
    """Put one hook of the plugin on a class of another name."""
    [found] = [each for each in plugin.HOOKS if each.target == target]
    patching.install(found, SimpleNamespace(**{target.partition(".")[0]: owner}))


@pytest.fixture
def base_tool() -> type:
    """verl's `BaseTool`, hooked."""

    class BaseTool:
        def __init__(self, config: dict[str, object], tool_schema: object) -> None:
            self.config = config

    hook("BaseTool.__init__", BaseTool)
    return BaseTool


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

    def test_loader_that_several_modules_share(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A module from a zip file, whose loader is that of its neighbours too, is the one that is hooked."""
        archive = tmp_path / "packed.zip"
        with zipfile.ZipFile(archive, "w") as packed:
            packed.writestr("packed_one.py", "import packed_two\nvalue = 1\n")
            packed.writestr("packed_two.py", "value = 2\n")
        monkeypatch.syspath_prepend(str(archive))
        seen = []
        for name in ("packed_one", "packed_two"):
            after_import(name, lambda module: seen.append((module.__name__, module.value)))
        __import__("packed_one")
        assert seen == [("packed_two", 2), ("packed_one", 1)]

    def test_loader_that_takes_no_attributes(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A module whose loader can't be hooked is imported as it is, with a warning."""

        class Loader:
            __slots__ = ()

            def create_module(self, spec):
                return None

            def exec_module(self, module):
                module.value = 3

        class Finder:
            @staticmethod
            def find_spec(name, path=None, target=None):
                return importlib.machinery.ModuleSpec(name, Loader()) if name == "closed_module" else None

        monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
        after_import("closed_module", lambda module: None)
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            assert __import__("closed_module").value == 3
        assert "closed_module is not traced" in caplog.text


class TestObserve:
    """Replacing a function."""

    def test_replacement_looks_like_the_original(self) -> None:
        """A replaced method keeps name, module, signature and kind, by which verl, Ray and cloudpickle know it."""

        class Worker:
            async def run(self, value: int) -> int:
                return value

        original, module = Worker.run, SimpleNamespace(Worker=Worker)
        hook = Hook("module", "Worker.run", "nothing", lambda call: Observer())
        patching.install(hook, module)
        replacement = Worker.run
        patching.install(hook, module)
        assert Worker.run is replacement is not original
        assert asyncio.run(Worker().run(1)) == 1
        assert inspect.iscoroutinefunction(Worker.run)
        assert (Worker.run.__qualname__, Worker.run.__module__) == (original.__qualname__, original.__module__)
        assert inspect.signature(Worker.run) == inspect.signature(original)


VERLS_OWN = """
import contextlib


class RolloutTraceConfig:
    instance = None

    def __init__(self):
        self.backend = self.project_name = self.max_samples = None

    @classmethod
    def get_instance(cls):
        cls.instance = cls.instance or cls()
        return cls.instance

    @classmethod
    def init(cls, project_name, experiment_name, backend, token2text=False, max_samples_per_step_per_worker=None, *,
             tags=()):
        instance = cls.get_instance()
        instance.project_name, instance.backend, instance.tags = project_name, backend, tags
        instance.max_samples = max_samples_per_step_per_worker
        return instance

    @classmethod
    def flush_interval(cls):
        return 7


@contextlib.contextmanager
def rollout_trace_attr(sample_index=None, step=None, rollout_n=None, name="rollout_trace", validate=False, trace=True,
                       session=None):
    handle = {"session": session}
    yield handle
    handle["closed"] = True


def rollout_trace_op(func=None, *, label=None):
    def decorate(function):
        function.label = label
        return function

    return decorate if func is None else decorate(func)
"""


@pytest.fixture
def next_trace(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A `verl.utils.rollout_trace` of a next verl, hooked."""
    module = ModuleType("verl.utils.rollout_trace")
    exec(VERLS_OWN, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for hook in plugin.HOOKS:
        if hook.module == module.__name__:
            patching.install(hook, module)
    return module


class TestNextTrace:
    """verl's own trace module, as a next version may have it."""

    def test_what_is_new_is_verls(self, next_trace: ModuleType) -> None:
        """A new keyword, a new method and what is returned are verl's; its own tracing is off, and ours is on."""
        config = next_trace.RolloutTraceConfig
        returned = config.init("project", "experiment", "console", max_samples_per_step_per_worker=3, tags=("a",))
        assert returned is config.get_instance()
        assert (returned.tags, returned.backend, returned.max_samples) == (("a",), None, None)
        assert config.flush_interval() == 7
        assert RolloutTraceConfig.get_backend() == "console"
        assert max_samples() == 3

    def test_value_of_a_trajectory(self, next_trace: ModuleType, rollout_spans: InMemorySpanExporter) -> None:
        """A new keyword and a yielded value go through the trajectory, which is traced."""
        with next_trace.rollout_trace_attr(1, step=2, session="s") as handle:
            assert handle == {"session": "s"}
        assert handle["closed"] is True
        flush()
        [root] = rollout_spans.as_dicts()
        assert (root["attributes"]["rollout.sample_index"], root["attributes"]["rollout.step"]) == (1, 2)

    def test_trajectory_as_a_decorator(self, next_trace: ModuleType, rollout_spans: InMemorySpanExporter) -> None:
        """As a decorator it makes a trajectory of each call, and the function's exception passes."""

        @next_trace.rollout_trace_attr(step=2)
        def run(value: int) -> int:
            """Say something."""
            return 1 // value

        assert (run(1), run.__doc__) == (1, "Say something.")
        with pytest.raises(ZeroDivisionError):
            run(0)
        flush()
        assert [root["status"] for root in rollout_spans.as_dicts()] == ["UNSET", "ERROR"]

    def test_ops(self, next_trace: ModuleType, rollout_spans: InMemorySpanExporter) -> None:
        """Bare, by keyword and with options a function is traced; a class is what verl makes of it."""
        op = next_trace.rollout_trace_op

        @op
        def bare() -> str:
            return "bare"

        @op(label="x")
        def with_options() -> str:
            return "with options"

        def plain() -> str:
            return "by keyword"

        @op
        class Decorated:
            pass

        assert [bare(), with_options(), op(func=plain)()] == ["bare", "with options", "by keyword"]
        assert with_options.label == "x"
        assert isinstance(Decorated, type)
        flush()
        assert len(rollout_spans.as_dicts()) == 3

    def test_where_verls_own_tracing_stays(self, next_trace: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where verl's tracing can't be handed to us, its decorator stays as well."""
        monkeypatch.setattr(next_trace.RolloutTraceConfig, "init", classmethod(lambda cls: None))

        def function() -> None:
            return None

        assert next_trace.rollout_trace_op(function) is function


class TestConfig:
    """What verl's settings come to."""

    def test_off_where_verl_names_no_backend(self, next_trace: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without trace.backend nothing is traced, whatever the environment says; verl has what it was given."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        instance = next_trace.RolloutTraceConfig.init("project", "experiment", None, True, 3)
        assert RolloutTraceConfig.get_backend() is None
        assert (instance.project_name, instance.max_samples) == ("project", 3)

    def test_otel_takes_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """backend=otel takes the exporters from the environment; a second start in a process is ignored."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        start("project", "experiment", "otel")
        start("other", "other", "nowhere")
        assert RolloutTraceConfig.get_backend() == "console"
        assert RolloutTraceConfig.get_instance().project_name == "project"

    @pytest.mark.parametrize(("variable", "spans"), [("", 2048), ("100", 100)])
    def test_size_of_batches(self, monkeypatch: pytest.MonkeyPatch, variable: str, spans: int) -> None:
        """Batches are larger than elsewhere: hundreds of trajectories run at once; the variable has the last word."""
        monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", variable)
        start("project", "experiment", "console")
        assert runtime.pipeline is not None
        assert runtime.pipeline.settings.max_batch_spans == spans

    def test_otel_is_otlp_by_default(self) -> None:
        """backend=otel is OTLP where the environment names nothing."""
        start("project", "experiment", "otel")
        assert RolloutTraceConfig.get_backend() == "otlp"

    def test_a_backend_that_can_not_be(self, caplog: pytest.LogCaptureFixture) -> None:
        """An unknown backend is a warning, once, not an exception: training goes on."""
        log_once.forget()
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            start("project", "experiment", "nowhere")
            start("project", "experiment", "nowhere")
        assert caplog.text.count("nothing is traced: trace.backend=nowhere") == 1
        assert RolloutTraceConfig.get_backend() is None


class TestThreads:
    """Functions that an event loop hands to its threads."""

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_programs_own_executor(self, loop: str, rollout_spans: InMemorySpanExporter) -> None:
        """They run in the program's own executor, inside the trajectory; the program's own context stays behind."""
        new_loop = asyncio.new_event_loop if loop == "asyncio" else pytest.importorskip(loop).new_event_loop
        own: ContextVar[str] = ContextVar("own", default="as it is in threads")

        @otel_rollout.rollout_trace_op
        def judge() -> tuple[str, str]:
            return threading.current_thread().name, own.get()

        async def main() -> None:
            running = asyncio.get_running_loop()
            running.set_default_executor(ThreadPoolExecutor(1, thread_name_prefix="users-own"))
            with otel_rollout.rollout_trace_attr(step=1, sample_index=2):
                own.set("as it is in the coroutine")
                keep_context()
                keep_context()
                assert await running.run_in_executor(None, judge) == ("users-own_0", "as it is in threads")
                with pytest.raises(TypeError):
                    await running.run_in_executor(None)

        running = new_loop()
        try:
            running.run_until_complete(main())
            running.run_until_complete(running.shutdown_default_executor())
        finally:
            running.close()
        flush()
        spans = {span["name"].rpartition(".")[2]: span for span in rollout_spans.as_dicts()}
        assert spans["judge"]["parent_id"] == spans["rollout_trace"]["span_id"]

    def test_executor_of_processes(self) -> None:
        """A function for another process is handed over as what it is."""

        async def main() -> None:
            keep_context()
            handed = []
            running = asyncio.get_running_loop()
            executor = SimpleNamespace(submit=lambda function, *args: handed.append(function) or Future())
            running._default_executor = executor
            running.run_in_executor(None, len, "abc").cancel()
            running._default_executor = None
            assert pickle.loads(pickle.dumps(handed[0]))("abc") == 3

        asyncio.run(main())


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
        """What fails before the tool runs, of which verl makes a text, is an error; a tool's own words are not."""

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
