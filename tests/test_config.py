"""Switching tracing on and off."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as SdkInMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider

import otel_rollout
from otel_rollout import (
    AlreadyInitializedError,
    ConfigurationError,
    RolloutTraceConfig,
    flush,
    init,
    rollout_trace_attr,
    rollout_trace_op,
    runtime,
    shutdown,
    stats,
)
from otel_rollout.testing import InMemorySpanExporter, span_tree


@rollout_trace_op
def double(number: int) -> int:
    return 2 * number


def run_program(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter with a cleaned environment."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


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

        with pytest.raises(ConfigurationError, match=rf"^{argument}=.*should be a text that is not empty"):
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


class TestResource:
    """What spans say of the process that made them."""

    def attributes(self, monkeypatch: pytest.MonkeyPatch, **environment: str) -> dict[str, object]:
        """Return the resource attributes of a span that is made in this environment."""
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        exporter = InMemorySpanExporter()
        init("my-project", "e", backend=exporter)
        double(1)
        assert flush()
        return dict(exporter.spans[0].resource.attributes)

    def test_the_project_names_the_service(self, monkeypatch: pytest.MonkeyPatch):
        """Without OTEL_SERVICE_NAME the service, and Phoenix's project, are called as the project."""
        attributes = self.attributes(monkeypatch)

        assert attributes["service.name"] == "my-project"
        assert attributes["rollout.project_name"] == "my-project"
        assert attributes["openinference.project.name"] == "my-project"
        assert attributes["service.instance.id"]
        assert attributes["rollout.run_id"]

    def test_the_standard_variables_win(self, monkeypatch: pytest.MonkeyPatch):
        """OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES count before the project's name."""
        attributes = self.attributes(
            monkeypatch,
            OTEL_SERVICE_NAME="trainer",
            OTEL_RESOURCE_ATTRIBUTES="openinference.project.name=shown,team=rl",
            OTEL_ROLLOUT_RUN_ID="run-7",
        )

        assert attributes["service.name"] == "trainer"
        assert attributes["openinference.project.name"] == "shown"
        assert attributes["team"] == "rl"
        assert attributes["rollout.run_id"] == "run-7"


class TestProvider:
    """Whose provider the spans belong to."""

    def test_an_explicit_provider_makes_the_spans(self):
        """With tracer_provider= the spans are that provider's, and reach its exporters without a backend."""
        theirs = SdkInMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(theirs))
        init("p", "e", tracer_provider=provider)

        with rollout_trace_attr(sample_index=1, step=2):
            double(3)

        assert span_tree(theirs.get_finished_spans()) == [["rollout_trace", ["double"]]]
        child = theirs.get_finished_spans()[0]
        assert child.attributes is not None
        assert child.attributes["input.value"] == '{"number":3}'
        assert child.attributes["rollout.step"] == 2

    def test_a_backend_is_added_to_an_explicit_provider(self):
        """Both the provider's exporters and ours receive every span, once."""
        theirs, ours = SdkInMemorySpanExporter(), InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(theirs))
        init("p", "e", backend=ours, tracer_provider=provider)

        double(3)

        assert flush()
        assert [span.name for span in ours.spans] == [span.name for span in theirs.get_finished_spans()] == ["double"]

    def test_a_provider_that_takes_no_processors_is_an_error(self):
        """A provider of the API alone can't be given a backend."""
        with pytest.raises(ConfigurationError, match=r"^tracer_provider=.*takes no span processors"):
            init("p", "e", backend="console", tracer_provider=NoOpTracerProvider())

    def test_the_environment_adds_exporters_to_an_applications_global_provider(self):
        """OTEL_TRACES_EXPORTER counts beside a provider that the application has set by itself."""
        program = """
            import otel_rollout
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider
            trace.set_tracer_provider(TracerProvider())
            otel_rollout.init("p", "e")
            @otel_rollout.rollout_trace_op
            def op():
                pass
            op()
        """

        assert run_program(program, OTEL_TRACES_EXPORTER="console").stdout.startswith("CHAIN op")

    def test_our_provider_stays_private(self):
        """init does not set the global provider."""
        program = """
            import otel_rollout
            from opentelemetry import trace
            from otel_rollout.testing import InMemorySpanExporter
            otel_rollout.init("p", "e", backend=InMemorySpanExporter())
            print(type(trace.get_tracer_provider()).__name__)
        """

        assert run_program(program).stdout.strip() == "ProxyTracerProvider"

    def test_set_global_brings_other_instrumentations_spans(self):
        """With set_global=True spans of any tracer nest in the trajectory and arrive with it."""
        program = """
            import otel_rollout
            from opentelemetry import trace
            from otel_rollout.testing import InMemorySpanExporter, span_tree
            exporter = InMemorySpanExporter()
            otel_rollout.init("p", "e", backend=exporter, set_global=True)
            @otel_rollout.rollout_trace_op
            def op():
                with trace.get_tracer("httpx").start_as_current_span("GET"):
                    inner()
            @otel_rollout.rollout_trace_op
            def inner():
                pass
            with otel_rollout.rollout_trace_attr(sample_index=1):
                op()
            assert otel_rollout.flush()
            print(span_tree(exporter.spans))
        """

        assert run_program(program).stdout.strip() == "[['rollout_trace', ['op', ['GET', ['inner']]]]]"

    def test_a_second_init_replaces_an_earlier_global_provider_of_ours(self):
        """After init, shutdown and init, spans carry the second project, and other tracers' spans arrive once."""
        program = """
            import otel_rollout
            from opentelemetry import trace
            from otel_rollout.testing import InMemorySpanExporter, span_tree
            @otel_rollout.rollout_trace_op
            def op():
                with trace.get_tracer("httpx").start_as_current_span("GET"):
                    pass
            for project in ("first", "second"):
                exporter = InMemorySpanExporter()
                otel_rollout.init(project, "e", backend=exporter, set_global=True)
                with otel_rollout.rollout_trace_attr(sample_index=1):
                    op()
                assert otel_rollout.shutdown()
                ours = [span for span in exporter.spans if span.name == "op"]
                print(span_tree(exporter.spans), ours[0].resource.attributes["rollout.project_name"])
        """

        tree = "[['rollout_trace', ['op', ['GET']]]]"
        assert run_program(program).stdout.splitlines() == [f"{tree} first", f"{tree} second"]


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
        """Where only the application's own exporters receive spans, shutdown waits for these."""
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
    """What importing the core brings."""

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
