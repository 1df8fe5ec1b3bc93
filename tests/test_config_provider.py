"""Whose provider the spans belong to, and what the resource says."""

from __future__ import annotations

import json
import os

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter as SdkInMemorySpanExporter
from opentelemetry.trace import NoOpTracerProvider

from otel_rollout import (
    ConfigurationError,
    flush,
    init,
    rollout_trace_op,
    shutdown,
)
from otel_rollout.testing import InMemorySpanExporter
from tests.fresh_interpreter import run_program


@rollout_trace_op
def double(number: int) -> int:
    return 2 * number


class TestResource:
    """The resource of a process."""

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
class TestForkedChild:
    """The resource of a forked child."""

    PROGRAM = """
        import json, os
        import otel_rollout
        from opentelemetry import trace
        from otel_rollout.testing import InMemorySpanExporter
        exporter = InMemorySpanExporter()
        otel_rollout.init("p", "e", backend=exporter, set_global=bool(os.environ.get("GLOBAL")))
        tracer = trace.get_tracer("early")
        @otel_rollout.rollout_trace_op
        def op():
            tracer.start_span("GET").end()
        def show():
            exporter.clear()
            op()
            assert otel_rollout.flush(60)
            ids = [(span.resource.attributes["service.instance.id"], span.resource.attributes["rollout.run_id"])
                   for span in exporter.spans]
            print(json.dumps(ids), flush=True)
        show()
        for _ in range(2):
            child = os.fork()
            if child == 0:
                show()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        show()
    """

    def ids(self, **environment: str) -> list[list[list[str]]]:
        """Return the instance and run of each span of the parent, two children, and the parent again."""
        output = run_program(self.PROGRAM, PYTHONWARNINGS="ignore::DeprecationWarning", **environment)
        return [json.loads(line) for line in output.stdout.splitlines()]

    def test_has_ids_of_its_own(self):
        """A child's instance and run are neither its parent's nor its sibling's."""
        before, first, second, after = self.ids()

        assert before == after
        assert len({tuple(ids) for [ids] in (before, first, second)}) == 3
        assert len({instance for [[instance, _]] in (before, first, second)}) == 3
        assert len({run for [[_, run]] in (before, first, second)}) == 3

    def test_keeps_the_ids_that_are_given(self):
        """An instance and a run that the environment names are everybody's."""
        given = {"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=worker", "OTEL_ROLLOUT_RUN_ID": "run-7"}

        assert self.ids(**given) == [[["worker", "run-7"]]] * 4

    def test_spans_of_other_tracers_have_the_same_ids(self):
        """Under `set_global` what other tracers make in a child says the same as our spans."""
        before, first, second, after = self.ids(GLOBAL="1")

        assert before == after
        for spans in (before, first, second):
            assert len(spans) == 2
            assert spans[0] == spans[1]
        assert len({tuple(spans[0]) for spans in (before, first, second)}) == 3


class TestProvider:
    """Whose provider the spans belong to."""

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

    def test_a_second_init_renews_the_global_provider(self):
        """Spans of a tracer that was made under the first init have the second one's resource and sampler."""
        program = """
            import otel_rollout, os
            from opentelemetry import trace
            from otel_rollout.testing import InMemorySpanExporter
            tracer = trace.get_tracer("early")
            for project, sampler in (("first", "always_on"), ("second", "always_on"), ("third", "always_off")):
                os.environ["OTEL_TRACES_SAMPLER"] = sampler
                exporter = InMemorySpanExporter()
                otel_rollout.init(project, "e", backend=exporter, set_global=True)
                tracer.start_span("GET").end()
                trace.get_tracer("late").start_span("POST").end()
                assert otel_rollout.shutdown()
                print([(span.name, span.resource.attributes["rollout.project_name"]) for span in exporter.spans])
        """

        assert run_program(program).stdout.splitlines() == [
            "[('GET', 'first'), ('POST', 'first')]",
            "[('GET', 'second'), ('POST', 'second')]",
            "[]",
        ]

    @pytest.mark.parametrize("added", ["before init", "before the trajectory", "inside the trajectory"])
    def test_processors_that_the_application_adds_to_our_global_provider(self, added: str):
        """They get our spans from then on, with their payload, in the trees that our exporters get."""
        program = f"""
            import otel_rollout
            from opentelemetry import trace
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
            from otel_rollout.testing import InMemorySpanExporter, span_tree
            ours, theirs = InMemorySpanExporter(), InMemorySpanExporter()
            def add(moment):
                if moment == {added!r}:
                    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(theirs))
            if {added!r} == "before init":
                otel_rollout.init("p", "e", backend=InMemorySpanExporter(), set_global=True)
                otel_rollout.shutdown()
                add("before init")
            otel_rollout.init("p", "e", backend=ours, set_global=True)
            add("before the trajectory")
            @otel_rollout.rollout_trace_op
            def op(number):
                with trace.get_tracer("httpx").start_as_current_span("GET"):
                    return number
            with otel_rollout.rollout_trace_attr(sample_index=1):
                op(0)
                add("inside the trajectory")
                op(1)
            assert otel_rollout.flush()
            print(span_tree(ours.spans))
            last = [span for span in theirs.spans if span.name == "op"][-1]
            names = sorted(span.name for span in theirs.spans)
            print(names, last.attributes["input.value"], last.attributes["output.value"])
        """
        whole = "['GET', 'GET', 'op', 'op', 'rollout_trace']"
        seen = "['GET', 'op', 'rollout_trace']" if added == "inside the trajectory" else whole

        assert run_program(program).stdout.splitlines() == [
            "[['rollout_trace', ['op', ['GET']], ['op', ['GET']]]]",
            f'{seen} {{"number":1}} 1',
        ]

    def test_a_provider_gets_one_processor(self):
        """However often init and shutdown are called, the application's provider has one processor of ours."""
        provider = TracerProvider(shutdown_on_exit=False)
        added: list[object] = []
        add = provider.add_span_processor
        provider.add_span_processor = lambda processor: (added.append(processor), add(processor))  # type: ignore[method-assign]
        for _ in range(3):
            exporter = InMemorySpanExporter()
            init("p", "e", backend=exporter, tracer_provider=provider)
            double(3)
            assert shutdown(60)
            provider.get_tracer("app").start_span("while tracing is off").end()
            assert [span.name for span in exporter.spans] == ["double"]

        assert len(added) == 1

    def test_a_provider_that_refuses_a_processor_is_asked_again(self):
        """After an `init` that failed there, the next one adds the processor."""
        provider = TracerProvider(shutdown_on_exit=False)
        add = provider.add_span_processor

        def refuse(processor: object) -> None:
            raise RuntimeError("not now")

        provider.add_span_processor = refuse  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="not now"):
            init("p", "e", backend=InMemorySpanExporter(), tracer_provider=provider)
        provider.add_span_processor = add  # type: ignore[method-assign]
        exporter = InMemorySpanExporter()
        init("p", "e", backend=exporter, tracer_provider=provider)
        double(3)
        assert shutdown(60)

        assert [span.name for span in exporter.spans] == ["double"]


