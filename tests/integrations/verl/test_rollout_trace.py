"""verl's own trace module and settings, with the plugin on them, as they may become."""

from __future__ import annotations

import logging
import sys
from types import ModuleType

import pytest

from otel_rollout import RolloutTraceConfig, flush
from otel_rollout.guard import forget_warnings
from otel_rollout.hooks import install_hook
from otel_rollout.hooks.verl import max_samples, start
from otel_rollout.hooks.verl.plugin import HOOKS
from otel_rollout.record import runtime
from otel_rollout.testing import InMemorySpanExporter

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
    for hook in HOOKS:
        if hook.module == module.__name__:
            install_hook(hook, module)
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
        """If verl's tracing can't be handed to us, its decorator stays too."""
        monkeypatch.setattr(next_trace.RolloutTraceConfig, "init", classmethod(lambda cls: None))

        def function() -> None:
            return None

        assert next_trace.rollout_trace_op(function) is function


class TestConfig:
    """verl's settings."""

    def test_off_where_verl_names_no_backend(self, next_trace: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without trace.backend nothing is traced, whatever the environment says; verl has what it was given."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        instance = next_trace.RolloutTraceConfig.init("project", "experiment", None, True, 3)
        assert RolloutTraceConfig.get_backend() is None
        assert (instance.project_name, instance.max_samples) == ("project", 3)

    def test_trackio_is_ours(self, next_trace: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """backend=trackio, which verl has as well, is our exporter, and verl's own one stays off."""
        monkeypatch.setenv("TRACKIO_SERVER_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("TRACKIO_WRITE_TOKEN", "token")

        instance = next_trace.RolloutTraceConfig.init("project", "experiment", "trackio")

        assert (RolloutTraceConfig.get_backend(), instance.backend) == ("trackio", None)

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
        forget_warnings()
        with caplog.at_level(logging.WARNING, "otel_rollout"):
            start("project", "experiment", "nowhere")
            start("project", "experiment", "nowhere")
        assert caplog.text.count("verl: nothing is traced: no exporter is called 'nowhere'") == 1
        assert RolloutTraceConfig.get_backend() is None
