"""`init` beside a tracer provider of the application, and the log line if there is nothing to trace to."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as context_api
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as SdkInMemorySpanExporter

from otel_rollout import (
    RolloutTraceConfig,
    flush,
    init,
    read_trajectories,
    rollout_trace_attr,
    rollout_trace_op,
    semconv,
    shutdown,
    stats,
)
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED, Outcome
from otel_rollout.record import is_weaves
from otel_rollout.testing import InMemorySpanExporter, span_tree
from tests.fresh_interpreter import run_program
from tests.installed import import_path


@rollout_trace_op
def double(number: int) -> int:
    return 2 * number


def run() -> None:
    """Run one trajectory."""
    with rollout_trace_attr(sample_index=1, step=2):
        double(3)


class Application:
    """A provider of the application, with an exporter of its own."""

    def __init__(self, **resource: str) -> None:
        self.exporter = SdkInMemorySpanExporter()
        self.provider = TracerProvider(
            resource=Resource({key.replace("_", "."): value for key, value in resource.items()}),
            shutdown_on_exit=False,
        )
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        """The spans that the application's exporter has."""
        return self.exporter.get_finished_spans()


@pytest.fixture
def set_global(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that sets the global provider for one test."""

    def use(provider: TracerProvider) -> None:
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    yield use
    RolloutTraceConfig.reset()


class TestWithoutABackend:
    """`init(project, experiment)` and nothing else."""

    def test_traces_to_the_applications_provider(self, set_global: Any, caplog: pytest.LogCaptureFixture):
        """A provider that was set first gets the spans, and no line says that tracing is off."""
        application = Application()
        set_global(application.provider)

        init("p", "e")
        run()

        assert flush()
        assert span_tree(application.spans) == [["rollout_trace", ["double"]]]
        assert str(stats()).startswith("traced by the application's tracer provider")
        assert caplog.records == []

    def test_leaves_the_applications_resource_alone(self, set_global: Any):
        """The application's exporter sends its own resource."""
        application = Application(service_name="svc")
        set_global(application.provider)

        init("p", "e")
        run()

        assert flush()
        assert dict(application.spans[0].resource.attributes) == {"service.name": "svc"}

    def test_none_switches_tracing_off(self, set_global: Any, monkeypatch: pytest.MonkeyPatch):
        """`none`, as an argument or in the environment, counts before the application's provider."""
        application = Application()
        set_global(application.provider)

        init("p", "e", backend="none")
        run()
        shutdown()
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        init("p", "e")
        run()

        assert application.spans == ()

    def test_in_verl_the_backend_alone_decides(self, set_global: Any):
        """verl's configuration without a backend is off, whatever provider there is."""
        application = Application()
        set_global(application.provider)

        RolloutTraceConfig.init("p", "e", None)
        run()

        assert application.spans == ()
        assert RolloutTraceConfig.get_backend() is None

    def test_weaves_own_provider_is_not_the_applications(self, set_global: Any, caplog: pytest.LogCaptureFixture):
        """The provider that `weave.init()` sets gets nothing: it sends each payload to another endpoint of W&B."""
        weaves = Application(service_name="weave-conversation-sdk", wandb_sdk_name="weave")
        set_global(weaves.provider)

        init("p", "e")
        run()
        assert "the tracer provider of weave.init() is for Weave's own spans" in caplog.text
        shutdown()
        ours = InMemorySpanExporter()
        init("p", "e", backend=ours)
        run()

        assert flush()
        assert len(ours.spans) == 2
        assert weaves.spans == ()

    def test_weaves_own_provider_is_used_if_it_is_given(self):
        """`tracer_provider=` uses any provider."""
        weaves = Application(service_name="weave-conversation-sdk", wandb_sdk_name="weave")

        init("p", "e", tracer_provider=weaves.provider)
        run()

        assert flush()
        assert len(weaves.spans) == 2


class TestIds:
    """The ids of our spans under another's provider."""

    def test_the_programs_random_numbers_stay_as_they_are(self):
        """No id is drawn from `random`, so that training repeats, and workers that seed alike have ids of their own."""
        application = Application()
        init("p", "e", tracer_provider=application.provider)
        random.seed(42)
        before = random.getstate()

        run()
        flush()
        after = random.getstate()
        random.seed(42)
        run()
        flush()

        assert after == before
        assert len({span.context.trace_id for span in application.spans if span.context}) == 2
        assert len({span.context.span_id for span in application.spans if span.context}) == 4

    def test_the_applications_own_spans_keep_its_generator(self):
        """The application's own tracers draw ids as before."""
        application = Application()
        generator = application.provider.id_generator

        init("p", "e", tracer_provider=application.provider)

        assert application.provider.id_generator is generator
        assert application.provider.get_tracer("app").id_generator is generator  # type: ignore[attr-defined]  # the SDK's


class TestHandOver:
    """Our ended spans on their way to the provider's processors."""

    @pytest.mark.parametrize("method", ["force_flush", "shutdown"])
    def test_before_the_provider_flushes_or_ends(self, method: str):
        """The application's own flush and shutdown find our spans in its processors."""
        exporter = SdkInMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(exporter))
        for _ in range(2):
            init("p", "e", tracer_provider=provider)
            run()
            if method == "force_flush":
                shutdown()

        run()
        getattr(provider, method)()

        names = [span.name for span in exporter.get_finished_spans()]
        assert names == ["double", "rollout_trace"] * (2 if method == "force_flush" else 3)

    def test_at_the_end_of_the_process(self):
        """A program that flushes nothing loses nothing, whoever registered first for the end."""
        program = """
            import atexit
            import otel_rollout
            from opentelemetry import trace
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
            @otel_rollout.rollout_trace_op
            def op():
                pass
            otel_rollout.init("p", "e", backend="none")
            otel_rollout.shutdown()
            provider = TracerProvider()
            exporter = ConsoleSpanExporter(formatter=lambda span: span.name + chr(10))
            provider.add_span_processor(BatchSpanProcessor(exporter))
            trace.set_tracer_provider(provider)
            otel_rollout.init("p", "e")
            op()
        """

        assert run_program(program).stdout == "op\n"

    def test_a_processor_that_raises(self, monkeypatch: pytest.MonkeyPatch):
        """It reaches neither the program nor our exporters: each span is delivered, and the failure is counted."""
        monkeypatch.delenv("OTEL_ROLLOUT_RAISE_INTERNAL_ERRORS")

        class Broken(SpanProcessor):
            def on_end(self, span: ReadableSpan) -> None:
                raise RuntimeError("their processor")

        ours, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(Broken())
        init("p", "e", backend=ours, tracer_provider=provider)
        run()

        assert flush()
        assert span_tree(ours.spans) == [["rollout_trace", ["double"]]]
        assert stats().internal_errors == {"handing a span to the application's tracer provider": 2}

    def test_what_a_processor_sees(self):
        """Its start comes with the context of the span's start, its end with all that the span has."""
        seen: list[Any] = []

        class Watching(SpanProcessor):
            def on_start(self, span: Span, parent_context: Context | None = None) -> None:
                span.set_attribute("user", str(baggage.get_baggage("user", parent_context)))

            def on_end(self, span: ReadableSpan) -> None:
                seen.append(span)

        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(Watching())
        init("p", "e", tracer_provider=provider)
        token = context_api.attach(baggage.set_baggage("user", "7"))
        with provider.get_tracer("app").start_as_current_span("request") as request, rollout_trace_attr(sample_index=1):
            double(3)
            with pytest.raises(TypeError):
                double(None)  # type: ignore[arg-type]
        context_api.detach(token)

        assert flush()
        good, bad, root = [span for span in seen if span.name != "request"]
        assert {span.attributes["user"] for span in seen} == {"7"}
        assert [link.context for link in root.links] == [request.get_span_context()]
        assert [span.parent.span_id for span in (good, bad)] == [root.context.span_id] * 2
        assert (bad.status.status_code.name, bad.events[0].name) == ("ERROR", "exception")
        assert good.start_time < good.end_time <= bad.start_time
        assert good.instrumentation_scope.schema_url == semconv.SCHEMA_URL

    def test_nothing_is_finished_on_the_callers_thread(self, monkeypatch: pytest.MonkeyPatch):
        """JSON, messages and redaction are the delivery thread's, as with our own provider."""
        threads = set()
        finish = sys.modules["otel_rollout.finish.span_conversion"].finished_span

        def watched(*args: Any, **kwargs: Any) -> Any:
            threads.add(threading.current_thread())
            return finish(*args, **kwargs)

        monkeypatch.setattr("otel_rollout.finish.span_conversion.finished_span", watched)
        application = Application()
        init("p", "e", tracer_provider=application.provider)
        run()

        assert flush()
        assert len(application.spans) == 2
        assert threads
        assert threading.current_thread() not in threads


