"""Whose provider the spans belong to, and what the resource says."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as SdkInMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider

from otel_rollout import (
    ConfigurationError,
    flush,
    init,
    rollout_trace_attr,
    rollout_trace_op,
)
from otel_rollout.testing import InMemorySpanExporter, span_tree
from tests.fresh_interpreter import run_program


@rollout_trace_op
def double(number: int) -> int:
    return 2 * number


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