class TestConfigFile:
    """OpenTelemetry's declarative configuration in a plain program, without `opentelemetry-instrument`."""

    PROGRAM = """
        import sys
        import otel_rollout
        try:
            otel_rollout.init("project", "experiment", **eval(sys.argv[1] if sys.argv[1:] else "{}"))
        except otel_rollout.ConfigurationError as error:
            sys.exit(f"refused: {error}")
        with otel_rollout.rollout_trace_attr(step=1, sample_index=0):
            otel_rollout.annotate(reward=1.0)
        print("flushed", otel_rollout.flush(30))
    """

    MADE = """
        import gc, os
        import otel_rollout
        from otel_rollout.export.exporter import OutcomeSpanExporter

        otel_rollout.init("project", "experiment")
        [made] = [each for each in gc.get_objects() if isinstance(each, OutcomeSpanExporter)]
        print(type(made).__name__, made.destination, flush=True)
        os._exit(0)
    """

    @pytest.fixture
    def run(self, tmp_path):
        """Runs a program with one exporter of the file's."""
        pytest.importorskip("opentelemetry.configuration")

        def start(exporter: str, program: str = self.PROGRAM, **environment: str):
            path = tmp_path / "otel.yaml"
            processor = f"{{batch: {{exporter: {exporter}}}}}"
            path.write_text(f'file_format: "1.0"\ntracer_provider: {{processors: [{processor}]}}\n')
            return run_program(program, OTEL_CONFIG_FILE=str(path), **environment)

        return start

    @pytest.mark.parametrize(
        ("exporter", "said"),
        [
            ("{{file: {{folder: '{folder}'}}}}", ""),
            ("{{console: {{}}}}", '"rollout.reward": 1.0'),
        ],
        ids=["file", "console"],
    )
    def test_its_exporters_get_the_spans(self, run, tmp_path, exporter, said):
        """One file names the backend; the program is the same for each."""
        done = run(exporter.format(folder=tmp_path / "traces"))
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
        assert done.stdout.endswith("flushed True\n")
        assert "tracing is off" not in done.stderr
        assert said or list((tmp_path / "traces").rglob("*.zst"))

    @pytest.mark.parametrize(
        ("exporter", "name"),
        [
            ("{mlflow: {tracking_uri: 'http://127.0.0.1:9'}}", "MlflowSpanExporter http://127.0.0.1:9"),
            ("{weave: {project: team/rollouts, api_key: secret}}", "WeaveSpanExporter https://trace.wandb.ai"),
        ],
        ids=["mlflow", "weave"],
    )
    def test_backends_that_need_a_server_are_made(self, run, exporter, name):
        """Each is made from its name and the arguments of its class; nothing is sent before the first span."""
        done = run(exporter, program=self.MADE)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith(name)

    def test_a_backend_that_is_named_goes_first(self, run):
        """With OTEL_TRACES_EXPORTER the file is left alone, as the provider of an application is."""
        done = run("{nobody: {}}", OTEL_TRACES_EXPORTER="none")
        assert (done.returncode, done.stdout) == (0, "flushed True\n")

    def test_a_file_that_cannot_work_is_an_error_of_init(self, run):
        """An exporter that isn't installed is named, with the variable."""
        done = run("{nobody: {}}")
        assert "refused: OTEL_CONFIG_FILE=" in done.stderr
        assert "'nobody' not found" in done.stderr
