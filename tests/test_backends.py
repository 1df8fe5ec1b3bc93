"""From backend names to exporters."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import pytest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otel_rollout import backends, flush, init, rollout_trace_attr, shutdown, stats
from otel_rollout.backends import Address, backend_names, make_exporters, requested_backend
from otel_rollout.errors import ConfigurationError, MissingExtraError, UnknownExporterError
from otel_rollout.export.exporter import OutcomeSpanExporter
from otel_rollout.export.outcome import DELIVERED
from otel_rollout.record import runtime
from otel_rollout.testing import InMemorySpanExporter


class TestRequested:
    """The requested backends."""

    def test_nothing_is_off(self):
        """Without argument and variable there is no exporter."""
        assert requested_backend(None) == []

    def test_the_variable_counts_where_there_is_no_argument(self, monkeypatch: pytest.MonkeyPatch):
        """OTEL_TRACES_EXPORTER is a comma list; an argument replaces it."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "mlflow, otlp,mlflow")

        assert requested_backend(None) == ["mlflow", "otlp"]
        assert requested_backend("weave") == ["weave"]

    def test_names_and_exporters_mix_in_a_list(self):
        """A list holds names, comma lists and exporters."""
        exporter = InMemorySpanExporter()

        assert requested_backend(["otlp,console", exporter]) == ["otlp", "console", exporter]
        assert backend_names(["otlp", exporter]) == "otlp,InMemorySpanExporter"

    def test_none_turns_tracing_off(self, monkeypatch: pytest.MonkeyPatch):
        """`none` alone is off, as argument and as variable."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")

        assert requested_backend(None) == []
        assert requested_backend("none") == []

    def test_none_beside_others_is_an_error(self):
        """`none` beside another name says two things at once."""
        with pytest.raises(ConfigurationError, match=r"'none' turns tracing off and stands alone; without it .*: otlp"):
            requested_backend("otlp,none")

    @pytest.mark.parametrize("backend", [5, [5], [None]])
    def test_other_types_are_an_error(self, backend: object):
        """Neither a name nor an exporter."""
        with pytest.raises(ConfigurationError, match=r"should be a name"):
            requested_backend(backend)  # type: ignore[arg-type]


class TestMaking:
    """From names to exporters."""

    def test_otlp_is_http_by_default_and_grpc_by_variable(self, monkeypatch: pytest.MonkeyPatch):
        """OTEL_EXPORTER_OTLP_PROTOCOL decides, the variable for traces first."""
        assert type(make_exporters(["otlp"])[0][1]).__name__ == "OtlpHttpSpanExporter"

        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        assert type(make_exporters(["otlp"])[0][1]).__name__ == "OtlpGrpcSpanExporter"

        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf")
        assert type(make_exporters(["otlp"])[0][1]).__name__ == "OtlpHttpSpanExporter"

    def test_any_installed_exporter_is_found_by_its_entry_point(self):
        """A name of OpenTelemetry's own entry point group works as it is."""
        exporter = make_exporters(["otlp_proto_http"])[0][1]

        assert type(exporter).__module__.startswith("opentelemetry.exporter.otlp")
        exporter.shutdown()

    @pytest.mark.parametrize("name", ["mlflow", "weave"])
    def test_our_exporters_are_registered(self, name: str):
        """The exporters of this distribution are found by name."""
        assert make_exporters([name])[0][0] == name

    def test_an_unknown_name_lists_the_installed_ones(self):
        """The error lists what is installed, and says what the name may have meant."""
        with pytest.raises(UnknownExporterError) as caught:
            make_exporters(["mlfow"])

        message = str(caught.value)
        assert message.startswith("no exporter is called 'mlfow'; installed: console, file, mlflow, none, otlp, ")
        assert message.endswith("did you mean 'mlflow'?")

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            ("ml-flow", "did you mean 'mlflow'?"),
            ("MLflow", "did you mean 'mlflow'?"),
            ("wandb", "did you mean 'weave'?"),
            ("stdout", "did you mean 'console'?"),
            ("jaeger", "backend='otlp', endpoint='http://localhost:4318' or OTEL_EXPORTER_OTLP_ENDPOINT"),
            ("langfuse", "backend='otlp', endpoint='https://cloud.langfuse.com/api/public/otel' or"),
            ("http://me:secret@localhost:6006", "backend='otlp', endpoint='http://localhost:6006'"),
        ],
    )
    def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(self, name: str, said: str):
        """Another spelling, a product's name or a URL: the error says what to write instead."""
        with pytest.raises(UnknownExporterError) as caught:
            make_exporters([name])

        assert said in str(caught.value)

    def test_a_known_name_that_is_not_installed_names_its_extra(self, monkeypatch: pytest.MonkeyPatch):
        """OpenTelemetry's name of the gRPC exporter comes with an extra; an extra that is no exporter is unknown."""
        monkeypatch.setattr(backends, "entry_points", lambda **selection: [])

        with pytest.raises(UnknownExporterError, match=r"pip install .*\[grpc\]'"):
            make_exporters(["otlp_proto_grpc"])
        with pytest.raises(UnknownExporterError) as caught:
            make_exporters(["demo"])
        assert "pip install" not in str(caught.value)

    def test_a_missing_package_is_reported_with_its_extra(self, monkeypatch: pytest.MonkeyPatch):
        """gRPC without grpcio is an error with the line that installs it."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        monkeypatch.setitem(sys.modules, "grpc", None)
        monkeypatch.delitem(sys.modules, "otel_rollout_otlp.grpc_exporter", raising=False)

        with pytest.raises(MissingExtraError, match=r"pip install .*\[grpc\]'"):
            make_exporters(["otlp"])

    def test_a_bad_endpoint_is_found_at_once(self, monkeypatch: pytest.MonkeyPatch):
        """An endpoint that is no URL fails init, not the first batch."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318")

        with pytest.raises(
            ConfigurationError, match=r"OTEL_EXPORTER_OTLP_ENDPOINT='localhost:4318': this should be a URL"
        ):
            make_exporters(["otlp"])

    def test_an_exporter_that_cannot_be_loaded_is_a_configuration_error(self, monkeypatch: pytest.MonkeyPatch):
        """A broken entry point is reported by name."""

        class Broken:
            def load(self) -> object:
                raise AttributeError("no such class")

        monkeypatch.setattr(backends, "entry_points", lambda **selection: [Broken()])

        with pytest.raises(ConfigurationError, match=r"exporter 'mine' can't be loaded: AttributeError: no such class"):
            make_exporters(["mine"])

    def test_exporters_of_one_class_get_names_of_their_own(self):
        """Statistics tell two exporters of one class apart."""
        names = [name for name, _ in make_exporters([InMemorySpanExporter(), InMemorySpanExporter()])]

        assert names == ["InMemorySpanExporter", "InMemorySpanExporter-2"]

    def test_a_failing_check_fails_init(self):
        """An exporter that knows it can't work as configured says so before anything is traced."""

        class Unsure(OutcomeSpanExporter):
            def check(self) -> None:
                raise ConfigurationError("UNSURE_URL is not set")

            def send(self, spans):
                return DELIVERED

        with pytest.raises(ConfigurationError, match="UNSURE_URL is not set"):
            make_exporters([Unsure()])

    def test_methods_of_somebody_elses_exporter_are_its_own(self):
        """An exporter that is none of ours is only asked to export, whatever else it has by names that ours use."""
        ours = {name for name in dir(OutcomeSpanExporter) if not name.startswith("_")} - set(dir(SpanExporter))
        assert {"check", "send", "after_fork", "max_batch_bytes"} <= ours
        ours |= {"destination", "expect_repeats", "read_back", "where_to_look"}

        class Theirs(SpanExporter):
            def __init__(self) -> None:
                self.names: list[str] = []

            def export(self, spans):
                self.names += [span.name for span in spans]
                return SpanExportResult.SUCCESS

        def fail(self, *arguments):
            raise AssertionError("this is not ours to ask for")

        for name in ours:
            setattr(Theirs, name, property(fail))
        exporter = Theirs()

        init("project", "experiment", backend=exporter)
        with rollout_trace_attr(0, 1, 0, name="one"):
            pass
        [queue] = runtime.pipeline.queues

        assert flush(60)
        queue.after_fork()
        assert exporter.names == ["one"]
        assert shutdown(60)


