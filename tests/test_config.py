"""Switching tracing on and off."""

from __future__ import annotations

import logging

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as SdkInMemorySpanExporter

import otel_rollout
from otel_rollout import (
    AlreadyInitializedError,
    ConfigurationError,
    RolloutTraceConfig,
    flush,
    init,
    rollout_trace_attr,
    rollout_trace_op,
    shutdown,
    start_trajectory,
    stats,
)
from otel_rollout.record import runtime
from otel_rollout.testing import InMemorySpanExporter
from tests.fresh_interpreter import run_program


@rollout_trace_op
def double(number: int) -> int:
    return 2 * number


class TestInit:
    """Switching on."""

    def test_without_a_backend_tracing_is_off(self):
        """verl's default: nothing is traced, and nothing is made."""
        init("p", "e")

        with rollout_trace_attr(sample_index=1):
            assert double(2) == 4
        assert runtime.pipeline is None
        assert RolloutTraceConfig.get_backend() is None
        assert flush() is True
        assert stats().exporters == {}

    def test_before_init_everything_is_a_no_op(self):
        """Decorated code runs before and without init."""
        with rollout_trace_attr(sample_index=1, step=1, rollout_n=0, trace=False):
            otel_rollout.annotate(reward=1.0)
            assert double(2) == 4
        assert shutdown() is True

    @pytest.mark.parametrize("run", [lambda: rollout_trace_attr(step=1).__enter__(), start_trajectory])
    def test_without_init_one_line_says_that_a_variable_asks_for_traces(self, monkeypatch, caplog, run):
        """The first trajectory of a process where nobody calls init has a line; a choice for `none` has none."""
        for chosen in ("", " ", "none"):
            monkeypatch.setenv("OTEL_TRACES_EXPORTER", chosen)
            run()
            RolloutTraceConfig.reset()
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "mlflow")
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
        run()
        RolloutTraceConfig.reset()
        assert caplog.messages == []

        monkeypatch.delenv("OTEL_SDK_DISABLED")
        run()
        run()
        assert caplog.messages == [
            (
                "a trajectory runs untraced: OTEL_TRACES_EXPORTER=mlflow asks for traces, but otel_rollout.init() "
                "was not called in this process"
            )
        ]

    def test_after_init_and_shutdown_nothing_is_said(self, monkeypatch, caplog):
        """Who has switched tracing off knows that it is."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        init("p", "e")
        shutdown()
        caplog.clear()
        with rollout_trace_attr(step=1):
            double(1)
        assert caplog.messages == []

    def test_sdk_disabled_wins(self, monkeypatch: pytest.MonkeyPatch):
        """OTEL_SDK_DISABLED=true turns tracing off, whatever else is asked for."""
        monkeypatch.setenv("OTEL_SDK_DISABLED", "True")
        exporter = InMemorySpanExporter()
        init("p", "e", backend=exporter)

        double(2)

        assert runtime.pipeline is None
        assert exporter.spans == []

    def test_the_exporter_comes_from_the_environment(self, monkeypatch: pytest.MonkeyPatch):
        """OTEL_TRACES_EXPORTER counts where there is no argument."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
        init("p", "e")

        assert RolloutTraceConfig.get_backend() == "console"

    def test_twice_with_the_same_settings_is_harmless(self):
        """The second init with equal settings changes nothing."""
        exporter = InMemorySpanExporter()
        init("p", "e", backend=exporter)
        first = runtime.pipeline
        init("p", "e", backend=exporter)

        assert runtime.pipeline is first

    def test_twice_with_other_settings_is_an_error_that_names_them(self):
        """The error says what was and what is now asked for."""
        init("p", "e", backend="console")

        with pytest.raises(AlreadyInitializedError) as caught:
            init("p", "other", backend="console", max_batch_spans=3)

        assert "experiment_name was 'e', now 'other'; max_batch_spans was 512, now 3" in str(caught.value)
        assert "call shutdown() first" in str(caught.value)

    def test_after_shutdown_it_may_be_called_again(self):
        """shutdown makes room for other settings."""
        init("p", "e", backend=InMemorySpanExporter())
        shutdown()
        exporter = InMemorySpanExporter()
        init("p2", "e2", backend=exporter)

        double(1)

        assert flush()
        assert [span.name for span in exporter.spans] == ["double"]

    @pytest.mark.parametrize("argument", ["project_name", "experiment_name"])
    @pytest.mark.parametrize("value", ["", "  ", None, 5])
    def test_names_are_texts(self, argument: str, value: object):
        """Project and experiment must be named."""
        names = {"project_name": "p", "experiment_name": "e", argument: value}

        with pytest.raises(ConfigurationError, match=rf"^{argument}=.*should be a non-empty string"):
            init(**names, backend="console")  # type: ignore[arg-type]

    def test_a_failed_init_leaves_tracing_off(self):
        """After an error, init may be called again with what is right."""
        with pytest.raises(ConfigurationError):
            init("p", "e", backend="nowhere")

        assert runtime.pipeline is None
        init("p", "e", backend=InMemorySpanExporter())
        assert runtime.pipeline is not None

    def test_one_exporter_gets_nothing_of_what_another_fails_on(self):
        """Several exporters all receive every span."""
        first, second = InMemorySpanExporter(), InMemorySpanExporter()
        init("p", "e", backend=[first, second])

        double(1)

        assert flush()
        assert len(first.spans) == len(second.spans) == 1
        assert {name: s.delivered for name, s in stats().exporters.items()} == {
            "InMemorySpanExporter": 1,
            "InMemorySpanExporter-2": 1,
        }