class TestOff:
    """Nothing will be traced."""

    def test_one_line_says_so_and_what_would_change_it(self, caplog: pytest.LogCaptureFixture):
        """Without a backend, a variable and a provider, one warning names all three."""
        init("p", "e")

        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert record.getMessage() == (
            "tracing is off: init has no backend, OTEL_TRACES_EXPORTER is not set, and the application has set no "
            "tracer provider; name a backend, such as backend='console', or backend='none' to silence this line"
        )

    @pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
    def test_an_endpoint_alone_is_named(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variable: str
    ):
        """An endpoint's variable switches nothing on; the line names it, and what to set."""
        monkeypatch.setenv(variable, "http://localhost:4318")

        init("p", "e")

        assert caplog.messages == [
            (
                f"tracing is off: {variable} is set, but it alone switches nothing on; set "
                "OTEL_TRACES_EXPORTER=otlp, or name backend='otlp' in init, or backend='none' to silence this line"
            )
        ]

    def test_a_choice_is_no_warning(self, caplog: pytest.LogCaptureFixture):
        """`none`, and verl without a backend, are choices."""
        caplog.set_level(logging.INFO)

        init("p", "e", backend="none")
        shutdown()
        RolloutTraceConfig.init("p", "e", None)

        assert {record.levelno for record in caplog.records} == {logging.INFO}

    def test_a_disabled_sdk_is_named(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
        """The line names OTEL_SDK_DISABLED if that is the reason."""
        monkeypatch.setenv("OTEL_SDK_DISABLED", "true")

        init("p", "e", backend="console")

        assert caplog.messages == ["tracing is off: OTEL_SDK_DISABLED=true; unset it to trace"]

    def test_a_misspelt_variable_is_named(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
        """A variable that is nearly one that is read has a line of its own."""
        monkeypatch.setenv("OTEL_TRACE_EXPORTER", "console")

        init("p", "e")

        assert caplog.messages[0] == (
            "OTEL_TRACE_EXPORTER: nothing reads this variable; did you mean OTEL_TRACES_EXPORTER?"
        )

    def test_the_counts_of_an_earlier_run_are_gone(self):
        """After `shutdown` and a new `init`, `stats` is the new run's."""
        init("p", "e", backend=InMemorySpanExporter())
        double(3)
        assert shutdown(60)
        assert stats().exporters["InMemorySpanExporter"].delivered == 1

        init("p", "e", backend="none")

        assert str(stats()) == "tracing is off"


class Recorder(OutcomeSpanExporter):
    """One of our exporters, which keeps what it sends."""

    def __init__(self) -> None:
        self.sent: list[ReadableSpan] = []

    def send(self, spans: Any) -> Outcome:
        """Keep the spans."""
        self.sent += spans
        return DELIVERED


class TestProject:
    """The project that `init` is given, under another's provider."""

    def test_is_in_what_our_exporters_send(self):
        """Every backend files the spans by the project of `init`; what else the resource has stays."""
        application = Application(service_name="svc", openinference_project_name="default", team="rl")
        ours = Recorder()
        init("my-project", "e", backend=ours, tracer_provider=application.provider, run_id="run-7")
        with application.provider.get_tracer("app").start_as_current_span("request"):
            run()

        assert flush()
        assert len(ours.sent) == 3
        (resource,) = {id(span.resource): span.resource for span in ours.sent}.values()
        attributes = dict(resource.attributes)
        assert attributes.pop("service.instance.id")
        assert {key: attributes[key] for key in attributes if not key.startswith("telemetry.")} == {
            "service.name": "svc",
            "team": "rl",
            "host.name": os.uname().nodename,
            "rollout.project_name": "my-project",
            "openinference.project.name": "my-project",
            "rollout.run_id": "run-7",
        }
        theirs = {"service.name": "svc", "openinference.project.name": "default", "team": "rl"}
        assert all(dict(span.resource.attributes) == theirs for span in application.spans)

    def test_the_standard_variables_win(self, monkeypatch: pytest.MonkeyPatch):
        """OTEL_RESOURCE_ATTRIBUTES names Phoenix's project under any provider."""
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "openinference.project.name=shown")
        ours = Recorder()
        init("my-project", "e", backend=ours, tracer_provider=TracerProvider(shutdown_on_exit=False))
        double(3)

        assert flush()
        assert ours.sent[0].resource.attributes["openinference.project.name"] == "shown"

    def test_is_in_what_the_provider_sends_by_our_exporter_if_it_has_no_name(self):
        """Under opentelemetry-instrument the provider has our exporter and a service without a name."""
        ours = Recorder()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(ours))
        init("my-project", "e", tracer_provider=provider)
        double(3)

        # Its exporter may send what is left after our shutdown.
        assert shutdown(60)
        provider.force_flush()
        assert ours.sent[0].resource.attributes["rollout.project_name"] == "my-project"
        assert ours.sent[0].resource.attributes["service.name"] == "my-project"
        provider.shutdown()

    def test_a_service_that_has_a_name_keeps_its_project(self):
        """An exporter of the application's with a named service sends the application's resource."""
        ours = Recorder()
        provider = TracerProvider(resource=Resource({"service.name": "svc"}), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(ours))
        init("my-project", "e", tracer_provider=provider)
        double(3)

        assert flush()
        assert "rollout.project_name" not in ours.sent[0].resource.attributes

    def test_the_weave_check_survives_a_provider_without_a_resource(self):
        """A provider of any class is looked at without an error."""
        assert not is_weaves(object())  # type: ignore[arg-type]