class TestAddress:
    """The endpoint and headers that `init` is given."""

    @pytest.mark.parametrize(
        ("endpoint", "url"),
        [
            ("http://localhost:6006", "http://localhost:6006/v1/traces"),
            ("http://localhost:6006/v1/traces/", "http://localhost:6006/v1/traces"),
            ("https://host/api/public/otel", "https://host/api/public/otel/v1/traces"),
        ],
    )
    def test_otlp_takes_it(self, endpoint: str, url: str):
        """The base URL and the whole one are both right."""
        ((_, exporter),) = make_exporters(["otlp"], Address(endpoint, {"x-key": "value"}))

        assert exporter.endpoint == url  # type: ignore[attr-defined]
        assert exporter._headers == {"x-key": "value"}  # type: ignore[attr-defined]

    def test_grpc_takes_it(self, monkeypatch: pytest.MonkeyPatch):
        """The gRPC exporter gets the same arguments."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        ((_, exporter),) = make_exporters(["otlp"], Address("localhost:4317"))

        assert exporter.endpoint == "localhost:4317"  # type: ignore[attr-defined]

    def test_only_the_exporter_that_takes_it_gets_it(self):
        """Beside other exporters, `otlp` has the endpoint."""
        made = dict(make_exporters(["console", "otlp"], Address("http://localhost:6006")))

        assert made["otlp"].endpoint == "http://localhost:6006/v1/traces"  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("asked", "setting"),
        [
            (["mlflow"], "the address of 'mlflow' is MLFLOW_TRACKING_URI"),
            (["file"], "the address of 'file' is OTEL_ROLLOUT_DIR"),
            (["weave"], "the address of 'weave' is WANDB_BASE_URL"),
            (["console"], "'console' takes none"),
            ([InMemorySpanExporter()], "InMemorySpanExporter is made already"),
        ],
    )
    def test_another_exporters_setting_is_named(self, asked: list[Any], setting: str):
        """An exporter without an endpoint is an error that says which setting it has."""
        with pytest.raises(ConfigurationError) as caught:
            make_exporters(asked, Address("http://localhost:5000"))

        assert str(caught.value).startswith(f"endpoint: this is for OTLP, backend='otlp'; {setting}")

    @pytest.mark.parametrize(
        ("address", "said"),
        [
            (
                Address("localhost:4318"),
                "endpoint='localhost:4318': this should be a URL such as http://localhost:4318",
            ),
            (Address(""), "endpoint='': this should be a URL"),
            (Address(headers={"x-key": 1}), "headers: this should be a dict of names and values"),  # type: ignore[dict-item]
            (Address(headers="x-key=1"), "headers: this should be a dict"),  # type: ignore[arg-type]
        ],
    )
    def test_a_wrong_one_is_found_at_once(self, address: Address, said: str):
        """A missing scheme or a wrong type fails `init`."""
        with pytest.raises(ConfigurationError) as caught:
            make_exporters(["otlp"], address)

        assert str(caught.value).startswith(said)

    def test_it_is_shown_without_secrets(self):
        """Errors about a second `init` show neither passwords nor the values of headers."""
        assert repr(Address("http://me:pw@host", {"authorization": "secret"})) == (
            "endpoint 'http://host' with headers ['authorization']"
        )


class TestEqualExporters:
    """Exporters are told apart by identity."""

    def test_equal_and_without_a_hash(self):
        """Two equal exporters are two, and one without a hash works."""

        @dataclasses.dataclass
        class Equal(InMemorySpanExporter):
            path: str = "x"

            def __post_init__(self) -> None:
                super().__init__()

        first, second = Equal(), Equal()
        assert first == second
        init("project", "experiment", backend=[first, second])
        assert len(stats().exporters) == 2

    @pytest.mark.parametrize("backend", ["", " , ", []])
    def test_no_name_is_an_error(self, backend):
        """A backend without a name is an error that names the way to turn tracing off."""
        with pytest.raises(ConfigurationError, match="backend='none' turns tracing off"):
            init("project", "experiment", backend=backend)

    def test_a_variable_without_a_name_is_an_error(self, monkeypatch):
        """Commas alone name nothing; an empty variable is one that is not set."""
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", " , ")
        with pytest.raises(ConfigurationError, match=r"^OTEL_TRACES_EXPORTER=' , ' names no exporter; "):
            init("project", "experiment")

        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "  ")
        assert requested_backend(None) == []

    @pytest.mark.parametrize("backend", ["console,,", ",console", ["console", ""]])
    def test_an_empty_name_beside_others_is_a_warning(self, caplog, backend):
        """A comma too many is ignored, and the log says so."""
        init("project", "experiment", backend=backend)

        assert list(stats().exporters) == ["console"]
        assert caplog.messages == [f"backend={backend!r}: an empty name between commas is ignored"]