class TestRolloutTraceConfig:
    """verl's names for it."""

    def test_it_shows_what_init_was_asked_for(self):
        """The attributes and class methods that verl's code reads."""
        RolloutTraceConfig.init("p", "e", "console", True, 3)
        config = RolloutTraceConfig.get_instance()

        assert (config.project_name, config.experiment_name, config.backend) == ("p", "e", "console")
        assert config.max_samples_per_step_per_worker == 3
        assert RolloutTraceConfig.get_backend() == "console"
        assert RolloutTraceConfig.enable_token2text() is True
        assert RolloutTraceConfig.get_client() is not None

    def test_reset_forgets_everything(self):
        """After reset the process is as before init."""
        init("p", "e", backend=InMemorySpanExporter())
        double(1)
        RolloutTraceConfig.reset()

        assert RolloutTraceConfig.get_backend() is None
        assert RolloutTraceConfig.get_client() is None
        assert RolloutTraceConfig.get_instance().project_name is None
        assert stats().exporters == {}


class TestShutdown:
    """Switching off."""

    def test_it_delivers_and_logs_one_line(self, caplog: pytest.LogCaptureFixture):
        """shutdown returns the truth and logs what was delivered."""
        exporter = InMemorySpanExporter()
        init("p", "e", backend=exporter)
        double(1)

        with caplog.at_level(logging.INFO, "otel_rollout"):
            assert shutdown() is True

        assert [record.getMessage() for record in caplog.records] == ["InMemorySpanExporter: 1 of 1 spans delivered"]
        assert stats().exporters["InMemorySpanExporter"].delivered == 1

    def test_afterwards_nothing_is_traced(self):
        """Decorated code goes on working after shutdown."""
        exporter = InMemorySpanExporter()
        init("p", "e", backend=exporter)
        shutdown()

        assert double(4) == 8
        assert exporter.spans == []

    def test_an_applications_provider_goes_on_without_us(self, caplog: pytest.LogCaptureFixture):
        """Spans that the application's own provider makes after shutdown are nobody's loss."""
        theirs, ours = SdkInMemorySpanExporter(), InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(theirs))
        init("p", "e", backend=ours, tracer_provider=provider)
        shutdown()

        provider.get_tracer("theirs").start_span("later").end()

        assert [span.name for span in theirs.get_finished_spans()] == ["later"]
        assert ours.spans == []
        assert caplog.records == []

    def test_a_late_end_is_counted(self):
        """A span that ends after shutdown is lost, and stats says so."""
        init("p", "e", backend=InMemorySpanExporter())
        with rollout_trace_attr(sample_index=1):
            shutdown()

        assert stats().exporters["InMemorySpanExporter"].lost == {"after_shutdown": 1}

    def test_an_applications_exporters_are_flushed(self):
        """If only the application's own exporters receive spans, shutdown waits for them."""
        theirs = SdkInMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(theirs, schedule_delay_millis=3_600_000))
        init("p", "e", tracer_provider=provider)
        double(1)

        assert shutdown() is True
        assert [span.name for span in theirs.get_finished_spans()] == ["double"]
        provider.shutdown()

    def test_it_happens_at_exit_by_itself(self):
        """A program that ends without shutdown still delivers, and says what it lost."""
        program = """
            import otel_rollout
            otel_rollout.init("p", "e", backend="console")
            @otel_rollout.rollout_trace_op
            def op(x):
                return x
            with otel_rollout.rollout_trace_attr(sample_index=1):
                op(5)
        """
        done = run_program(program)

        assert "op" in done.stdout
        assert done.returncode == 0
        assert done.stderr == ""


class TestImports:
    """The imports of the core."""

    def test_the_core_imports_no_backend(self):
        """Neither an exporter nor a backend's client, nor anything heavy, is imported by the core."""
        program = """
            import sys
            import otel_rollout
            heavy = {"mlflow", "weave", "wandb", "grpc", "torch", "numpy", "rich", "tokenizers", "verl", "ray",
                     "otel_rollout_mlflow", "otel_rollout_weave", "otel_rollout_otlp", "otel_rollout_console",
                     "requests", "pytest"}
            print(sorted(heavy & set(sys.modules)))
        """

        assert run_program(program).stdout.strip() == "[]"
