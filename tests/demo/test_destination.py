"""The demo's backends, and what is said about them at the end."""

import shutil
import sys

import pytest

from otel_rollout import backends
from otel_rollout.backends import make_exporters
from otel_rollout.demo import choose_backends, describe, where_next, with_folder
from otel_rollout.errors import ConfigurationError, MissingExtraError
from otel_rollout.testing import InMemorySpanExporter


@pytest.fixture
def not_installed(monkeypatch):
    """The packages of the default backend are missing."""

    def make_none(names):
        raise MissingExtraError(f"{names[0]} needs more: pip install 'otel-rollout[{names[0]}]'")

    monkeypatch.setattr(backends, "make_exporters", make_none)


class TestChooseBackends:
    """Which backends a run sends to."""

    @pytest.mark.parametrize(
        ("argument", "environ", "chosen"),
        [
            ("otlp, weave", {"OTEL_TRACES_EXPORTER": "mlflow"}, ["otlp", "weave"]),
            (None, {"OTEL_TRACES_EXPORTER": "weave", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, ["weave"]),
            ("", {"OTEL_TRACES_EXPORTER": "weave"}, ["weave"]),
            (None, {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, []),
            (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, ["otlp"]),
            (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a"}, ["otlp"]),
            (None, {}, ["otlp_of_this_test", "file"]),
        ],
    )
    def test_the_argument_wins_then_the_standard_variables_then_the_default(
        self, monkeypatch, argument, environ, chosen
    ):
        """Nobody who has said where traces go gets them elsewhere."""
        monkeypatch.setattr(backends, "make_exporters", lambda names: [])
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        assert choose_backends(argument, ["otlp_of_this_test", "file"]) == chosen

    def test_without_the_packages_of_the_default_the_screen_is_left(self, not_installed):
        """The demo runs with nothing but its own extra."""
        assert choose_backends(None, ["mlflow", "file"]) == ["console"]
        assert choose_backends("mlflow", ["mlflow"]) == ["mlflow"]

    def test_none_stands_alone(self):
        """What goes against itself is an error, as in `init`."""
        with pytest.raises(ConfigurationError, match="'none' turns tracing off"):
            choose_backends("none,otlp", ["mlflow"])


class TestWithFolder:
    """The backends of `--view`."""

    @pytest.mark.parametrize(
        ("backends", "chosen"),
        [(["mlflow"], ["mlflow", "file"]), (["file", "otlp"], ["file", "otlp"]), (["console"], ["file"])],
    )
    def test_the_folder_is_added(self, backends, chosen):
        """What the viewer reads is written, once."""
        assert with_folder(backends) == chosen

    def test_there_is_nothing_to_view_without_traces(self):
        """With tracing off, the option is an error."""
        with pytest.raises(ConfigurationError, match="tracing is off"):
            with_folder([])


class TestDescribe:
    """A backend's name on the screen."""

    @pytest.mark.parametrize(
        ("name", "environ", "description"),
        [
            ("otlp", {}, "otlp, http://localhost:4318/v1/traces"),
            ("otlp", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:secret@a"}, "otlp, http://a/v1/traces (a user name: "),
            ("mlflow", {"MLFLOW_TRACKING_URI": "http://me:secret@a:5000"}, "mlflow, http://a:5000"),
        ],
    )
    def test_names_the_address_without_secrets(self, monkeypatch, name, environ, description):
        """The first line of the demo says where the traces go."""
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        ((_, exporter),) = make_exporters([name])
        assert describe(name, exporter).startswith(description)

    def test_an_exporter_without_a_destination_has_its_name(self):
        """Any exporter will do; the console is this screen."""
        assert describe("other", InMemorySpanExporter()) == "other"
        assert describe("console", None) == "this screen"


@pytest.fixture
def next_steps(monkeypatch):
    def say(*backends: str, unreached=(), **environ) -> str:
        for variable, value in environ.items():
            monkeypatch.setenv(variable, value)
        exporters = {name: dict(make_exporters([name]))[name] for name in backends if name != "other"}
        lines = where_next(
            backends, exporters, project_name="p", experiment_name="e", default="mlflow", unreached=unreached
        )
        return "\n".join(lines)

    return say


class TestWhereNext:
    """The last lines of the demo."""

    def test_the_query_is_python(self, next_steps):
        """The lines of the query can be pasted, and the command that opens the store follows."""
        pytest.importorskip("mlflow")
        said = next_steps("mlflow", MLFLOW_TRACKING_URI="sqlite:////data/m.db")
        code = [line.strip() for line in said.splitlines() if line.startswith("    ")]
        compile("\n".join(code[:6]), "query", "exec")
        assert code[3:5] == [
            "run = \"tags.experiment_name = 'e'\"",
            "found = mlflow.search_traces(filter_string=f\"{run} AND tags.step = '1'\")",
        ]
        (command,) = code[6:]
        assert command.endswith("mlflow server --backend-store-uri sqlite:////data/m.db --port 5000")

    def test_an_mlflow_server_is_opened_in_the_browser(self, next_steps):
        """With a server there is nothing to start."""
        said = next_steps("mlflow", MLFLOW_TRACKING_URI="http://me:secret@a:5000")
        assert "Open http://a:5000" in said
        assert "mlflow server" not in said
        assert "secret" not in said

    def test_otlp_has_the_endpoint_and_the_attributes(self, next_steps):
        """The address, and the attributes to look for."""
        said = next_steps("otlp", OTEL_EXPORTER_OTLP_ENDPOINT="http://me:secret@a:4318")
        assert "http://a:4318" in said
        assert "rollout.step" in said
        assert "secret" not in said

    def test_phoenix_has_the_address_and_the_filter(self, next_steps):
        """The address, and a condition for Phoenix's filter bar."""
        said = next_steps("phoenix", PHOENIX_COLLECTOR_ENDPOINT="http://me:secret@a:6006")
        assert "http://a:6006, project p" in said
        assert "metadata['step'] == 1 and annotations['reward'].score > 0.5" in said
        assert "secret" not in said

    def test_a_folder_has_the_commands_that_read_it(self, next_steps, tmp_path):
        """A trace folder is listed, shown and replayed, and at last opened in a browser."""
        pytest.importorskip("zstandard")
        folder = tmp_path / "t"
        said = next_steps("file", OTEL_ROLLOUT_DIR=str(folder))
        assert f"ls {folder} --step 1" in said
        assert f"show {folder} --experiment e --step 1 --train --sample 0 --rollout 0" in said
        assert f"replay {folder} --backend mlflow" in said
        assert said.endswith(f"view {folder}")

    def test_every_backend_has_its_lines(self, next_steps):
        """Two backends, two paragraphs; an exporter that explains nothing is named; the screen has a recommendation."""
        assert next_steps("weave", "other").count("\n\n") == 1
        assert next_steps("other") == "The trajectories went to other, as project p."
        assert "demo --backend mlflow" in next_steps("console")
        assert next_steps() == ""

    def test_a_command_is_one_that_is_there(self, next_steps, monkeypatch, tmp_path):
        """In an environment that is not activated it is named by its path, behind variables too."""
        program = tmp_path / "bin" / "otel-rollout"
        program.parent.mkdir()
        program.touch()
        monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
        monkeypatch.chdir(tmp_path)
        said = next_steps("console")
        assert "    bin/otel-rollout demo --backend mlflow" in said
        assert "    OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 bin/otel-rollout demo --backend otlp" in said
        monkeypatch.setattr(shutil, "which", lambda name: str(program))
        assert "    otel-rollout demo --backend mlflow" in next_steps("console")

    def test_what_the_default_needs_is_said(self, not_installed):
        """If its packages are missing, the line that brings them stands below."""
        lines = where_next(["console"], {}, project_name="p", experiment_name="e", default="mlflow")
        assert lines[-1] == "mlflow needs more: pip install 'otel-rollout[mlflow]'"

    def test_a_backend_that_got_nothing_is_not_recommended(self, next_steps):
        """It says so, and what to do."""
        said = next_steps("otlp", unreached=["otlp"])
        assert said.startswith("Nothing has arrived at otlp, http://localhost:4318/v1/traces.")
        assert "rollout.step" not in said
