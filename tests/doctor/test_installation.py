"""What the doctor says of what is installed."""

from __future__ import annotations

from importlib import metadata

from otel_rollout.backends import GROUP
from otel_rollout.doctor import read_installation


class TestExporters:
    """The exporters that are installed."""

    def test_ours_are_there_with_their_variables(self):
        """Our exporters are listed once each, with the variables that they read."""
        found = {one.name: one for one in read_installation().exporters}

        assert {"console", "mlflow", "otlp", "weave"} <= set(found)
        assert len(found) == len(read_installation().exporters)
        assert "MLFLOW_TRACKING_URI" in map(str, found["mlflow"].settings)
        assert "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" in map(str, found["otlp"].settings)
        assert "OTEL_ROLLOUT_WEAVE_ASK_FIRST" in map(str, read_installation().settings)

    def test_one_that_can_not_be_loaded_says_why(self, monkeypatch):
        """A broken package of somebody else's is reported and harms nothing."""
        broken = metadata.EntryPoint("broken", "no_such_module:Exporter", GROUP)
        monkeypatch.setattr(metadata, "entry_points", lambda **_: [broken])

        (found,) = [one for one in read_installation().exporters if one.name == "broken"]

        assert found.fault == "ModuleNotFoundError: No module named 'no_such_module'"


class TestExtras:
    """The extras that are missing."""

    def test_what_is_not_installed_is_named(self, monkeypatch):
        """An extra names the distributions that it asks for and that are missing, also those of extras within it."""
        installed = metadata.version

        def version(name: str) -> str:
            if name == "zstandard":
                raise metadata.PackageNotFoundError(name)
            return installed(name)

        monkeypatch.setattr(metadata, "version", version)

        missing = {one.name: one.missing for one in read_installation().extras}

        assert missing["file"] == ("zstandard",)
        assert "zstandard" in missing["cli"]
        assert "zstandard" not in missing["grpc"]
        assert not {"all", "dev"} & set(missing)
