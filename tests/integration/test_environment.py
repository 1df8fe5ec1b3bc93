"""One program, many destinations: only the environment says where its traces go."""

from __future__ import annotations

import pytest

from tests.servers.span_trees import trees

pytestmark = pytest.mark.integration


class TestSwap:
    """The same program, traced elsewhere by environment variables alone."""

    def test_console_otlp_http_and_otlp_grpc_by_environment_only(self, phoenix, programs, otlp):
        """A program prints its trees, or sends them to Phoenix by either protocol, or both, with not a line changed."""
        printed = programs.run("group", "swap", OTEL_TRACES_EXPORTER="console")
        assert printed.stdout.count("Agent.run") + printed.stderr.count("Agent.run") == 7
        assert phoenix.api.spans("swap") == []

        programs.run("group", "swap", **otlp(phoenix, "http/protobuf"))
        assert len(trees(phoenix.api.wait_for_spans("swap", 42))) == 7

        programs.run("group", "swap", **otlp(phoenix, "grpc"))
        assert len(trees(phoenix.api.wait_for_spans("swap", 84))) == 14

        both = programs.run("group", "swap", **{**otlp(phoenix, "grpc"), "OTEL_TRACES_EXPORTER": "console,otlp"})
        assert len(trees(phoenix.api.wait_for_spans("swap", 126))) == 21
        assert both.stdout.count("Agent.run") + both.stderr.count("Agent.run") == 7

    @pytest.mark.parametrize("variables", [{}, {"OTEL_TRACES_EXPORTER": "none"}, {"OTEL_SDK_DISABLED": "true"}])
    def test_no_exporter_is_off(self, phoenix, programs, otlp, variables):
        """Without an exporter, with none, or with the SDK disabled, the program runs and sends nothing."""
        endpoint = {**otlp(phoenix, "grpc"), "OTEL_TRACES_EXPORTER": ""}
        if "OTEL_SDK_DISABLED" in variables:
            endpoint["OTEL_TRACES_EXPORTER"] = "otlp"
        programs.run("group", "off", **{**endpoint, **variables})
        assert programs.report("off")["stats"]["exporters"] == {}
        assert phoenix.api.spans("off") == []

    def test_traces_endpoint_service_name_and_resource_attributes(self, phoenix, programs):
        """The endpoint for traces alone is used as it is, and a resource attribute names Phoenix's project."""
        programs.run(
            "group",
            "resource",
            OTEL_TRACES_EXPORTER="otlp",
            OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=f"{phoenix.address}/v1/traces",
            OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
            OTEL_EXPORTER_OTLP_COMPRESSION="gzip",
            OTEL_SERVICE_NAME="trainer-7",
            OTEL_RESOURCE_ATTRIBUTES="openinference.project.name=named-by-resource,deployment.environment=lab",
        )
        assert len(trees(phoenix.api.wait_for_spans("named-by-resource", 42))) == 7
        assert phoenix.api.spans("resource") == []


class TestInstrument:
    """Under opentelemetry-instrument, in the provider that it has set up."""

    def test_each_span_is_sent_once(self, phoenix, programs, otlp, proxy, instrument):
        """The exporter that opentelemetry-instrument has set up is the only one: we send no span a second time."""
        variables = {**otlp(proxy, "http/protobuf"), **instrumented("instrument-once")}
        programs.run("group", "instrument-once", launcher=instrument, **variables)
        spans = phoenix.api.wait_for_spans("instrument-once", 42)
        assert proxy.stored == {span["context"]["span_id"]: 1 for span in spans}
        assert len(trees(spans)) == 7

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    def test_other_instrumentations_and_ours_share_one_tree(self, phoenix, programs, otlp, instrument, protocol):
        """Another library's span inside an op stands between our spans; the one around the trajectory does not."""
        project = f"instrument-{protocol[:4]}"
        programs.run(
            "foreign",
            project,
            launcher=instrument,
            **instrumented(project),
            **otlp(phoenix, protocol),
        )
        spans = phoenix.api.wait_for_spans(project, 5)
        shapes = sorted(root.shape() for root in trees(spans).values())
        assert shapes == [
            ("job around", "UNKNOWN", "UNSET", []),
            (
                "trajectory", "AGENT", "UNSET",
                [("step", "CHAIN", "UNSET", [
                    ("request inside", "UNKNOWN", "UNSET", [("inner", "CHAIN", "UNSET", [])]),
                ])],
            ),
        ]  # fmt: skip


def instrumented(project):
    """Return the variables for a program under opentelemetry-instrument; the resource is not ours there."""
    return {
        "OTEL_RESOURCE_ATTRIBUTES": f"openinference.project.name={project}",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "PYTHONWARNINGS": "default",
    }
