"""Where the spans go by default, and what is said about it at the end."""

import pytest

from otel_rollout.demo import destination
from otel_rollout.demo.destination import choose_backends, describe, where_next


@pytest.fixture
def mlflow_installed(monkeypatch):
    def set_installed(installed: bool) -> None:
        monkeypatch.setattr(destination, "SQL_STORE_PACKAGES", ("json",) if installed else ("json", "no_such_package"))

    return set_installed


class TestChooseBackends:
    """Which backends a run sends to."""

    @pytest.mark.parametrize(
        ("argument", "environ", "installed", "chosen"),
        [
            ("otlp, weave", {"OTEL_TRACES_EXPORTER": "mlflow"}, True, ["otlp", "weave"]),
            (None, {"OTEL_TRACES_EXPORTER": "weave", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, True, ["weave"]),
            (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, True, ["otlp"]),
            (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://a"}, True, ["otlp"]),
            (None, {}, True, ["mlflow"]),
            (None, {}, False, ["console"]),
            (None, {"MLFLOW_TRACKING_URI": "http://a:5000"}, False, ["mlflow"]),
            (None, {"MLFLOW_TRACKING_URI": "sqlite:///a.db"}, False, ["console"]),
        ],
    )
    def test_the_argument_wins_then_the_standard_variables_then_what_is_installed(
        self, mlflow_installed, argument, environ, installed, chosen
    ):
        """Nobody who has said where traces go gets them elsewhere; an MLflow server needs no package."""
        mlflow_installed(installed)
        assert choose_backends(argument, environ) == chosen


class TestDescribe:
    """A backend's name on the screen."""

    @pytest.mark.parametrize(
        ("name", "environ", "description"),
        [
            ("mlflow", {}, "mlflow, sqlite:///mlruns.db"),
            ("mlflow", {"MLFLOW_TRACKING_URI": "http://a:5000"}, "mlflow, http://a:5000"),
            ("otlp", {}, "otlp, http://localhost:4318"),
            ("otlp", {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "otlp, http://localhost:4317"),
            ("otlp", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a"}, "otlp, http://a"),
            ("console", {}, "this screen"),
            ("weave", {}, "weave"),
        ],
    )
    def test_names_the_address(self, name, environ, description):
        """The first line of the demo says where the traces go."""
        assert describe(name, environ) == description

    def test_hides_passwords(self):
        """An address is shown without the password in it."""
        environ = {"MLFLOW_TRACKING_URI": "postgresql://me:secret@host/db"}
        assert describe("mlflow", environ) == "mlflow, postgresql://me:***@host/db"


def next_steps(*backends: str, environ=None, **options) -> str:
    return "\n".join(where_next(backends, project="p", experiment="e", environ=environ or {}, **options))


class TestWhereNext:
    """The last lines of the demo."""

    def test_mlflow_has_the_query_and_the_command(self, monkeypatch):
        """A local store is opened by a command, which needs the whole of mlflow in the version that made the store."""
        monkeypatch.setattr(destination, "_version", {"mlflow-skinny": "3.17.2"}.get)
        monkeypatch.setattr(destination.shutil, "which", lambda name: f"/usr/bin/{name}")
        said = next_steps("mlflow")
        assert "mlflow.search_traces(filter_string=\"tags.experiment_name = 'e' AND tags.step = '1'\")" in said
        assert "uvx --from mlflow==3.17.2 mlflow server --backend-store-uri sqlite:///mlruns.db --port 5000" in said

    def test_the_command_is_one_that_is_there(self, monkeypatch, tmp_path):
        """In an environment that is not activated it is named by its path; where there is no uvx, uv is installed."""
        python = tmp_path / "bin" / "python"
        python.parent.mkdir()
        monkeypatch.setattr(destination, "_version", {"mlflow-skinny": "3.17.2"}.get)
        monkeypatch.setattr(destination.shutil, "which", lambda name: None)
        monkeypatch.setattr(destination.sys, "executable", str(python))
        monkeypatch.chdir(tmp_path)
        install = "bin/python -m pip install uv && bin/python -m uv tool run --from mlflow==3.17.2 mlflow server"
        assert f"    {install}" in next_steps("mlflow")
        python.with_name("uvx").touch()
        assert "    bin/uvx --from mlflow==3.17.2 mlflow server" in next_steps("mlflow")

    def test_the_query_is_python(self, monkeypatch):
        """The lines of the query can be pasted."""
        monkeypatch.setattr(destination, "_version", {"mlflow": "3.17.2"}.get)
        monkeypatch.setattr(destination.shutil, "which", lambda name: f"/usr/bin/{name}")
        code = [line.strip() for line in next_steps("mlflow").splitlines() if line.startswith("    ")]
        compile("\n".join(code[:4]), "query", "exec")
        assert code[4:] == ["mlflow server --backend-store-uri sqlite:///mlruns.db --port 5000"]

    def test_an_mlflow_server_is_opened_in_the_browser(self):
        """With a server there is nothing to start."""
        said = next_steps("mlflow", environ={"MLFLOW_TRACKING_URI": "http://a:5000"})
        assert "Open http://a:5000" in said
        assert "mlflow server" not in said

    def test_otlp_has_the_endpoint_and_the_filter(self):
        """The address and a filter for Phoenix."""
        said = next_steps("otlp", environ={"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:6006"})
        assert "http://a:6006" in said
        assert "metadata['step'] == 1" in said

    def test_a_folder_has_the_commands_that_read_it(self):
        """A trace folder is listed, shown and replayed; without a variable it stands in the working folder."""
        assert "ls rollout-traces --step 1" in next_steps("file")
        said = next_steps("file", environ={"OTEL_ROLLOUT_DIR": "/data/t"})
        assert "show /data/t --experiment e --step 1 --train --sample 0 --rollout 0" in said
        assert "replay /data/t --backend mlflow" in said

    def test_every_backend_has_its_lines(self):
        """Two backends, two paragraphs; another exporter is named; none says nothing."""
        assert next_steps("weave", "other").count("\n\n") == 1
        assert "exporter other" in next_steps("other")
        assert "demo --backend mlflow" in next_steps("console")
        assert next_steps("none") == ""

    def test_what_keeps_the_spans_is_installed_with_the_demo(self, monkeypatch):
        """Where the SQL store's packages are missing, the line that brings them brings the demo's own too."""
        monkeypatch.setattr(destination, "_has_sql_store", lambda: False)
        assert "pip install 'otel-rollout[mlflow,demo]' && " in next_steps("console")

    def test_a_backend_that_got_nothing_is_not_recommended(self):
        """It says so, and what to do."""
        said = next_steps("otlp", unreached=["otlp"])
        assert said.startswith("Nothing has arrived at otlp, http://localhost:4318.")
        assert "metadata" not in said
