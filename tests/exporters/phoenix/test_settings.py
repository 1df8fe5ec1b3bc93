"""The settings of the Phoenix exporter: the variables of `phoenix.otel.register`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

from otel_rollout.errors import ConfigurationError
from otel_rollout.export.outcome import Outcome, Verdict
from otel_rollout_phoenix import PhoenixSpanExporter

REFUSED = Outcome(Verdict.REFUSED, "")


class TestSettings:
    """Arguments, variables and defaults."""

    def test_default(self) -> None:
        """Without variables it is a Phoenix on this machine, without credentials."""
        settings = PhoenixSpanExporter()._settings
        assert (settings.address, settings.headers) == ("http://localhost:6006", {})

    def test_variables(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Address, headers and key come from the environment; the key is a bearer token."""
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", "https://app.phoenix.arize.com/s/space/v1/traces/")
        monkeypatch.setenv("PHOENIX_CLIENT_HEADERS", "X-Team=a%2Cb,authorization=old")
        monkeypatch.setenv("PHOENIX_API_KEY", " key ")
        settings = PhoenixSpanExporter()._settings
        assert settings.address == "https://app.phoenix.arize.com/s/space"
        assert settings.headers == {"x-team": "a,b", "authorization": "Bearer key"}

    def test_arguments_win(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An argument precedes its variable."""
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", "http://other:6006")
        monkeypatch.setenv("PHOENIX_API_KEY", "other")
        exporter = PhoenixSpanExporter(endpoint="http://phoenix:6006/", api_key="key", headers={"X-Team": "a"})
        settings = exporter._settings
        assert settings.address == "http://phoenix:6006"
        assert settings.headers == {"authorization": "Bearer key", "x-team": "a"}

    @pytest.mark.parametrize("address", ["phoenix:6006", "localhost", "ftp://phoenix", "http://"])
    def test_no_url(self, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
        """An address that is no URL fails in `init`, and not before."""
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", address)
        exporter = PhoenixSpanExporter()
        with pytest.raises(ConfigurationError, match="this should be a URL such as http://localhost:6006"):
            exporter.check()


class TestProject:
    """The project of a span."""

    @pytest.mark.parametrize("variable", ["PHOENIX_PROJECT", "PHOENIX_PROJECT_NAME"])
    def test_spans_without_a_project(self, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        """A span whose resource names no project gets that of the environment; one that names one keeps it."""
        monkeypatch.setenv(variable, "of the environment")
        named = Resource({"openinference.project.name": "mine"})
        spans = [
            ReadableSpan("op", SpanContext(1, number, is_remote=False), resource=resource)
            for number, resource in ((1, Resource({"service.name": "app"})), (2, named))
        ]
        sent = PhoenixSpanExporter()._with_projects(spans)
        assert [span.resource.attributes["openinference.project.name"] for span in sent] == [
            "of the environment",
            "mine",
        ]
        assert sent[0].resource.attributes["service.name"] == "app"
        assert "openinference.project.name" not in spans[0].resource.attributes


class TestNames:
    """The names of spans, which Phoenix's list cuts."""

    def test_a_root_begins_with_its_place_and_reward(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A trajectory's root is named by its sample, rollout, reward and step; other spans keep their names."""
        exporter, sent = PhoenixSpanExporter(), []
        monkeypatch.setattr(exporter, "_sender", SimpleNamespace(send=lambda spans: sent.extend(spans) or REFUSED))
        scope = InstrumentationScope("otel_rollout")
        tags = {"rollout.sample_index": 12, "rollout.rollout_n": 3, "rollout.step": 7, "rollout.reward": 0.5}
        own = SpanContext(1, 1, is_remote=False)
        for parent, of, attributes in (
            (None, scope, tags),
            (None, scope, {"rollout.sample_index": "uid-1", "rollout.validate": True}),
            (own, scope, tags),
            (None, None, tags),
        ):
            span = ReadableSpan("agent_loop", own, parent, attributes=attributes, instrumentation_scope=of)
            exporter.send([span])

        assert [span.name for span in sent] == [
            "s12 · r3 = 0.5 · step 7 · agent_loop",
            "uid-1 · validate · agent_loop",
            "agent_loop",
            "agent_loop",
        ]
