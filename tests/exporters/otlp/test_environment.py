"""The standard variables of an OTLP exporter."""

from __future__ import annotations

import pytest

from otel_rollout.errors import ConfigurationError
from otel_rollout_otlp import OtlpGrpcSpanExporter, OtlpHttpSpanExporter


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_around_headers_are_left_out(monkeypatch, quote):
    """A file of variables keeps the quotes that a shell would remove."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"{quote}authorization=Bearer a,x-project=seven{quote}")
    assert OtlpHttpSpanExporter()._headers == {"authorization": "Bearer a", "x-project": "seven"}


class TestEndpoint:
    """Endpoints."""

    @pytest.mark.parametrize(
        ("variables", "is_grpc", "endpoint"),
        [
            ({}, False, "http://localhost:4318/v1/traces"),
            ({}, True, "http://localhost:4317"),
            ({"ENDPOINT": "http://host:1"}, False, "http://host:1/v1/traces"),
            ({"ENDPOINT": "https://host/base/"}, False, "https://host/base/v1/traces"),
            ({"TRACES_ENDPOINT": "http://host:1/as/is"}, False, "http://host:1/as/is"),
            ({"ENDPOINT": "http://all:1", "TRACES_ENDPOINT": "http://traces:2/x"}, False, "http://traces:2/x"),
            ({"ENDPOINT": "host:4317"}, True, "host:4317"),
            ({"ENDPOINT": "http://host:4317"}, True, "http://host:4317"),
        ],
    )
    def test_the_endpoint(self, monkeypatch, variables, is_grpc, endpoint):
        """The variable for traces is taken as it is; the path is added to the one for all signals, for HTTP only."""
        for name, value in variables.items():
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
        exporter = OtlpGrpcSpanExporter() if is_grpc else OtlpHttpSpanExporter()
        assert exporter.endpoint == endpoint

    @pytest.mark.parametrize(
        ("variables", "is_insecure"),
        [
            ({}, True),
            ({"ENDPOINT": "http://host:1"}, True),
            ({"ENDPOINT": "https://host:1"}, False),
            ({"ENDPOINT": "https://host:1", "INSECURE": "true"}, False),
            ({"ENDPOINT": "host:1"}, False),
            ({"ENDPOINT": "host:1", "INSECURE": "true"}, True),
            ({"ENDPOINT": "host:1", "TRACES_INSECURE": "True"}, True),
        ],
    )
    def test_whether_grpc_goes_without_tls(self, monkeypatch, variables, is_insecure):
        """The scheme decides; where there is none, the variable does."""
        for name, value in variables.items():
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
        assert OtlpGrpcSpanExporter()._environment.is_insecure is is_insecure


class TestOthers:
    """Headers, timeout, compression, certificates."""

    def test_all_of_them(self, monkeypatch, tmp_path):
        """Every variable is read, header values percent-decoded."""
        for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"):
            (tmp_path / name).touch()
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(tmp_path / name))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Basic%20abc=, X-Project = seven ,")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2.5")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "GZIP")
        assert vars(OtlpGrpcSpanExporter()._environment) == {
            "endpoint": "http://localhost:4317",
            "what_to_check": "check OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS",
            "headers": {"authorization": "Basic abc=", "x-project": "seven"},
            "timeout": 2.5,
            "compression": "gzip",
            "certificate": str(tmp_path / "CERTIFICATE"),
            "client_certificate": str(tmp_path / "CLIENT_CERTIFICATE"),
            "client_key": str(tmp_path / "CLIENT_KEY"),
            "is_insecure": True,
        }

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("ENDPOINT", "localhost"),
            ("ENDPOINT", "ftp://host"),
            ("ENDPOINT", "http://"),
            ("CERTIFICATE", "/nowhere/ca.pem"),
        ],
    )
    def test_a_value_that_cannot_work_is_an_error_that_names_it(self, monkeypatch, name, value):
        """The error names the variable and its value."""
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
        with pytest.raises(ConfigurationError) as raised:
            OtlpHttpSpanExporter()
        assert f"OTEL_EXPORTER_OTLP_{name}" in str(raised.value)
        assert value in str(raised.value)

    @pytest.mark.parametrize("pair", ["sk-secret", "=sk-secret", " = sk-secret"])
    def test_a_bad_header_is_named_by_its_position(self, monkeypatch, caplog, pair):
        """An invalid header may be a secret and is not shown; the others are sent."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", f"x-project=seven,{pair}")
        assert OtlpHttpSpanExporter()._headers == {"x-project": "seven"}
        [warning] = caplog.messages
        assert warning.startswith("OTEL_EXPORTER_OTLP_HEADERS: pair 2 is ignored: this should be name=value")
        assert "secret" not in warning

    def test_whether_grpc_goes_without_tls_is_true_or_false(self, monkeypatch, caplog):
        """Another value is ignored with a warning: TLS it is."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "host:4317")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_INSECURE", "maybe")
        assert OtlpGrpcSpanExporter()._environment.is_insecure is False
        assert caplog.messages == ["OTEL_EXPORTER_OTLP_INSECURE='maybe' is ignored: this should be true or false"]

    def test_a_bad_endpoint_is_shown_without_its_password(self, monkeypatch):
        """The user and password of an endpoint that can't work are left out of the error."""
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://ada:hunter2@host")
        with pytest.raises(ConfigurationError, match=r"='ftp://host': this") as raised:
            OtlpHttpSpanExporter()
        assert "hunter2" not in str(raised.value)