class TestToolCalls:
    """The arguments and the result of a tool's call, under the names of the GenAI conventions."""

    def test_they_are_attributes_of_the_providers_span(self):
        """The provider's exporters get them with the payload, redacted and within 64 KiB; other ops have none."""
        application = Application()
        init("p", "e", tracer_provider=application.provider)

        @rollout_trace_op(kind="TOOL")
        def search(query: str, password: str) -> list[str]:
            return [query * 1000] * 100

        search("bees", "hunter2")
        double(3)

        assert flush()
        tool, plain = (dict(span.attributes or {}) for span in application.spans)
        assert tool["gen_ai.tool.call.arguments"] == tool["input.value"]
        assert "hunter2" not in str(tool)
        assert len(json.loads(str(tool["output.value"]))) == 100
        assert len(str(tool["gen_ai.tool.call.result"])) <= 64 * 1024 < len(str(tool["output.value"]))
        assert not [key for key in plain if key.startswith("gen_ai.tool")]


class TestScope:
    """The instrumentation scope of our spans."""

    @pytest.mark.parametrize("is_theirs", [False, True])
    def test_names_the_conventions(self, is_theirs: bool):
        """It has the URL of the semantic conventions' version, on our provider and on the application's."""
        ours = Recorder()
        init("p", "e", backend=ours, tracer_provider=Application().provider if is_theirs else None)
        run()

        assert flush()
        assert {span.instrumentation_scope.schema_url for span in ours.sent if span.instrumentation_scope} == {
            semconv.SCHEMA_URL
        }

    def test_a_trace_folder_keeps_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        """A trace folder has it too, and so what is replayed from there."""
        monkeypatch.setenv("OTEL_ROLLOUT_DIR", str(tmp_path))
        init("p", "e", backend="file")
        run()

        assert shutdown(60)
        [trajectory] = read_trajectories(tmp_path)
        assert {span.instrumentation_scope.schema_url for span in trajectory.spans if span.instrumentation_scope} == {
            semconv.SCHEMA_URL
        }


class TestRealPackages:
    """A package that sets a global provider, in an environment of its own."""

    PROGRAM = """
        import logfire, otel_rollout
        from opentelemetry import trace
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        logfire.configure(send_to_logfire=False, console=False)
        exporter = InMemorySpanExporter()
        trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
        otel_rollout.init("p", "e")
        @otel_rollout.rollout_trace_op
        def op():
            pass
        with otel_rollout.rollout_trace_attr(step=1):
            op()
        trace.get_tracer_provider().force_flush()
        print([span.name for span in exporter.get_finished_spans() if span.name != "logfire.config"])
    """

    @pytest.mark.slow
    def test_spans_go_to_logfires_provider(self, environment: Any, tmp_path: Path):
        """After `logfire.configure`, `init` without a backend traces to logfire's provider."""
        finished = subprocess.run(
            [environment("peers") / "bin" / "python", "-c", textwrap.dedent(self.PROGRAM)],
            env={**os.environ, "PYTHONPATH": str(import_path()), "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

        assert finished.stdout.splitlines() == ["['op', 'rollout_trace']"], finished.stderr
